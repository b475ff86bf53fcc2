package fsm

import "strconv"

// Instant is a moment in milliseconds since the Unix epoch, UTC. Zero means "none".
type Instant int64

// Millis is a length of time in milliseconds.
type Millis int64

// Forever is the length of time that never ends: the cloud's TimeSpan.MaxValue.
const Forever Millis = 922337203685477

// After returns the moment d after t; Forever saturates instead of overflowing.
func (t Instant) After(d Millis) Instant {
	if d >= Forever-Millis(t) {
		return Instant(Forever)
	}
	return t + Instant(d)
}

// SequenceNumber orders the messages of one entity. It starts at 1, rises without
// gaps at enqueue and is never reused; 0 means "not yet assigned".
type SequenceNumber uint64

// EntityID names an entity for ever: the catalog draws it at creation and never
// reuses it, so that a queue deleted and made again under its old name is another.
type EntityID uint64

// PartitionID names a raft group. Partition 0 is the catalog.
type PartitionID uint32

// CatalogPartition is the raft group of the catalog machine.
const CatalogPartition PartitionID = 0

// SubQueue names one of the queues that share an entity.
type SubQueue uint8

// The sub-queues. The numbers are part of the log format.
const (
	MainQueue       SubQueue = 0
	DeadLetterQueue SubQueue = 1
	// TransferDeadLetterQueue holds what could not be forwarded.
	TransferDeadLetterQueue SubQueue = 2
)

// EntityKind says what an entity is.
type EntityKind uint8

// The kinds of entities. The numbers are part of the log format.
const (
	QueueEntity        EntityKind = 0
	TopicEntity        EntityKind = 1 // takes messages and gives each to the subscriptions whose rules match
	SubscriptionEntity EntityKind = 2 // a queue that is filled by its topic
)

// String is the kind as people call it.
func (k EntityKind) String() string {
	switch k {
	case QueueEntity:
		return "queue"
	case TopicEntity:
		return "topic"
	case SubscriptionEntity:
		return "subscription"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Address is a sub-queue of an entity: what a link is attached to.
type Address struct {
	Entity EntityID `json:"Entity"`
	Sub    SubQueue `json:"Sub"`
}

// LockID names one grant of a peek-lock within an address. Epoch counts the grants
// of a message, so a LockID is never granted twice.
type LockID struct {
	Sequence SequenceNumber
	Epoch    uint32
}

// LockToken is a LockID sealed for the outside: 16 bytes that cannot be guessed. On
// the wire it is the delivery-tag (AMQP 1.0 part 2, section 2.6.12) and the GUID
// that clients settle by through the management node.
type LockToken [16]byte

// String is the status as Service Bus spells it.
func (s EntityStatus) String() string {
	switch s {
	case Active:
		return "Active"
	case Disabled:
		return "Disabled"
	case SendDisabled:
		return "SendDisabled"
	case ReceiveDisabled:
		return "ReceiveDisabled"
	}
	return "status " + strconv.Itoa(int(s))
}

func (s EntityStatus) allowsSend() bool    { return s == Active || s == ReceiveDisabled }
func (s EntityStatus) allowsReceive() bool { return s == Active || s == SendDisabled }

// MessageState is where a message stands within its sub-queue.
type MessageState uint8

// The states. The numbers are part of the log format. Ready and Locked are both
// "active" to a client.
const (
	Ready    MessageState = 1
	Locked   MessageState = 2
	Deferred MessageState = 3
	Deleting MessageState = 4 // given in receive-and-delete, kept until its answer is known to have arrived
	// Scheduled messages wait for their time: not sent before it (Message.EnqueueAt), or
	// given back and delayed (Settlement.Until, EntitySettings.RetryDelay).
	Scheduled MessageState = 5
	// Shared is the record of a topic for a message that subscriptions hold copies of: it
	// has the body, and counts the copies. Never seen outside.
	Shared MessageState = 6
	// Forwarding messages are in the batch that is being forwarded (ForwardMessages).
	Forwarding MessageState = 7
	// Pending messages of a topic were accepted, and wait until the rules are asked: the entry
	// that they came with had no steps left. Never seen outside. From Level 2 on.
	Pending MessageState = 8
)

// Verb is one way to settle a lock.
type Verb uint8

// The verbs. The numbers are part of the log format.
const (
	Complete   Verb = 1 // the message is done and goes
	Abandon    Verb = 2 // back to its place at the front; counts as an attempt
	Defer      Verb = 3 // set aside, fetched by sequence number
	DeadLetter Verb = 4 // moved to the dead-letter queue of its entity
	Release    Verb = 5 // back to its place at the front; does not count as an attempt
)

// Code says why a request was refused. The list is closed and append-only: the
// numbers are part of the log format and of the frames between members. The
// gateways turn a Code into an AMQP condition or an HTTP status, each in one table.
type Code uint8

// The codes.
const (
	OK                Code = 0
	EntityNotFound    Code = 1
	EntityExists      Code = 2
	MessageLockLost   Code = 3
	MessageNotFound   Code = 4
	MessageTooLarge   Code = 5
	QuotaExceeded     Code = 6
	InvalidArgument   Code = 7
	NotAllowed        Code = 8
	Unauthorized      Code = 9
	ServerBusy        Code = 10 // retry later: no leader, overload, starting
	Timeout           Code = 11
	Stale             Code = 12 // an answer that its asker has already acknowledged
	Internal          Code = 13
	NotImplemented    Code = 14
	PreconditionFails Code = 15
	EntityDisabled    Code = 16 // its status does not allow this; an operator can change that
	RuleNotFound      Code = 17
	RuleExists        Code = 18

	SessionLockLost       Code = 19
	SessionCannotBeLocked Code = 20 // somebody else holds it
)

// EntityStatus is what an operator allows with an entity. The numbers are part of the
// log format. Settling and renewing locks that are held goes on whatever the status is.
type EntityStatus uint8

// The statuses.
const (
	Active          EntityStatus = 0
	Disabled        EntityStatus = 1 // neither sends nor receives
	SendDisabled    EntityStatus = 2 // receives only
	ReceiveDisabled EntityStatus = 3 // sends only
)

// Rights are what a key or token allows. They combine by or.
type Rights uint8

// The rights. Manage includes the two others.
const (
	Send   Rights = 1
	Listen Rights = 2
	Manage Rights = 4 | Send | Listen
)

// Env is what an entry knows about its own place in the log.
type Env struct {
	Index uint64  // raft index; unique and rising within a partition
	Now   Instant // leader's clock at prepare, never lower than in the entry before
}

// Ref is where a body lies on this replica's disk. It is local: it takes no part in
// decisions, answers or digests. The zero Ref means "no body".
type Ref struct {
	Segment uint32
	Offset  uint32
	Size    uint32 // bytes of the body itself
}

// Bodies keeps message bodies outside the machine. Append buffers; partition writes
// what was appended once per applied batch and only then answers. There is no error
// result on purpose: a replica that cannot read or write its own disk must stop, and
// partition sees to that.
type Bodies interface {
	// Append keeps a copy of body and says where. owner is stored beside it so that
	// compaction can ask whether the body is still referred to.
	Append(owner Owner, body []byte) Ref
	// Read returns the body at ref. Apply calls it only on slow paths.
	Read(ref Ref) []byte
	// Release says that ref will not be asked for again.
	Release(ref Ref)
}

// Owner names the message record that refers to a body.
type Owner struct {
	Address
	Sequence SequenceNumber
	Patch    bool // the body holds the patches of the message, not the message
}
