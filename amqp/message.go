package amqp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The payload is what the machines keep of a message. They do not look inside: it is
// laid out so that sending the message on is nearly copying.
//
//	┌─────────┬───────┬──────────┬─────────┬─────────────────────────────────────────┐
//	│ version │ flags │ priority │ ttl     │ annotations kept                        │
//	│ 1 byte  │1 byte │ 1 byte if│ uvarint │ uvarint bytes, uvarint pairs, then the  │
//	│ = 1     │       │ flagged  │ ms, if  │ pairs: encoded key, encoded value, ...  │
//	│         │       │          │ flagged │                                         │
//	├─────────┴───┬───┴──────────┼─────────┴──┬────────────────────────┬─────────────┤
//	│ bytes of    │ bytes of     │ properties │ application-properties │ body        │
//	│ properties  │ application- │ section    │ section                │ sections,   │
//	│ section     │ properties   │            │                        │ footer: to  │
//	│ uvarint     │ uvarint      │ as encoded by the client, behind    │ the end     │
//	│             │              │ descriptors in small ulong form     │             │
//	└─────────────┴──────────────┴─────────────────────────────────────┴─────────────┘
//
// A section that the client did not send has no bytes. The order of the sections is the
// order on the wire, so a delivery is header and annotations, written anew, and then
// everything from the properties on, copied. Only a message that was changed by a
// settlement (Delivery.Patches) gets its application-properties written anew.
//
// first-acquirer and delivery-annotations are not kept: the broker writes its own.
const payloadVersion = 1

// The flags of a payload.
const (
	payloadDurable     = 1 << 0
	payloadHasPriority = 1 << 1
	payloadHasTTL      = 1 << 2
	payloadFlagsKnown  = payloadDurable | payloadHasPriority | payloadHasTTL
)

// The limits of a message besides the size that its queue allows. They are the cloud's
// (wire contract 4.5 and 4.6).
const (
	messageIDCharactersMax = 128
	propertiesBytesMax     = 64 << 10 // annotations kept, properties and application properties together
	propertyBytesMax       = 32 << 10 // one property with its key
	batchMessagesMax       = 4096     // messages of one batch: what one command may hold
	// payloadOverheadBytes is the most that a payload is longer than the message: version,
	// flags, priority, and five numbers of at most five bytes.
	payloadOverheadBytes = 3 + 5*5
)

// messageError says why a message or its properties are refused. text is fit for the
// client.
type messageError struct {
	condition wire.Symbol
	text      string
}

func (e *messageError) Error() string { return string(e.condition) + ": " + e.text }

func refuse(condition wire.Symbol, format string, args ...any) error {
	return &messageError{condition: condition, text: fmt.Sprintf(format, args...)}
}

// refuseBytes says that the bytes of a section are not AMQP.
func refuseBytes(what fmt.Stringer, err error) error {
	return refuse(wire.ConditionDecodeError, "%s: %s", what, err)
}

// parseMessage makes of one complete encoded message (AMQP 1.0 part 3, 3.2) what the
// machines store. All sections are checked to the last byte, so that no receiver is
// given something that it cannot decode. Errors are *messageError. b is not kept.
func parseMessage(b []byte) (fsm.Message, error) {
	m, _, err := parseInto(make([]byte, 0, len(b)+payloadOverheadBytes), b)
	return m, err
}

// parseInto is parseMessage with the payload in arena, which it returns longer.
func parseInto(arena, b []byte) (fsm.Message, []byte, error) {
	var p parsedMessage
	if err := p.scan(b); err != nil {
		return fsm.Message{}, arena, err
	}
	start := len(arena)
	arena, err := p.appendPayload(arena)
	if err != nil {
		return fsm.Message{}, arena, err
	}
	return fsm.Message{ID: p.id, Payload: arena[start:len(arena):len(arena)]}, arena, nil
}

