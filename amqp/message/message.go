package message

import (
	"encoding/binary"
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The payload is the part of a message that the state machines store. They do not interpret
// it; its layout makes delivering the message little more than a copy.
//
//	┌─────────┬───────┬──────────┬─────────┬─────────────────────────────────────────┐
//	│ version │ flags │ priority │ ttl     │ annotations kept, and then, if flagged, │
//	│ 1 byte  │1 byte │ 1 byte if│ uvarint │ delivery annotations kept, each as:     │
//	│ = 1     │       │ flagged  │ ms, if  │ uvarint bytes, uvarint pairs, then the  │
//	│         │       │          │ flagged │ pairs: encoded key, encoded value, ...  │
//	├─────────┴───┬───┴──────────┼─────────┴──┬────────────────────────┬─────────────┤
//	│ bytes of    │ bytes of     │ properties │ application-properties │ body        │
//	│ properties  │ application- │ section    │ section                │ sections,   │
//	│ section     │ properties   │            │                        │ footer: to  │
//	│ uvarint     │ uvarint      │ as encoded by the client, behind    │ the end     │
//	│             │              │ descriptors in small ulong form     │             │
//	└─────────────┴──────────────┴─────────────────────────────────────┴─────────────┘
//
// A section that the client did not send has no bytes. The order of the sections is the
// order on the wire, so a delivery consists of a new header and new annotations, followed by a
// copy of everything from the properties on. Only for a message that a settlement changed
// (Delivery.Patches) are the application-properties written again.
const payloadVersion = 0x81

// Flags of a payload. All bits are in use.
const (
	payloadDurable                = 1 << 0
	payloadHasPriority            = 1 << 1
	payloadHasTTL                 = 1 << 2
	payloadFirstAcquirer          = 1 << 3
	payloadHasDeliveryAnnotations = 1 << 4
	payloadNotDurable             = 1 << 5 // the client sent durable=false
	payloadNotFirstAcquirer       = 1 << 6 // the client sent first-acquirer=false
	payloadScheduled              = 1 << 7 // the client set a scheduled enqueue time
)

// Limits of a message in addition to the size that its queue allows. They are the limits of the cloud
// (docs/service-bus-protocol.md#message-sizes, #batches).
const (
	BytesMax           = 16 << 20 // largest message accepted, whatever its queue allows
	NameCharactersMax  = 128      // message-id, group-id and partition keys
	propertiesBytesMax = 64 << 10 // annotations kept, properties and application properties together
	propertyBytesMax   = 32 << 10 // one property with its key
	BatchMessagesMax   = 4500     // messages of one batch
	// payloadOverheadBytes is the maximum by which a payload exceeds the message: version, flags, priority,
	// and seven numbers of at most five bytes.
	payloadOverheadBytes = 3 + 7*5
)

// Error is the reason why a message or its properties are refused. Its text is a clause without advice that
// can be shown to the client.
type Error struct {
	Condition wire.Symbol
	Text      string
}

func (e *Error) Error() string { return string(e.Condition) + ": " + e.Text }

// NewError returns a new *Error.
func NewError(condition wire.Symbol, format string, args ...any) error {
	return &Error{condition, fmt.Sprintf(format, args...)}
}

// sectionError reports that the bytes of a section are not AMQP.
func sectionError(what fmt.Stringer, err error) error {
	return NewError(wire.ConditionDecodeError, "%s: %s", what, err)
}

// Parse converts one complete encoded message (AMQP 1.0 part 3, 3.2) to its stored form. It checks all
// sections to the last byte, so that no receiver gets bytes that it cannot decode. Errors are *Error. Parse does not keep b.
func Parse(b []byte) (fsm.Message, error) {
	m, _, err := parseInto(make([]byte, 0, len(b)+payloadOverheadBytes), b)
	return m, err
}

// parseInto is Parse, but appends the payload to arena and returns arena.
func parseInto(arena, b []byte) (fsm.Message, []byte, error) {
	var p parsedMessage
	if err := p.scan(b); err != nil {
		return fsm.Message{}, arena, err
	}
	if err := p.checkLife(); err != nil {
		return fsm.Message{}, arena, err
	}
	start := len(arena)
	arena, err := p.appendPayload(arena)
	if err != nil {
		return fsm.Message{}, arena, err
	}
	// An absent or empty key or session id restricts nothing.
	if p.partitionKey != "" && p.session != "" && p.partitionKey != p.session {
		return fsm.Message{}, arena, NewError(wire.ConditionNotAllowed, "the partition key '%.128s' differs from the session id '%.128s'", p.partitionKey, p.session)
	}
	m := fsm.Message{
		ID: p.id, Payload: arena[start:len(arena):len(arena)], TimeToLive: p.timeToLive(), EnqueueAt: p.enqueueAt,
		Session: p.session, HasSession: p.hasSession, PartitionKey: p.partitionKey,
	}
	return m, arena, nil
}

// ParseBatch parses the messages of a batch: transfer.message-format 0x80013700, sections of an envelope that
// are only informative, and data sections that each hold one encoded message
// (docs/service-bus-protocol.md#batches). Errors are *Error and concern the whole batch.
// ParseBatch does not keep b.
func ParseBatch(b []byte) ([]fsm.Message, error) {
	count := 0
	var seen seenSections
	for rest := b; len(rest) > 0; {
		kind, _, _, behind, err := wire.NextSection(rest)
		switch {
		case err != nil:
			return nil, NewError(wire.ConditionDecodeError, "batch: %s", err)
		case kind == wire.SectionSequence || kind == wire.SectionValue:
			return nil, NewError(wire.ConditionDecodeError, "batch: %s is out of place", kind)
		case !seen.add(kind):
			return nil, NewError(wire.ConditionDecodeError, "batch: second %s", kind)
		case kind == wire.SectionData:
			count++
		}
		rest = behind
	}
	if count == 0 {
		return nil, NewError(wire.ConditionArgumentError, "batch holds no message")
	}
	if count > BatchMessagesMax {
		return nil, NewError(wire.ConditionMessageSizeExceeded, "batch holds %d messages, more than %d", count, BatchMessagesMax)
	}
	messages := make([]fsm.Message, 0, count)
	arena := make([]byte, 0, len(b)+count*payloadOverheadBytes) // one allocation for all payloads
	for rest := b; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return nil, NewError(wire.ConditionDecodeError, "batch: %s", err)
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

// parsedMessage is a message divided into its sections. The slices are parts of the input.
type parsedMessage struct {
	flags       byte
	priority    byte
	ttl         uint32 // milliseconds
	annotations []byte // encoded map, nil when absent
	delivery    []byte // encoded map of delivery annotations, nil when absent
	properties  []byte // encoded list, nil when absent or empty
	application []byte // encoded map, nil when absent
	body        []byte // from the first body section on; sections of other kinds may be among them
	footer      []byte // encoded map with keys of the type symbol or ulong, nil when absent
	id          string
	session     string // group-id
	hasSession  bool
	// partitionKey is set when the annotations are written.
	partitionKey   string
	created        int64       // creation-time, ms, if bit 1 of timed is set
	expires        int64       // absolute-expiry-time, ms, if bit 0 of timed is set
	timed          byte        // which of the two times are present
	enqueueAt      fsm.Instant // 0: at once
	rewriteReasons bool        // a dead-letter property in application is not a string
}

// seenSections holds the kinds of the sections of a message that were read, as bits.
type seenSections uint16

// add adds a section, and returns false if the message has one of its kind already and may have only one (part 3, 3.2).
// Data and sequence sections may be repeated.
func (s *seenSections) add(kind wire.SectionKind) bool {
	bit := seenSections(1) << (kind - wire.SectionHeader)
	repeated := *s&bit != 0 && kind != wire.SectionData && kind != wire.SectionSequence
	*s |= bit
	return !repeated
}

// scan finds and checks the sections of b. Their order is free, and so is the combination of body sections: Microsoft.Azure.Amqp
// reads them so, rhea writes the footer before the body, and the Python client writes delivery annotations last.
func (p *parsedMessage) scan(b []byte) error {
	var seen seenSections
	counted := 0
	for rest := b; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return NewError(wire.ConditionDecodeError, "message: %s", err)
		}
		if !seen.add(kind) {
			return NewError(wire.ConditionDecodeError, "second %s", kind)
		}
		if _, err := wire.CheckValue(value); err != nil {
			return sectionError(kind, err)
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
		case wire.SectionData, wire.SectionSequence, wire.SectionValue:
			if p.body == nil {
				p.body = rest
			}
		case wire.SectionFooter:
			p.footer, err = footerOf(value)
		case wire.SectionDeliveryAnnotations:
			p.delivery = value
		}
		if err != nil {
			return err
		}
		if counted > propertiesBytesMax {
			return NewError(wire.ConditionMessageSizeExceeded, "properties take more than %d bytes", propertiesBytesMax)
		}
		rest = behind
	}
	return nil
}

