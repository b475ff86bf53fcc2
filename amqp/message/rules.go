package message

import (
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// rulePropertiesBytesMax is the largest size that the state machine accepts for the properties that rules can
// refer to (in the form that fsm.AppendProperties writes). They can be slightly larger in that form than in
// the sections of a message.
const rulePropertiesBytesMax = 64 << 10

// RuleReader extracts the properties of messages for the rules of a topic. It reuses its buffer, so only one
// goroutine may use it. The zero value is ready.
type RuleReader struct{ list []fsm.Property }

// read encodes the properties of a stored message for fsm.Message.Properties. Errors are *Error.
func (r *RuleReader) read(payload []byte) ([]byte, error) {
	v, err := openPayload(payload)
	if err != nil {
		return nil, NewError(wire.ConditionInternalError, "%s", err)
	}
	encoded, err := r.encode(&v, "")
	switch {
	case err != nil:
		return nil, NewError(wire.ConditionDecodeError, "%s", err)
	case len(encoded) > rulePropertiesBytesMax:
		return nil, NewError(wire.ConditionMessageSizeExceeded, "what rules can ask about takes more than %d bytes", rulePropertiesBytesMax)
	}
	return encoded, nil
}

// ReadDelivery encodes the properties of a message as it is delivered, with its patches. Changes may have made them
// larger than the state machine accepts. An error means that the bytes are damaged.
func (r *RuleReader) ReadDelivery(d *fsm.Delivery) ([]byte, error) {
	v, err := openPayload(d.Payload)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	changed, err := v.patch(d.Patches)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return r.encode(&v, changed.shownSource())
}

// ReadAll sets the Properties of all messages that are sent together.
func (r *RuleReader) ReadAll(messages []fsm.Message) (err error) {
	for i := range messages {
		if messages[i].Properties, err = r.read(messages[i].Payload); err != nil {
			return err
		}
	}
	return nil
}

// encode encodes the sections and the annotations of a view. source is the entity from whose dead-letter queue
// the message was forwarded, if any.
func (r *RuleReader) encode(v *payloadView, source string) ([]byte, error) {
	r.list = r.list[:0]
	if source != "" {
		r.add(filter.System, filter.DeadLetterSource, filter.Text(source))
	}
	if err := r.properties(v.properties); err != nil {
		return nil, err
	}
	if err := r.annotations(v.annotations); err != nil {
		return nil, err
	}
	if err := r.application(v.application); err != nil {
		return nil, err
	}
	size := len(v.properties) + len(v.application) + 32*len(r.list)
	encoded := fsm.AppendProperties(make([]byte, 0, size), r.list)
	clear(r.list) // otherwise the list would keep the texts of this message in memory
	if cap(r.list) > ruleListKept {
		r.list = nil
	}
	return encoded, nil
}

// ruleListKept is the capacity up to which a list is kept for the next message.
const ruleListKept = 1024

func (r *RuleReader) add(scope filter.Scope, name string, v filter.Value) {
	r.list = append(r.list, fsm.Property{Name: filter.Property{Name: name, Scope: scope}, Value: v})
}

// properties reads the properties section. A field that is null is missing.
func (r *RuleReader) properties(section []byte) error {
	if len(section) == 0 {
		return nil
	}
	fields, err := wire.IterList(section[sectionDescriptorBytes:])
	if err != nil {
		return fmt.Errorf("properties: %w", err)
	}
	text := string(section)
	for i := 0; ; i++ {
		field, ok := fields.Next()
		if !ok {
			break
		}
		name, known := systemName(i)
		if !known || wire.IsNull(field) {
			continue
		}
		end := len(text) - fields.Rest()
		if v, ok := FilterValue(field, text[end-len(field):end]); ok {
			r.add(filter.System, name, idValue(v))
		}
	}
	if err := fields.Err(); err != nil {
		return fmt.Errorf("properties: %w", err)
	}
	return nil
}

// idValue returns an id as rules compare it: as text, regardless of its type.
func idValue(v filter.Value) filter.Value {
	switch v.Kind() { //nolint:exhaustive // fields have no other types
	case filter.KindInt, filter.KindDouble, filter.KindGUID:
		return filter.Text(v.String())
	}
	return v
}

// annotations reads the annotations that rules see as properties of a message.
func (r *RuleReader) annotations(pairs []byte) error {
	all := wire.IterPairs(pairs)
	for {
		key, value, ok := all.Next()
		if !ok {
			break
		}
		name, _ := wire.SymbolOf(key)
		var property string
		switch string(name) {
		case partitionKeyKey:
			property = filter.PartitionKey
		case viaPartitionKeyKey:
			property = filter.ViaPartitionKey
		case ScheduledEnqueueTimeKey:
			property = filter.ScheduledEnqueueTimeUTC
		default:
			continue
		}
		if v, ok := FilterValue(value, string(value)); ok {
			r.add(filter.System, property, v)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("annotations: %w", err)
	}
	return nil
}

// application reads the application properties. A null property is present; the reason and description of a
// dead letter are also system properties.
func (r *RuleReader) application(section []byte) error {
	if len(section) == 0 {
		return nil
	}
	pairs, err := wire.IterMap(section[sectionDescriptorBytes:])
	if err != nil {
		return fmt.Errorf("application properties: %w", err)
	}
	text := string(section)
	for {
		key, value, ok := pairs.Next()
		if !ok {
			break
		}
		end := len(text) - pairs.Rest()
		v, known := FilterValue(value, text[end-len(value):end])
		if !known {
			continue
		}
		keyEnd := end - len(value)
		letters, _ := wire.StringOf(key)
		name := text[keyEnd-len(letters) : keyEnd]
		r.add(filter.User, name, v)
		switch name {
		case deadLetterReasonKey:
			r.add(filter.System, filter.DeadLetterReason, v)
		case deadLetterDescriptionKey:
			r.add(filter.System, filter.DeadLetterErrorDescription, v)
		}
	}
	if err := pairs.Err(); err != nil {
		return fmt.Errorf("application properties: %w", err)
	}
	return nil
}
