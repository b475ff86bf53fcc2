package wire

import "time"

// Symbol is an AMQP symbol (part 1, 1.6.22).
type Symbol string

// UUID is an AMQP uuid in network order (part 1, 1.6.18).
type UUID [16]byte

// Described is a described value with a descriptor that this package does not know. It is kept so that it can
// be passed on unchanged (part 1, 1.2).
type Described struct{ Descriptor, Value any }

// Map is an AMQP map in the order received (part 1, 1.6.23). Keys and values have the Go types of DecodeValue.
type Map []Pair

// Pair is one entry of a Map.
type Pair struct{ Key, Value any }

// Get returns the value of a key, nil if the key is missing. Some clients write symbols for strings, so the
// types of the keys do not matter.
func (m Map) Get(key string) any {
	for _, pair := range m {
		if text, ok := AsText(pair.Key); ok && text == key {
			return pair.Value
		}
	}
	return nil
}

// Text returns the value of a key if it is a string or symbol, otherwise "".
func (m Map) Text(key string) string {
	text, _ := AsText(m.Get(key))
	return text
}

// AsText returns a string or symbol as text; ok is false for every other value.
func AsText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Symbol:
		return string(v), true
	}
	return "", false
}

// Array marks a slice that is written as an AMQP array instead of a list (part 1, 1.6.24). Its known element
// types are []int64, []time.Time, []UUID, []Symbol, []string and []uint64.
type Array struct{ Values any }

// Role is the role of a link endpoint (part 2, 2.8.1).
type Role bool

// Roles of link endpoints.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// Frame types (part 2, 2.3.1 and part 5, 5.3.1).
const (
	FrameAMQP byte = 0
	FrameSASL byte = 1
)

// Performative is one of the frame bodies: *Open, *Begin, *Attach, *Flow, *Transfer, *Disposition, *Detach,
// *End, *Close, *SASLMechanisms, *SASLInit, *SASLOutcome and the SASL challenge and response. Optional fields
// are pointers; nil is null on the wire. All fields are always written, null if unset, in list8 or list32,
// because the Python SDK reads them by position.
type Performative interface{ descriptor() uint64 }

