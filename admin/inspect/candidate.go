package inspect

import (
	"bytes"
	"fmt"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/fsm/filter"
)

// candidate is the message that filters evaluate: what rules see of a message, and what has happened to it since it was
// enqueued. It is reused for message after message.
type candidate struct {
	evaluate.Message

	at     *fsm.EntityRef
	d      *fsm.Delivery
	reader message.RuleReader
}

func (c *candidate) begin(at *fsm.EntityRef, d *fsm.Delivery) error {
	properties, err := c.reader.ReadDelivery(d)
	if err != nil {
		return fmt.Errorf("message %d: %w", d.Lock.Sequence, err)
	}
	a := evaluate.Arrival{Number: d.Lock.Sequence, Enqueued: d.Enqueued, Life: fsm.Forever, Size: len(d.Payload)}
	if d.Expires != 0 {
		a.Life = fsm.Millis(d.Expires - d.Enqueued)
	}
	c.at, c.d = at, d
	c.Begin(a, properties)
	return nil
}

func (c *candidate) end() {
	c.End()
	c.at, c.d = nil, nil
}

// System implements filter.Message.
func (c *candidate) System(name string) filter.Value {
	switch name {
	case filter.State:
		switch stateOf(c.d) {
		case api.StateDeferred:
			return filter.Text("Deferred")
		case api.StateScheduled:
			return filter.Text("Scheduled")
		}
		return filter.Text("Active")
	case filter.DeliveryCount:
		return filter.Int(int64(c.d.FailedDeliveries))
	case filter.EnqueuedSequenceNumber:
		return c.enqueuedNumber()
	case filter.DeadLetterSource:
		if v := c.Message.System(name); v.Kind() != filter.KindNull || c.at.Sub == fsm.MainQueue {
			return v
		}
		return filter.Text(deadLetterSource(c.at))
	}
	return c.Message.System(name)
}

// enqueuedNumber returns the number that the message had where it was sent.
func (c *candidate) enqueuedNumber() filter.Value {
	number := int64(c.d.Lock.Sequence)
	if encoded, err := encodePeeked(c.at, c.d); err == nil {
		if pairs, err := annotations(encoded); err == nil {
			if n, ok := pairs.Get(message.EnqueueSequenceNumberKey).(int64); ok {
				number = n
			}
		}
	}
	return filter.Int(number)
}

// annotations returns the message annotations of an encoded message.
func annotations(encoded []byte) (wire.Map, error) {
	for len(encoded) > 0 {
		kind, value, _, rest, err := wire.NextSection(encoded)
		if err != nil {
			return nil, err
		}
		if kind == wire.SectionMessageAnnotations {
			return wire.DecodeMap(value)
		}
		encoded = rest
	}
	return nil, nil
}

// bodyMatches reports whether the body contains a text, and whether it is JSON that has a path.
func (c *candidate) bodyMatches(contains []byte, path *jsonPath) (bool, error) {
	sections, err := message.Body(c.d.Payload)
	if err != nil {
		return false, fmt.Errorf("message %d: %w", c.d.Lock.Sequence, err)
	}
	found := len(contains) == 0
	var document []byte
	for len(sections) > 0 {
		kind, value, _, rest, err := wire.NextSection(sections)
		if err != nil {
			return false, fmt.Errorf("message %d: %w", c.d.Lock.Sequence, err)
		}
		sections = rest
		content := value
		if data, ok := wire.BinaryOf(value); ok {
			content = data
		} else if text, ok := wire.StringOf(value); ok {
			content = text
		}
		switch kind { //nolint:exhaustive // the others are no body
		case wire.SectionData:
			document = append(document[:len(document):len(document)], content...)
		case wire.SectionValue:
			document = content
		case wire.SectionSequence:
		default: // the footer
			continue
		}
		found = found || bytes.Contains(content, contains)
	}
	found = found || bytes.Contains(document, contains) // across the border of two data sections
	return found && (path == nil || path.matches(document)), nil
}