// scanHeader reads durable, priority, ttl and first-acquirer (part 3, 3.2.1).
func (p *parsedMessage) scanHeader(value []byte) error {
	fields, err := wire.IterList(value)
	if err != nil {
		return sectionError(wire.SectionHeader, err)
	}
	for i := 0; ; i++ {
		field, ok := fields.Next()
		if !ok {
			return nil // CheckValue has checked the whole list
		}
		if wire.IsNull(field) {
			continue
		}
		switch i {
		case 0:
			var durable bool
			durable, ok = wire.BoolOf(field)
			p.flags |= flagOf(durable, payloadDurable, payloadNotDurable)
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
		case 3:
			if first, isBool := wire.BoolOf(field); isBool {
				p.flags |= flagOf(first, payloadFirstAcquirer, payloadNotFirstAcquirer)
			}
		}
		if !ok {
			return NewError(wire.ConditionDecodeError, "header: field %d is of a wrong type", i)
		}
	}
}

// flagOf returns the flag for a bool that the client sent.
func flagOf(value bool, isTrue, isFalse byte) byte {
	if value {
		return isTrue
	}
	return isFalse
}

// timeToLive returns the requested lifetime of the message, 0 if it requests none: the difference between
// creation-time and absolute-expiry-time (part 3, 3.2.4) if both are present, otherwise header.ttl. The header can
// express 49 days, and .NET lets it wrap around (docs/service-bus-protocol.md#time-to-live). Clients that set no
// lifetime write none.
func (p *parsedMessage) timeToLive() fsm.Millis {
	if p.timed == 3 && p.expires > p.created {
		if span := uint64(p.expires) - uint64(p.created); span < uint64(fsm.Forever) { // the difference cannot overflow
			return fsm.Millis(span)
		}
		return fsm.Forever
	}
	return fsm.Millis(p.ttl)
}

