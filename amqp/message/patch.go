package message

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Changes to a message after it was sent are stored beside it as patches: settlements that modify properties,
// dead-lettering, actions of rules, forwarding. They are applied to the sections each time the message is
// delivered or peeked; the payload never changes.

// changes reports the effects of the patches that are not in the sections themselves.
type changes struct {
	sections bool               // properties or application-properties were changed
	enqueued fsm.SequenceNumber // number where it was first sent; 0: not known
	source   string             // entity from whose dead-letter queue it was forwarded last, as stored; see shownSource
	life     fsm.Millis         // time to live that an action has set; 0 if none has
}

// shownSource returns the entity from whose dead-letter queue the message was forwarded as clients and rules see it: in lower
// case.
func (c changes) shownSource() string { return strings.ToLower(c.source) }

// patch applies the patches of a message to the sections of the view, in the order of their creation: later
// patches override earlier ones, and all override the values of the sender. bare does not change.
func (v *payloadView) patch(encoded []byte) (c changes, err error) {
	if len(encoded) == 0 {
		return c, nil
	}
	patches, err := fsm.DecodePatches(encoded)
	if err != nil {
		return c, fmt.Errorf("decode patches: %w", err)
	}
	var p messagePatcher
	for i := range patches {
		one := &patches[i]
		if one.Enqueued != 0 {
			c.enqueued = one.Enqueued
		}
		if one.Source != "" {
			c.source = one.Source
		}
		if err := p.apply(v, one); err != nil {
			return c, err
		}
	}
	c.life = p.life
	if p.opened {
		v.application = p.set.appendSection(nil)
		c.sections = true
	}
	if p.changed {
		if v.properties, err = replaceFields(v.properties, &p.fields); err != nil {
			return c, err
		}
		c.sections = true
	}
	return c, nil
}

// messagePatcher holds the sections of one message while patches are applied.
type messagePatcher struct {
	set     propertySet
	opened  bool                       // set holds the application properties
	fields  [propertyFieldCount][]byte // fields of the properties; nil: unchanged
	changed bool                       // at least one of fields is set
	life    fsm.Millis                 // see changes
}

// apply applies one patch.
func (p *messagePatcher) apply(v *payloadView, patch *fsm.Patch) error {
	if len(patch.Properties) > 0 || patch.DeadLetter {
		if err := p.open(v); err != nil {
			return err
		}
	}
	modified := wire.IterPairs(patch.Properties)
	if err := p.set.merge(&modified); err != nil {
		return err
	}
	for i := range patch.Changes {
		if err := p.change(v, &patch.Changes[i]); err != nil {
			return err
		}
	}
	if patch.DeadLetter && patch.Reason != "" {
		p.set.put(wire.AppendString(nil, deadLetterReasonKey), wire.AppendString(nil, patch.Reason))
	}
	if patch.DeadLetter && patch.Description != "" {
		p.set.put(wire.AppendString(nil, deadLetterDescriptionKey), wire.AppendString(nil, patch.Description))
	}
	return nil
}

// open reads the application properties of the sender on its first call.
func (p *messagePatcher) open(v *payloadView) error {
	if p.opened || len(v.application) == 0 {
		p.opened = true
		return nil
	}
	p.opened = true
	own, err := wire.IterMap(v.application[sectionDescriptorBytes:])
	if err != nil {
		return fmt.Errorf("%w: %w", errPayload, err)
	}
	return p.set.merge(&own)
}

// change applies one change of an action.
func (p *messagePatcher) change(v *payloadView, c *fsm.Change) error {
	name := c.Property.Name
	if c.Property.Scope == filter.System {
		return p.changeSystem(v, c)
	}
	if err := p.open(v); err != nil {
		return err
	}
	if c.Remove {
		p.set.change(name, nil)
		return nil
	}
	value := EncodeFilterValue(c.Value)
	if c.From != "" {
		kept := p.set.find(c.From)
		if v, ok := FilterValue(kept, string(kept)); ok && v == c.Value {
			value = kept
		}
	}
	if isDeadLetterKey(name) {
		value = nil // the Go client assumes that these two properties are strings
		if c.Value.Kind() != filter.KindNull {
			value = wire.AppendString(nil, validText(c.Value))
		}
	}
	p.set.change(name, value)
	return nil
}

