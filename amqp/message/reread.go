package message

import (
	"cmp"
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Reread converts a stored message that is forwarded to the message that is sent to its destination: the
// unchanged payload, and ID, TimeToLive and Properties as payload and patches determine them together. The
// patches are not part of the payload: the caller must send them with the message. EnqueueAt is not set.
// Changes may have made the Properties larger than the state machine accepts; a queue as destination does not
// need them. An error means that the bytes are damaged. Reread may be called from any goroutine.
func Reread(payload, patches []byte) (fsm.Message, error) {
	v, err := openPayload(payload)
	if err != nil {
		return fsm.Message{}, fmt.Errorf("reread message: %w", err)
	}
	changed, err := v.patch(patches)
	if err != nil {
		return fsm.Message{}, fmt.Errorf("reread message: %w", err)
	}
	p := parsedMessage{ttl: v.ttl}
	if err := p.readStoredProperties(v.properties); err != nil {
		return fsm.Message{}, fmt.Errorf("reread message: %w", err)
	}
	properties, err := new(RuleReader).encode(&v, changed.shownSource())
	if err != nil {
		return fsm.Message{}, fmt.Errorf("reread message: %w", err)
	}
	return fsm.Message{
		ID: p.id, Payload: payload, TimeToLive: cmp.Or(changed.life, p.timeToLive()), Properties: properties,
		Session: p.session, HasSession: p.hasSession, PartitionKey: v.partitionKey(),
	}, nil
}

// partitionKey returns the annotation of that name, which was checked when the message was sent; "" if there
// is none.
func (v *payloadView) partitionKey() string {
	pairs := wire.IterPairs(v.annotations)
	for {
		key, value, ok := pairs.Next()
		if !ok {
			return ""
		}
		if name, _ := wire.TextOf(key); string(name) == partitionKeyKey {
			text, _ := wire.TextOf(value)
			return string(text)
		}
	}
}

// readStoredProperties reads the id and times from a properties section that was checked when the message was
// sent.
func (p *parsedMessage) readStoredProperties(section []byte) error {
	if len(section) == 0 {
		return nil
	}
	fields, err := wire.IterList(section[sectionDescriptorBytes:])
	if err != nil {
		return fmt.Errorf("properties: %w", err)
	}
	for i := 0; i <= groupIDField; i++ {
		field, ok := fields.Next()
		if !ok {
			break
		}
		if wire.IsNull(field) {
			continue
		}
		if err := p.keepField(i, field); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	return fields.Err()
}