// checkLife refuses a message that would end when it begins: with a header.ttl of 0 that no times replace, or with equal
// times.
func (p *parsedMessage) checkLife() error {
	switch {
	case p.timed == 3 && p.expires == p.created:
		return NewError(wire.ConditionArgumentError, "creation-time and absolute-expiry-time are equal: TimeToLive must be a positive timeout value")
	case p.timed != 3 && p.flags&payloadHasTTL != 0 && p.ttl == 0:
		return NewError(wire.ConditionArgumentError, "the header has a ttl of 0: TimeToLive must be a positive timeout value")
	}
	return nil
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
	dst, kept, err := appendPairs(dst, p.annotations, p.appendAnnotation)
	if err != nil {
		return dst[:start], err
	}
	if p.enqueueAt != 0 {
		dst[start+1] |= payloadScheduled
	}
	if dst, err = p.appendDeliveryAnnotations(dst, start); err != nil {
		return dst[:start], err
	}
	application := p.application
	if p.rewriteReasons {
		application = textReasons(application)
	}
	if kept+len(p.properties)+len(application) > propertiesBytesMax {
		return dst[:start], NewError(wire.ConditionMessageSizeExceeded, "properties and annotations take more than %d bytes", propertiesBytesMax)
	}
	dst = binary.AppendUvarint(dst, sectionLen(p.properties))
	dst = binary.AppendUvarint(dst, sectionLen(application))
	dst = appendSection(dst, wire.SectionProperties, p.properties)
	dst = appendSection(dst, wire.SectionApplicationProperties, application)
	for rest := p.body; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return dst[:start], NewError(wire.ConditionDecodeError, "message: %s", err)
		}
		if rest = behind; kind >= wire.SectionData && kind <= wire.SectionValue {
			dst = appendSection(dst, kind, value)
		}
	}
	return appendSection(dst, wire.SectionFooter, p.footer), nil
}

// sectionDescriptorBytes is the size of a descriptor in smallulong form.
const sectionDescriptorBytes = 3

// sectionLen returns the length of the section with this value, 0 if there is no value.
func sectionLen(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return uint64(sectionDescriptorBytes + len(value))
}

// appendSection appends a section whose value is encoded, or nothing for nil. The descriptor is written as a
// smallulong, because the Python SDK reads no other form.
func appendSection(dst []byte, kind wire.SectionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	return append(wire.AppendSectionDescriptor(dst, kind), value...)
}
