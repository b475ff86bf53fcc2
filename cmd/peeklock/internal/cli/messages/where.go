package messages

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/fsm/filter"
)

// whereFlag parses --where while the flags are parsed, so that an invalid expression is a usage error.
type whereFlag struct{ to **filter.Expr }

// Set implements pflag.Value.
func (f whereFlag) Set(text string) (err error) {
	*f.to, err = filter.Parse(text, nil)
	return err
}

// String returns the expression in its canonical form.
func (f whereFlag) String() string {
	if f.to == nil || *f.to == nil {
		return ""
	}
	return (*f.to).String()
}

// Type implements pflag.Value.
func (whereFlag) Type() string { return "expression" }

// matchesWhere reports whether a message matches; without an expression every message does. An expression that
// fails for one message, for example because it divides by zero, fails the command: leaving the message out would
// hide the error. deadLettersOf is the entity whose dead-letter queue has the message, "" for none.
func matchesWhere(where *filter.Expr, m *amqp.Message, s *ShownMessage, deadLettersOf string) (bool, error) {
	if where == nil {
		return true, nil
	}
	truth, err := where.Match(Peeked{m, s, strings.ToLower(deadLettersOf)})
	if err != nil {
		return false, fmt.Errorf("--where for message %d: %w", s.Sequence, err)
	}
	return truth == filter.True, nil
}

// NewPeeked combines a message and its printed form into a message that filters evaluate.
func NewPeeked(m *amqp.Message, s *ShownMessage) Peeked { return Peeked{m, s, ""} }

// Peeked is a peeked message in the form that filters evaluate.
type Peeked struct {
	m     *amqp.Message
	shown *ShownMessage
	// deadLettersOf is the entity whose dead-letter queue has the message, in lower case; "" for none.
	deadLettersOf string
}

// System returns a property of Service Bus if a peeked message has it.
func (p Peeked) System(name string) filter.Value {
	switch name {
	case filter.SequenceNumber:
		return filter.Int(p.shown.Sequence)
	case filter.DeliveryCount:
		return filter.Int(int64(p.shown.DeliveryCount))
	case filter.EnqueuedTimeUTC:
		return timeValue(p.shown.Enqueued)
	case filter.ExpiresAtUTC:
		return timeValue(p.shown.Expires)
	case filter.ScheduledEnqueueTimeUTC:
		return timeValue(p.shown.Scheduled)
	case filter.EnqueuedSequenceNumber:
		if first, ok := p.m.Annotations["x-opt-enqueue-sequence-number"]; ok {
			return valueOf(first)
		}
		return filter.Int(p.shown.Sequence) // it was sent to this queue
	case filter.PartitionKey:
		return valueOf(p.m.Annotations["x-opt-partition-key"])
	case filter.DeadLetterSource:
		if source, ok := p.m.Annotations["x-opt-deadletter-source"]; ok || p.deadLettersOf == "" {
			return valueOf(source)
		}
		return filter.Text(p.deadLettersOf)
	case filter.DeadLetterReason, filter.DeadLetterErrorDescription:
		v, _ := p.User(filter.Fold(name))
		return v
	case filter.State:
		state := cmp.Or(p.shown.State, stateActive)
		return filter.Text(strings.ToUpper(state[:1]) + state[1:])
	case filter.TimeToLive:
		if h := p.m.Header; h != nil && h.TTL > 0 {
			return filter.Span(int64(h.TTL / (100 * time.Nanosecond)))
		}
	case filter.ForcePersistence, filter.IsBodyConsumed:
		return filter.Bool(false)
	}
	return p.property(name)
}

// property returns a property of the properties section of AMQP.
func (p Peeked) property(name string) filter.Value {
	properties := p.m.Properties
	if properties == nil {
		properties = &amqp.MessageProperties{}
	}
	switch name {
	case filter.MessageID:
		return valueOf(properties.MessageID)
	case filter.CorrelationID:
		return valueOf(properties.CorrelationID)
	case filter.Label:
		return optional(properties.Subject)
	case filter.ContentType:
		return optional(properties.ContentType)
	case filter.ReplyTo:
		return optional(properties.ReplyTo)
	case filter.To:
		return optional(properties.To)
	case filter.SessionID:
		return optional(properties.GroupID)
	case filter.ReplyToSessionID:
		return optional(properties.ReplyToGroupID)
	}
	return filter.Value{}
}

// User finds an application property by its folded name. If several differ only in case, User returns the
// alphabetically first, so that the result is always the same.
func (p Peeked) User(folded string) (filter.Value, bool) {
	found := ""
	for name := range p.m.ApplicationProperties {
		if filter.Fold(name) == folded && (found == "" || name < found) {
			found = name
		}
	}
	v, ok := p.m.ApplicationProperties[found]
	return valueOf(v), ok && filter.Fold(found) == folded
}

// NewID returns the ids for newid(). They are of no use in --where, but the language has the function.
func (p Peeked) NewID(call int) filter.GUID {
	return filter.DeriveID(uint64(p.shown.Sequence), 0, call)
}

func timeValue(t *time.Time) filter.Value {
	if t == nil {
		return filter.Value{}
	}
	return filter.Time(t.UnixMilli())
}

func optional(s *string) filter.Value {
	if s == nil {
		return filter.Value{}
	}
	return filter.Text(*s)
}

// valueOf converts a value from the wire into a value of the language, and types that the language lacks into
// NULL.
func valueOf(v any) filter.Value {
	switch v := v.(type) {
	case bool:
		return filter.Bool(v)
	case string:
		return filter.Text(v)
	case []byte:
		return filter.Binary(v)
	case float32:
		return filter.Double(float64(v))
	case float64:
		return filter.Double(v)
	case time.Time:
		return filter.Time(v.UnixMilli())
	case amqp.UUID:
		return filter.ID(filter.GUID(v))
	}
	return integerOf(v)
}

func integerOf(v any) filter.Value {
	switch v := v.(type) {
	case int8:
		return filter.Int(int64(v))
	case int16:
		return filter.Int(int64(v))
	case int32:
		return filter.Int(int64(v))
	case int64:
		return filter.Int(v)
	case uint8:
		return filter.Int(int64(v))
	case uint16:
		return filter.Int(int64(v))
	case uint32:
		return filter.Int(int64(v))
	case uint64:
		return filter.Uint(v)
	}
	return filter.Value{}
}

// wireValue converts a value to the type that go-amqp sends.
func wireValue(v filter.Value) any {
	switch v.Kind() {
	case filter.KindNull:
	case filter.KindBool:
		return v.AsBool()
	case filter.KindInt:
		return v.AsInt()
	case filter.KindDouble:
		return v.AsDouble()
	case filter.KindText:
		return v.AsText()
	case filter.KindTime:
		return time.UnixMilli(v.AsInt()).UTC()
	case filter.KindGUID:
		return amqp.UUID([]byte(v.AsText()))
	case filter.KindBinary:
		return []byte(v.AsText())
	case filter.KindSpan: // refused by the caller: the client library cannot send it
	}
	return nil
}
