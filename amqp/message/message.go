package message

import (
	"encoding/binary"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a message in addition to the size that its queue allows. They are the limits of the cloud
// (docs/service-bus-protocol.md#message-sizes, #batches).
const (
	BatchMessagesMax = 4500 // messages of one batch
	// payloadOverheadBytes is the maximum by which a payload exceeds the message: version, flags, priority,
	// and seven numbers of at most five bytes.
	payloadOverheadBytes = 3 + 7*5
)

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