// parseBatch makes the messages of a batch: transfer.message-format 0x80013700, sections
// of an envelope that is only advice, then data sections that each hold one encoded
// message (wire contract 4.6). Errors are *messageError and concern the whole batch. b
// is not kept.
func parseBatch(b []byte) ([]fsm.Message, error) {
	count := 0
	var before wire.SectionKind
	for rest := b; len(rest) > 0; {
		kind, _, _, behind, err := wire.NextSection(rest)
		switch {
		case err != nil:
			return nil, refuse(wire.ConditionDecodeError, "batch: %s", err)
		case !kind.Follows(before) || kind == wire.SectionSequence || kind == wire.SectionValue:
			return nil, refuse(wire.ConditionDecodeError, "batch: %s is out of place", kind)
		case kind == wire.SectionData:
			count++
		}
		rest, before = behind, kind
	}
	if count == 0 {
		return nil, refuse(wire.ConditionArgumentError, "batch holds no message")
	}
	if count > batchMessagesMax {
		return nil, refuse(wire.ConditionMessageSizeExceeded, "batch holds %d messages, more than %d", count, batchMessagesMax)
	}
	messages := make([]fsm.Message, 0, count)
	arena := make([]byte, 0, len(b)+count*payloadOverheadBytes) // one allocation for all payloads
	for rest := b; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return nil, refuse(wire.ConditionDecodeError, "batch: %s", err)
		}
		if rest = behind; kind != wire.SectionData {
			continue
		}
		data, _ := wire.BinaryOf(value)
		var m fsm.Message
		if m, arena, err = parseInto(arena, data); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// parsedMessage is a message taken apart. The slices are parts of the input.
type parsedMessage struct {
	flags       byte
	priority    byte
	ttl         uint32 // milliseconds
	annotations []byte // encoded map, nil when absent
	properties  []byte // encoded list, nil when absent or empty
	application []byte // encoded map, nil when absent
	body        []byte // sections from the body on
	id          string
	rewrite     bool // application holds a null where clients take a string for granted
}

// scan finds and checks the sections of b.
func (p *parsedMessage) scan(b []byte) error {
	var before wire.SectionKind
	counted := 0
	for rest := b; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return refuse(wire.ConditionDecodeError, "message: %s", err)
		}
		if !kind.Follows(before) {
			return refuse(wire.ConditionDecodeError, "%s is out of place", kind)
		}
		if _, err := wire.CheckValue(value); err != nil {
			return refuseBytes(kind, err)
		}
		switch kind {
		case wire.SectionHeader:
			err = p.scanHeader(value)
		case wire.SectionMessageAnnotations:
			p.annotations = value
		case wire.SectionProperties:
			counted += len(value)
			err = p.scanProperties(value)
		case wire.SectionApplicationProperties:
			counted += len(value)
			err = p.scanApplication(value)
		case wire.SectionData, wire.SectionSequence, wire.SectionValue, wire.SectionFooter:
			if p.body == nil {
				p.body = rest
			}
		case wire.SectionDeliveryAnnotations: // meant for the next hop only: us
		}
		if err != nil {
			return err
		}
		if counted > propertiesBytesMax {
			return refuse(wire.ConditionMessageSizeExceeded, "properties take more than %d bytes", propertiesBytesMax)
		}
		rest, before = behind, kind
	}
	return nil
}

// scanHeader reads durable, priority and ttl (part 3, 3.2.1).
func (p *parsedMessage) scanHeader(value []byte) error {
	fields, err := wire.IterList(value)
	if err != nil {
		return refuseBytes(wire.SectionHeader, err)
	}
	for i := 0; ; i++ {
		field, ok := fields.Next()
		if !ok {
			return nil // CheckValue has seen the whole list
		}
		if wire.IsNull(field) {
			continue
		}
		switch i {
		case 0:
			durable, isBool := wire.BoolOf(field)
			if ok = isBool; durable {
				p.flags |= payloadDurable
			}
		case 1:
			var n uint64
			n, ok = wire.UintOf(field)
			ok = ok && n <= 255
			p.priority, p.flags = byte(n), p.flags|payloadHasPriority
		case 2:
			var n uint64
			n, ok = wire.UintOf(field)
			ok = ok && n <= 1<<32-1
			p.ttl, p.flags = uint32(n), p.flags|payloadHasTTL
		}
		if !ok {
			return refuse(wire.ConditionDecodeError, "header: field %d is of a wrong type", i)
		}
	}
}