// changeSystem changes a system property: a field of the properties, an annotation, or the time to live. It ignores others.
func (p *messagePatcher) changeSystem(v *payloadView, c *fsm.Change) error {
	if field := fieldOf(c.Property.Name); field >= 0 {
		p.changeField(field, c)
		return nil
	}
	none := c.Remove || c.Value.Kind() == filter.KindNull
	var value []byte // of an annotation
	switch c.Property.Name {
	case filter.TimeToLive:
		p.changeTimeToLive(v, c.Value, none)
		return nil
	case filter.ScheduledEnqueueTimeUTC:
		if !none {
			value = wire.AppendMillis(nil, c.Value.AsInt())
		}
		return v.changeAnnotation(ScheduledEnqueueTimeKey, value)
	case filter.PartitionKey, filter.ViaPartitionKey:
		if !none {
			value = wire.AppendString(nil, truncateCharacters(validText(c.Value), NameCharactersMax))
		}
		if c.Property.Name == filter.PartitionKey {
			return v.changeAnnotation(partitionKeyKey, value)
		}
		return v.changeAnnotation(viaPartitionKeyKey, value)
	}
	return nil
}

// changeTimeToLive changes the header's ttl, and the end of a message that has both times, which clients and parsedMessage
// believe before the header. A time that the header cannot hold is in changes.life and in the record only.
func (p *messagePatcher) changeTimeToLive(v *payloadView, life filter.Value, none bool) {
	v.flags &^= payloadHasTTL
	v.ttl, p.life = 0, 0
	created, expires, _ := v.times()
	if p.fields[expiryField] != nil || expires != nil {
		p.fields[expiryField], p.changed = wire.AppendValue(nil, nil), true
	}
	if none {
		return
	}
	p.life = min(fsm.Forever, fsm.Millis(life.Millis()))
	if p.life <= math.MaxUint32 {
		v.flags |= payloadHasTTL
		v.ttl = uint32(p.life)
	}
	if from, ok := wire.MillisOf(created); ok && expires != nil && p.life < fsm.Forever {
		p.fields[expiryField] = wire.AppendMillis(nil, from+int64(p.life))
	}
}

// changeAnnotation sets an annotation of the sender to an encoded value, or removes it if value is nil.
func (v *payloadView) changeAnnotation(name string, value []byte) error {
	var out []byte
	count := 0
	pairs := wire.IterPairs(v.annotations)
	for {
		key, old, ok := pairs.Next()
		if !ok {
			break
		}
		if text, _ := wire.TextOf(key); string(text) != name {
			out = append(append(out, key...), old...)
			count++
		}
	}
	if err := pairs.Err(); err != nil {
		return fmt.Errorf("%w: %w", errPayload, err)
	}
	if value != nil {
		out = append(wire.AppendSymbol(out, name), value...)
		count++
	}
	v.annotations, v.pairs = out, count
	return nil
}

// changeField changes a field of the properties. Clients read fields as text, ids have a maximum length, and
// the id cannot be removed, because no client could settle a message without one.
func (p *messagePatcher) changeField(field int, c *fsm.Change) {
	none := c.Remove || c.Value.Kind() == filter.KindNull
	if none && field == messageIDField {
		return
	}
	p.changed = true
	switch text := validText(c.Value); {
	case none:
		p.fields[field] = wire.AppendValue(nil, nil)
	case field == contentTypeField:
		p.fields[field] = wire.AppendSymbol(nil, text)
	case field == messageIDField || field == groupIDField:
		p.fields[field] = wire.AppendString(nil, truncateCharacters(text, NameCharactersMax))
	default:
		p.fields[field] = wire.AppendString(nil, text)
	}
}

// truncateCharacters returns the first characters of a text, as many as most allows.
func truncateCharacters(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := 0
	for range most {
		_, n := utf8.DecodeRuneInString(text[at:])
		if at += n; at == len(text) {
			break
		}
	}
	return text[:at]
}

// replaceFields encodes a properties section again with some fields changed.
func replaceFields(section []byte, changed *[propertyFieldCount][]byte) ([]byte, error) {
	var fields wire.ListIter
	if len(section) > 0 {
		var err error
		if fields, err = wire.IterList(section[sectionDescriptorBytes:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errPayload, err)
		}
	}
	out := wire.AppendSectionDescriptor(make([]byte, 0, len(section)+64), wire.SectionProperties)
	out = wire.AppendListOf(out, func(dst []byte) ([]byte, int) {
		for i := range changed {
			field, ok := fields.Next()
			switch {
			case changed[i] != nil:
				dst = append(dst, changed[i]...)
			case ok:
				dst = append(dst, field...)
			default:
				dst = wire.AppendValue(dst, nil)
			}
		}
		return dst, propertyFieldCount
	})
	return out, nil
}
