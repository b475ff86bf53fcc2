package wire

import (
	"fmt"
	"math"
)

// composite is a composite value (part 1, 1.4) that a table describes: pointers to its fields in the order of the
// standard. The type of a pointer determines how the field is read and written; a pointer to a pointer is a field
// that may be null. The wrapper types below express what a type cannot. appendTable and into follow the table.
//
// Flow, transfer and disposition, which make up the traffic of a connection, have no table, because encoding by a
// table takes two to three times as long. The sections of a message have none either, because a table is allocated.
type composite interface {
	descriptor() uint64
	table() []any
}

type (
	// mandatory is a field that must not be null.
	mandatory struct {
		name  string
		field any // *uint8, *uint32, *uint64, *string, *Symbol
	}
	// filled is a binary or an array of symbols that is written even when empty; other empty ones are written
	// as null.
	filled struct{ field any }
	// either is a field that holds a target or a coordinator.
	either struct {
		target      **Target
		coordinator **Coordinator
	}
)

func (p *Open) table() []any {
	return []any{ // the container-id is mandatory, but the broker accepts messages without it because it does not use it
		&p.ContainerID, &p.Hostname, &p.MaxFrameSize, &p.ChannelMax, &p.IdleTimeOut, &p.OutgoingLocales, &p.IncomingLocales,
		&p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (p *Begin) table() []any {
	return []any{
		&p.RemoteChannel,
		mandatory{"next-outgoing-id", &p.NextOutgoingID},
		mandatory{"incoming-window", &p.IncomingWindow},
		mandatory{"outgoing-window", &p.OutgoingWindow},
		&p.HandleMax, &p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (p *Attach) table() []any {
	return []any{
		mandatory{"name", &p.Name},
		mandatory{"handle", &p.Handle},
		&p.Role, &p.SndSettleMode, &p.RcvSettleMode, &p.Source,
		either{&p.Target, &p.Coordinator},
		&p.Unsettled, &p.IncompleteUnsettled, &p.InitialDeliveryCount, &p.MaxMessageSize,
		&p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (s *Source) table() []any {
	return []any{
		&s.Address, &s.Durable, &s.ExpiryPolicy, &s.Timeout, &s.Dynamic, &s.DynamicNodeProperties, &s.DistributionMode, &s.Filter,
		&s.DefaultOutcome, &s.Outcomes, &s.Capabilities,
	}
}

func (t *Target) table() []any {
	return []any{&t.Address, &t.Durable, &t.ExpiryPolicy, &t.Timeout, &t.Dynamic, &t.DynamicNodeProperties, &t.Capabilities}
}

func (c *Coordinator) table() []any { return []any{&c.Capabilities} }

func (p *Detach) table() []any { return []any{mandatory{"handle", &p.Handle}, &p.Closed, &p.Error} }
func (p *End) table() []any    { return []any{&p.Error} }
func (p *Close) table() []any  { return []any{&p.Error} }

// All three fields are always written, because the Python SDK reads them by position (part 2, 2.8.14).
func (e *Error) table() []any { return []any{&e.Condition, &e.Description, &e.Info} }

func (s *Received) table() []any {
	return []any{mandatory{"section-number", &s.SectionNumber}, mandatory{"section-offset", &s.SectionOffset}}
}
func (*Accepted) table() []any   { return nil }
func (s *Rejected) table() []any { return []any{&s.Error} }
func (*Released) table() []any   { return nil }
func (s *Modified) table() []any {
	return []any{&s.DeliveryFailed, &s.UndeliverableHere, &s.MessageAnnotations}
}
func (s *Declared) table() []any           { return []any{filled{&s.TxnID}} }
func (s *TransactionalState) table() []any { return []any{filled{&s.TxnID}, &s.Outcome} }
func (c *Declare) table() []any            { return []any{&c.GlobalID} }
func (c *Discharge) table() []any          { return []any{filled{&c.TxnID}, &c.Fail} }

func (p *SASLMechanisms) table() []any { return []any{filled{&p.Mechanisms}} }
func (p *SASLInit) table() []any {
	return []any{mandatory{"mechanism", &p.Mechanism}, &p.InitialResponse, &p.Hostname}
}
func (p *SASLChallenge) table() []any { return []any{filled{&p.Challenge}} }
func (p *SASLResponse) table() []any  { return []any{filled{&p.Response}} }
func (p *SASLOutcome) table() []any   { return []any{mandatory{"code", &p.Code}, &p.AdditionalData} }

func (*Open) descriptor() uint64               { return descOpen }
func (*Begin) descriptor() uint64              { return descBegin }
func (*Attach) descriptor() uint64             { return descAttach }
func (*Flow) descriptor() uint64               { return descFlow }
func (*Transfer) descriptor() uint64           { return descTransfer }
func (*Disposition) descriptor() uint64        { return descDisposition }
func (*Detach) descriptor() uint64             { return descDetach }
func (*End) descriptor() uint64                { return descEnd }
func (*Close) descriptor() uint64              { return descClose }
func (*Error) descriptor() uint64              { return descError }
func (*Received) descriptor() uint64           { return descReceived }
func (*Accepted) descriptor() uint64           { return descAccepted }
func (*Rejected) descriptor() uint64           { return descRejected }
func (*Released) descriptor() uint64           { return descReleased }
func (*Modified) descriptor() uint64           { return descModified }
func (*Source) descriptor() uint64             { return descSource }
func (*Target) descriptor() uint64             { return descTarget }
func (*Coordinator) descriptor() uint64        { return descCoordinator }
func (*Declare) descriptor() uint64            { return descDeclare }
func (*Discharge) descriptor() uint64          { return descDischarge }
func (*Declared) descriptor() uint64           { return descDeclared }
func (*TransactionalState) descriptor() uint64 { return descTransactional }
func (*SASLMechanisms) descriptor() uint64     { return descSASLMechanisms }
func (*SASLInit) descriptor() uint64           { return descSASLInit }
func (*SASLChallenge) descriptor() uint64      { return descSASLChallenge }
func (*SASLResponse) descriptor() uint64       { return descSASLResponse }
func (*SASLOutcome) descriptor() uint64        { return descSASLOutcome }

// appendTable appends a composite value with all its fields, including trailing nulls, because the Python SDK
// reads them by position. Nothing of the table escapes to the heap.
func appendTable(dst []byte, desc uint64, table []any) []byte {
	dst, mark := openComposite(dst, byte(desc))
	for _, field := range table {
		dst = appendField(dst, field)
	}
	return closeCompound(dst, mark, len(table))
}

// appendField appends a field of a table.
func appendField(dst []byte, field any) []byte {
	switch v := field.(type) {
	case mandatory:
		return appendField(dst, v.field)
	case *bool:
		return appendBool(dst, *v)
	case **bool:
		return appendBoolPointer(dst, *v)
	case *Role:
		return appendBool(dst, bool(*v))
	case *uint8:
		return append(dst, codeUbyte, *v)
	case **uint8:
		return appendUint8Pointer(dst, *v)
	case **uint16:
		return appendOptional(dst, *v, appendUshort)
	case *uint32:
		return appendUint(dst, *v)
	case **uint32:
		return appendUint32Pointer(dst, *v)
	case *uint64:
		return appendUlong(dst, *v)
	case **uint64:
		return appendOptional(dst, *v, appendUlong)
	case *string:
		return AppendString(dst, *v)
	case **string:
		return appendOptional(dst, *v, AppendString[string])
	case *Symbol:
		return AppendSymbol(dst, *v)
	case **Symbol:
		return appendOptional(dst, *v, AppendSymbol[Symbol])
	case *[]byte:
		return appendBinaryOrNull(dst, *v)
	case *[]Symbol:
		return appendMultiple(dst, *v)
	case *Map:
		return AppendMap(dst, *v)
	case *any:
		return AppendValue(dst, *v)
	}
	return appendWrapped(dst, field)
}

// appendWrapped continues appendField for the rarer fields.
func appendWrapped(dst []byte, field any) []byte {
	switch v := field.(type) {
	case filled:
		switch v := v.field.(type) {
		case *[]byte:
			return AppendBinary(dst, *v)
		case *[]Symbol:
			return appendArray(dst, Array{Values: *v})
		}
	case **Error:
		if *v != nil {
			return appendTable(dst, (*v).descriptor(), (*v).table())
		}
	case **Source:
		if *v != nil {
			return appendTable(dst, (*v).descriptor(), (*v).table())
		}
	case either:
		if *v.coordinator != nil {
			return appendTable(dst, (*v.coordinator).descriptor(), (*v.coordinator).table())
		}
		if *v.target != nil {
			return appendTable(dst, (*v.target).descriptor(), (*v.target).table())
		}
	}
	return append(dst, codeNull)
}

// into decodes the fields of a composite value and checks that no bytes are left.
func (f *fields) into(c composite) error {
	for _, field := range c.table() {
		f.decode(field)
	}
	return f.end()
}

// decode decodes a field of a table.
func (f *fields) decode(field any) {
	switch v := field.(type) {
	case *bool:
		*v = f.bool()
	case **bool:
		*v = f.boolPointer()
	case *Role:
		*v = f.role()
	case **uint8:
		*v = optionalNumber[uint8](f)
	case **uint16:
		*v = optionalNumber[uint16](f)
	case **uint32:
		*v = optionalNumber[uint32](f)
	case **uint64:
		*v = optionalNumber[uint64](f)
	case *string:
		text, _ := f.text()
		*v = string(text)
	case **string:
		*v = optionalText[string](f)
	case *Symbol:
		text, _ := f.text()
		*v = Symbol(text)
	case **Symbol:
		*v = optionalText[Symbol](f)
	case *[]byte:
		*v = f.binary()
	case *[]Symbol:
		*v = f.multiple()
	case *Map:
		*v = f.mapping()
	case *any:
		*v = f.value()
	default:
		f.decodeWrapped(field)
	}
}

// decodeWrapped continues decode for the rarer fields.
func (f *fields) decodeWrapped(field any) {
	switch v := field.(type) {
	case mandatory:
		f.decodeMandatory(v)
	case filled:
		f.decode(v.field)
	case **Error:
		e := &Error{}
		if f.composite(descError, e, nil) != descUnknown {
			*v = e
		}
	case **Source:
		s := &Source{}
		if f.composite(descSource, s, nil) != descUnknown {
			*v = s
		}
	case either:
		t, c := &Target{}, &Coordinator{}
		switch f.composite(descTarget, t, c) {
		case descTarget:
			*v.target = t
		case descCoordinator:
			*v.coordinator = c
		}
	}
}

func (f *fields) decodeMandatory(m mandatory) {
	ok := false
	var n uint64
	var text []byte
	switch v := m.field.(type) {
	case *uint8:
		n, ok = f.uint(math.MaxUint8)
		*v = uint8(n)
	case *uint32:
		n, ok = f.uint(math.MaxUint32)
		*v = uint32(n)
	case *uint64:
		*v, ok = f.uint(math.MaxUint64)
	case *string:
		text, ok = f.text()
		*v = string(text)
	case *Symbol:
		text, ok = f.text()
		*v = Symbol(text)
	}
	if !ok {
		f.fail(fmt.Errorf("%s is mandatory", m.name))
	}
}

// newPerformative returns an empty performative of a type that has a table, nil for every other descriptor.
func newPerformative(desc uint64) composite {
	switch desc {
	case descOpen:
		return &Open{}
	case descBegin:
		return &Begin{}
	case descAttach:
		return &Attach{}
	case descDetach:
		return &Detach{}
	case descEnd:
		return &End{}
	case descClose:
		return &Close{}
	case descSASLMechanisms:
		return &SASLMechanisms{}
	case descSASLInit:
		return &SASLInit{}
	case descSASLChallenge:
		return &SASLChallenge{}
	case descSASLResponse:
		return &SASLResponse{}
	case descSASLOutcome:
		return &SASLOutcome{}
	}
	return nil
}

// newState returns an empty delivery state, or an empty command to a coordinator, which is encoded as a value
// too; nil for every other descriptor.
func newState(desc uint64) composite {
	switch desc {
	case descReceived:
		return &Received{}
	case descAccepted:
		return &Accepted{}
	case descRejected:
		return &Rejected{}
	case descReleased:
		return &Released{}
	case descModified:
		return &Modified{}
	case descDeclared:
		return &Declared{}
	case descTransactional:
		return &TransactionalState{}
	case descDeclare:
		return &Declare{}
	case descDischarge:
		return &Discharge{}
	}
	return nil
}