// scanProperties checks the type of every field (part 3, 3.2.4): clients that receive a
// wrong one drop the connection, again and again, because the message stays.
func (p *parsedMessage) scanProperties(value []byte) error {
	fields, err := wire.IterList(value)
	if err != nil {
		return refuseBytes(wire.SectionProperties, err)
	}
	if fields.Len() > 0 {
		p.properties = value
	}
	for i := 0; ; i++ {
		field, ok := fields.Next()
		if !ok {
			return nil // CheckValue has seen the whole list
		}
		if len(field) > propertyBytesMax {
			return refuse(wire.ConditionMessageSizeExceeded, "property %d takes more than %d bytes", i, propertyBytesMax)
		}
		if wire.IsNull(field) {
			continue
		}
		if !propertyHasType(i, field) {
			return refuse(wire.ConditionDecodeError, "properties: field %d is of a wrong type", i)
		}
		if i == 0 {
			if p.id, err = messageIDText(field); err != nil {
				return err
			}
		}
	}
}

// propertyHasType checks field number i of the properties.
func propertyHasType(i int, field []byte) (ok bool) {
	switch i {
	case 0, 5: // message-id, correlation-id
		if _, ok = wire.StringOf(field); ok {
			return true
		}
		if _, ok = wire.UUIDOf(field); ok {
			return true
		}
		if _, ok = wire.BinaryOf(field); ok {
			return true
		}
		_, ok = wire.UlongOf(field)
	case 1: // user-id
		_, ok = wire.BinaryOf(field)
	case 2, 3, 4, 10, 12: // to, subject, reply-to, group-id, reply-to-group-id
		_, ok = wire.StringOf(field)
	case 6, 7: // content-type, content-encoding
		_, ok = wire.SymbolOf(field)
	case 8, 9: // absolute-expiry-time, creation-time
		ok = wire.IsTimestamp(field)
	case 11: // group-sequence
		_, ok = wire.UintOf(field)
	}
	return ok
}

// messageIDText turns a message-id into text so that ids of different types stay
// different: strings as they are, "u:" and digits for ulong, "g:" and the usual form for
// uuid, "b:" and hexadecimal for binary. A string that itself starts like one of these
// gets "s:" in front.
func messageIDText(field []byte) (string, error) {
	if text, ok := wire.StringOf(field); ok {
		if utf8.RuneCount(text) > messageIDCharactersMax {
			return "", refuse(wire.ConditionArgumentError, "message-id has more than %d characters", messageIDCharactersMax)
		}
		if len(text) >= 2 && text[1] == ':' {
			switch text[0] {
			case 'u', 'g', 'b', 's':
				return "s:" + string(text), nil
			}
		}
		return string(text), nil
	}
	if n, ok := wire.UlongOf(field); ok {
		return "u:" + strconv.FormatUint(n, 10), nil
	}
	if id, ok := wire.UUIDOf(field); ok {
		return "g:" + fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), nil
	}
	data, _ := wire.BinaryOf(field)
	if len(data) > messageIDCharactersMax {
		return "", refuse(wire.ConditionArgumentError, "message-id has more than %d bytes", messageIDCharactersMax)
	}
	return "b:" + hex.EncodeToString(data), nil
}

// scanApplication checks that the keys are strings (part 3, 3.2.5). The values may be of
// any type: the .NET client sends described ones.
func (p *parsedMessage) scanApplication(value []byte) error {
	pairs, err := wire.IterMap(value)
	if err != nil {
		return refuseBytes(wire.SectionApplicationProperties, err)
	}
	p.application = value
	for {
		key, v, ok := pairs.Next()
		if !ok {
			return nil // CheckValue has seen the whole map
		}
		name, isString := wire.StringOf(key)
		if !isString {
			return refuse(wire.ConditionDecodeError, "application property whose key is not a string")
		}
		if len(key)+len(v) > propertyBytesMax {
			return refuse(wire.ConditionMessageSizeExceeded, "application property takes more than %d bytes", propertyBytesMax)
		}
		// The Go client takes these two for strings without looking, and panics.
		if string(name) == deadLetterReasonKey || string(name) == deadLetterDescriptionKey {
			if _, isString := wire.StringOf(v); !isString {
				if !wire.IsNull(v) {
					return refuse(wire.ConditionInvalidField, "application property %s is not a string", name)
				}
				p.rewrite = true
			}
		}
	}
}

