package jsonmessage

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"github.com/peeklock/peeklock/amqp/wire"
)

// ErrCut is the error for a message whose body was cut.
var ErrCut = errors.New("the message holds only the first part of its body")

// errBodies is the error for a message with more than one kind of body.
var errBodies = errors.New("give one of body, bodyBase64, data, value and sequence")

// Encode returns the encoded message.
func (m *Message) Encode() ([]byte, error) {
	if m.BodyCut {
		return nil, ErrCut
	}
	var b []byte
	if m.Durable != nil || m.Priority != nil || m.TimeToLive != nil || m.FirstAcquirer != nil {
		b = wire.AppendHeader(b, &wire.Header{Durable: m.Durable, Priority: m.Priority, TTL: m.TimeToLive, FirstAcquirer: m.FirstAcquirer})
	}
	b = appendPairs(b, wire.SectionDeliveryAnnotations, m.DeliveryAnnotations)
	b = appendPairs(b, wire.SectionMessageAnnotations, m.Annotations)
	if p := m.appendProperties(nil); !bytes.Equal(p, wire.AppendProperties(nil, &wire.Properties{})) {
		b = append(b, p...)
	}
	b = appendPairs(b, wire.SectionApplicationProperties, m.Properties)
	b, bodies := m.appendBody(b)
	if bodies > 1 {
		return nil, errBodies
	}
	return appendPairs(b, wire.SectionFooter, m.Footer), nil
}

func (m *Message) appendProperties(b []byte) []byte {
	return wire.AppendProperties(b, &wire.Properties{
		MessageID: goOf(m.MessageID), UserID: m.UserID, To: goOf(m.To), Subject: m.Subject, ReplyTo: goOf(m.ReplyTo),
		CorrelationID: goOf(m.CorrelationID), ContentType: (*wire.Symbol)(m.ContentType), ContentEncoding: (*wire.Symbol)(m.ContentEncoding),
		AbsoluteExpiryTime: m.AbsoluteExpiry, CreationTime: m.Created,
		GroupID: m.Session, GroupSequence: m.GroupSequence, ReplyToGroupID: m.ReplyToSession,
	})
}

// appendBody appends the sections of the body, and returns how many kinds of body the message has.
func (m *Message) appendBody(b []byte) (longer []byte, bodies int) {
	data := m.Data
	if len(m.Data) > 0 {
		bodies++
	}
	if m.Body != nil {
		bodies++
		data = [][]byte{[]byte(*m.Body)}
	}
	if m.BodyBase64 != nil {
		bodies++
		data = [][]byte{m.BodyBase64}
	}
	for _, section := range data {
		b = wire.AppendBinary(wire.AppendSectionDescriptor(b, wire.SectionData), section)
	}
	if m.Value != nil {
		bodies++
		b = wire.AppendValue(wire.AppendSectionDescriptor(b, wire.SectionValue), m.Value.Go)
	}
	if len(m.Sequence) > 0 {
		bodies++
	}
	for _, section := range m.Sequence {
		list := make([]any, len(section))
		for i := range section {
			list[i] = section[i].Go
		}
		b = wire.AppendValue(wire.AppendSectionDescriptor(b, wire.SectionSequence), list)
	}
	return b, bodies
}

func goOf(v *Value) any {
	if v == nil {
		return nil
	}
	return v.Go
}

// appendPairs appends a section of pairs, in the order of their keys; nothing if there are none. Keys are symbols, those of
// application properties strings.
func appendPairs(b []byte, kind wire.SectionKind, pairs map[string]Value) []byte {
	if len(pairs) == 0 {
		return b
	}
	m := make(wire.Map, 0, len(pairs))
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		p := wire.Pair{Key: wire.Symbol(key), Value: pairs[key].Go}
		if kind == wire.SectionApplicationProperties {
			p.Key = key
		}
		m = append(m, p)
	}
	return wire.AppendMap(wire.AppendSectionDescriptor(b, kind), m)
}