// Open is part 2, 2.7.1.
type Open struct {
	ContainerID         string
	Hostname            *string
	MaxFrameSize        *uint32
	ChannelMax          *uint16
	IdleTimeOut         *uint32 // milliseconds
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Begin is part 2, 2.7.2.
type Begin struct {
	RemoteChannel       *uint16
	NextOutgoingID      uint32
	IncomingWindow      uint32
	OutgoingWindow      uint32
	HandleMax           *uint32
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Attach is part 2, 2.7.3.
type Attach struct {
	Name                 string
	Handle               uint32
	Role                 Role
	SndSettleMode        *uint8
	RcvSettleMode        *uint8
	Source               *Source
	Target               *Target      // nil when Coordinator is set
	Coordinator          *Coordinator // part 4, 4.5.1
	Unsettled            any
	IncompleteUnsettled  bool
	InitialDeliveryCount *uint32
	MaxMessageSize       *uint64
	OfferedCapabilities  []Symbol
	DesiredCapabilities  []Symbol
	Properties           Map
}

// Source is part 3, 3.5.3. Fields that the gateway only echoes are kept as decoded values.
type Source struct {
	Address               any // string, or nil
	Durable               *uint32
	ExpiryPolicy          *Symbol
	Timeout               *uint32
	Dynamic               bool
	DynamicNodeProperties Map
	DistributionMode      *Symbol
	Filter                Map
	DefaultOutcome        any
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is part 3, 3.5.4.
type Target struct {
	Address               any // string, or nil
	Durable               *uint32
	ExpiryPolicy          *Symbol
	Timeout               *uint32
	Dynamic               bool
	DynamicNodeProperties Map
	Capabilities          []Symbol
}

// Coordinator is the target of a transaction controller's link (part 4, 4.5.1).
type Coordinator struct{ Capabilities []Symbol }

// Flow is part 2, 2.7.4. Link fields are nil on a session flow.
type Flow struct {
	NextIncomingID *uint32
	IncomingWindow uint32
	NextOutgoingID uint32
	OutgoingWindow uint32
	Handle         *uint32
	DeliveryCount  *uint32
	LinkCredit     *uint32
	Available      *uint32
	Drain          bool
	Echo           bool
	Properties     Map
}

// Transfer is part 2, 2.7.5. Payload follows the performative in the frame.
type Transfer struct {
	Handle        uint32
	DeliveryID    *uint32
	DeliveryTag   []byte
	MessageFormat *uint32
	Settled       *bool
	More          bool
	RcvSettleMode *uint8
	State         any
	Resume        bool
	Aborted       bool
	Batchable     bool
	Payload       []byte
}

// Disposition is part 2, 2.7.6.
type Disposition struct {
	Role      Role
	First     uint32
	Last      *uint32
	Settled   bool
	State     any // *Accepted, *Rejected, *Released, *Modified, *Received, *Declared, *TransactionalState or nil
	Batchable bool
}

// Detach is part 2, 2.7.7.
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// End is part 2, 2.7.8.
type End struct{ Error *Error }

// Close is part 2, 2.7.9.
type Close struct{ Error *Error }

// Error is part 2, 2.8.14. It is always written with three elements.
type Error struct {
	Condition   Symbol
	Description string
	Info        Map
}

// Delivery states (part 3, 3.4 and part 4, 4.5).
type (
	// Received is part 3, 3.4.1.
	Received struct {
		SectionNumber uint32
		SectionOffset uint64
	}
	// Accepted is part 3, 3.4.2.
	Accepted struct{}
	// Rejected is part 3, 3.4.3.
	Rejected struct{ Error *Error }
	// Released is part 3, 3.4.4.
	Released struct{}
	// Modified is part 3, 3.4.5.
	Modified struct {
		DeliveryFailed     *bool
		UndeliverableHere  *bool
		MessageAnnotations Map
	}
	// Declared is part 4, 4.5.4.
	Declared struct{ TxnID []byte }
	// TransactionalState is part 4, 4.5.5.
	TransactionalState struct {
		TxnID   []byte
		Outcome any
	}
)

// Commands to a coordinator, which are sent as the values of messages (part 4, 4.5).
type (
	// Declare is part 4, 4.5.2.
	Declare struct{ GlobalID any }
	// Discharge is part 4, 4.5.3.
	Discharge struct {
		TxnID []byte
		Fail  bool
	}
)

// SASLMechanisms is part 5, 5.3.3.1.
type SASLMechanisms struct{ Mechanisms []Symbol }

// SASLInit is part 5, 5.3.3.2.
type SASLInit struct {
	Mechanism       Symbol
	InitialResponse []byte
	Hostname        *string
}

// SASLOutcome is part 5, 5.3.3.6. Code 0 is ok, 1 is an authentication failure.
type SASLOutcome struct {
	Code           uint8
	AdditionalData []byte
}

// Header is part 3, 3.2.1.
type Header struct {
	Durable       *bool
	Priority      *uint8
	TTL           *uint32 // milliseconds
	FirstAcquirer *bool
	DeliveryCount uint32
}

// Properties is part 3, 3.2.4. Ids keep the AMQP type in which they were received.
type Properties struct {
	MessageID          any // string, uint64, UUID, []byte or nil
	UserID             []byte
	To                 any
	Subject            *string
	ReplyTo            any
	CorrelationID      any
	ContentType        *Symbol
	ContentEncoding    *Symbol
	AbsoluteExpiryTime *time.Time
	CreationTime       *time.Time
	GroupID            *string
	GroupSequence      *uint32
	ReplyToGroupID     *string
}