// appendPayload appends the payload of the message.
func (p *parsedMessage) appendPayload(dst []byte) ([]byte, error) {
	start := len(dst)
	dst = append(dst, payloadVersion, p.flags)
	if p.flags&payloadHasPriority != 0 {
		dst = append(dst, p.priority)
	}
	if p.flags&payloadHasTTL != 0 {
		dst = binary.AppendUvarint(dst, uint64(p.ttl))
	}
	dst, kept, err := p.appendAnnotations(dst)
	if err != nil {
		return dst[:start], err
	}
	application := p.application
	if p.rewrite {
		application = withoutNullReasons(application)
	}
	if kept+len(p.properties)+len(application) > propertiesBytesMax {
		return dst[:start], refuse(wire.ConditionMessageSizeExceeded, "properties and annotations take more than %d bytes", propertiesBytesMax)
	}
	dst = binary.AppendUvarint(dst, sectionLen(p.properties))
	dst = binary.AppendUvarint(dst, sectionLen(application))
	dst = appendSection(dst, wire.SectionProperties, p.properties)
	dst = appendSection(dst, wire.SectionApplicationProperties, application)
	for rest := p.body; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return dst[:start], refuse(wire.ConditionDecodeError, "message: %s", err)
		}
		dst = appendSection(dst, kind, value)
		rest = behind
	}
	return dst, nil
}

// sectionDescriptorBytes is what a descriptor in small ulong form takes.
const sectionDescriptorBytes = 3

// sectionLen is the length of the section with this value, 0 without one.
func sectionLen(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return uint64(sectionDescriptorBytes + len(value))
}

// appendSection appends a section whose value is encoded, nothing for nil. The descriptor
// becomes a small ulong, because the Python SDK reads no other form.
func appendSection(dst []byte, kind wire.SectionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	return append(wire.AppendSectionDescriptor(dst, kind), value...)
}

// appendAnnotations appends the annotations that are the client's own, with their
// length and count in front. kept is the length of the pairs.
func (p *parsedMessage) appendAnnotations(dst []byte) (longer []byte, kept int, err error) {
	if p.annotations == nil {
		return append(dst, 0, 0), 0, nil
	}
	pairs, err := wire.IterMap(p.annotations)
	if err != nil {
		return dst, 0, refuseBytes(wire.SectionMessageAnnotations, err)
	}
	start, count := len(dst), uint64(0)
	for {
		key, value, ok := pairs.Next()
		if !ok {
			break
		}
		before := len(dst)
		if dst, err = appendAnnotation(dst, key, value); err != nil {
			return dst, 0, err
		}
		if len(dst) > before {
			count++
		}
	}
	// The two numbers stand in front of the pairs, and are known only now.
	kept = len(dst) - start
	var numbers [2 * binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(numbers[:0], uint64(kept))
	head = binary.AppendUvarint(head, count)
	dst = append(dst, head...)
	copy(dst[start+len(head):], dst[start:start+kept])
	copy(dst[start:], head)
	return dst, kept, nil
}

// appendAnnotation appends one annotation of the client with the key as a symbol, or
// nothing when it is the broker's or says nothing. Clients take the types of the known
// ones for granted (wire contract 4.2), so those are put right or refused.
func appendAnnotation(dst, key, value []byte) ([]byte, error) {
	name, ok := wire.TextOf(key)
	if !ok {
		if _, isNumber := wire.UlongOf(key); isNumber {
			return append(append(dst, key...), value...), nil // reserved keys (part 3, 3.2.10)
		}
		return dst, refuse(wire.ConditionDecodeError, "message annotation whose key is neither symbol nor ulong")
	}
	if len(key)+len(value) > propertyBytesMax {
		return dst, refuse(wire.ConditionMessageSizeExceeded, "message annotation takes more than %d bytes", propertyBytesMax)
	}
	switch string(name) {
	case sequenceNumberKey, enqueuedTimeKey, lockedUntilKey, enqueueSequenceNumberKey,
		deadLetterSourceKey, messageStateKey, partitionIDKey, lockTokenKey:
		return dst, nil // the broker's
	case scheduledEnqueueTimeKey:
		if wire.IsNull(value) {
			return dst, nil
		}
		ms, ok := wire.MillisOf(value)
		if !ok {
			return dst, refuse(wire.ConditionInvalidField, "message annotation %s is not a timestamp", name)
		}
		return wire.AppendMillis(wire.AppendSymbol(dst, name), ms), nil
	case partitionKeyKey, viaPartitionKeyKey:
		if wire.IsNull(value) {
			return dst, nil
		}
		text, ok := wire.TextOf(value)
		if !ok {
			return dst, refuse(wire.ConditionInvalidField, "message annotation %s is not a string", name)
		}
		return wire.AppendString(wire.AppendSymbol(dst, name), text), nil
	}
	return append(wire.AppendSymbol(dst, name), value...), nil
}
