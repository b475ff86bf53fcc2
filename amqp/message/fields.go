package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

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

// scanProperties checks the type of every field (part 3, 3.2.4). A client that receives a wrong type drops the
// connection, and does so repeatedly, because the message remains in the queue.
func (p *parsedMessage) scanProperties(value []byte) error {
	fields, err := wire.IterList(value)
	if err != nil {
		return sectionError(wire.SectionProperties, err)
	}
	if fields.Len() > 0 {
		p.properties = value
	}
	for i := 0; ; i++ {
		field, ok := fields.Next()
		if !ok {
			return nil // CheckValue has checked the whole list
		}
		if len(field) > propertyBytesMax {
			return NewError(wire.ConditionMessageSizeExceeded, "property %d takes more than %d bytes", i, propertyBytesMax)
		}
		if wire.IsNull(field) {
			continue
		}
		if !propertyHasType(i, field) {
			return NewError(wire.ConditionDecodeError, "properties: field %d is of a wrong type", i)
		}
		if i == groupIDField {
			text, _ := wire.StringOf(field)
			err = CheckName("group-id", text)
		}
		if err == nil {
			err = p.keepField(i, field)
		}
		if err != nil {
			return err
		}
	}
}

// keepField keeps the value of field number i of the properties if the broker needs it. The field has the
// right type and is not null.
func (p *parsedMessage) keepField(i int, field []byte) (err error) {
	switch i {
	case messageIDField:
		p.id, err = messageIDText(field)
	case expiryField:
		p.expires, _ = wire.MillisOf(field)
		p.timed |= 1
	case creationField:
		p.created, _ = wire.MillisOf(field)
		p.timed |= 2
	case groupIDField: // the session id
		text, _ := wire.StringOf(field)
		p.session, p.hasSession = string(text), true
	}
	return err
}

// CheckName refuses names that are longer than the cloud allows (docs/service-bus-protocol.md#message-sizes).
func CheckName(what string, text []byte) error {
	if utf8.RuneCount(text) > NameCharactersMax {
		return NewError(wire.ConditionArgumentError, "%s has more than %d characters", what, NameCharactersMax)
	}
	return nil
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

// messageIDText converts a message-id to text so that ids of different types remain different: strings are
// unchanged, a ulong becomes "u:" and digits, a uuid "g:" and the usual form, a binary "b:" and hexadecimal. A
// string that starts with one of these prefixes gets the prefix "s:".
func messageIDText(field []byte) (string, error) {
	if text, ok := wire.StringOf(field); ok {
		if utf8.RuneCount(text) > NameCharactersMax {
			return "", NewError(wire.ConditionArgumentError, "message-id has more than %d characters", NameCharactersMax)
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
	if len(data) > NameCharactersMax {
		return "", NewError(wire.ConditionArgumentError, "message-id has more than %d bytes", NameCharactersMax)
	}
	return "b:" + hex.EncodeToString(data), nil
}

// scanApplication checks that the keys are strings (part 3, 3.2.5). The values may have any type: the .NET
// client sends described ones.
func (p *parsedMessage) scanApplication(value []byte) error {
	pairs, err := wire.IterMap(value)
	if err != nil {
		return sectionError(wire.SectionApplicationProperties, err)
	}
	p.application = value
	for {
		key, v, ok := pairs.Next()
		if !ok {
			return nil // CheckValue has checked the whole map
		}
		name, isString := wire.StringOf(key)
		if !isString {
			return NewError(wire.ConditionDecodeError, "application property whose key is not a string")
		}
		if len(key)+len(v) > propertyBytesMax {
			return NewError(wire.ConditionMessageSizeExceeded, "application property takes more than %d bytes", propertyBytesMax)
		}
		if isReasonKey(name) {
			_, isString = wire.StringOf(v)
			p.rewriteReasons = p.rewriteReasons || !isString
		}
	}
}

// appendPairs appends what add appends for each pair of an encoded map, preceded by the length and the number of
// these pairs. kept is their length.
func appendPairs(dst, encoded []byte, add func(dst, key, value []byte) ([]byte, error)) (longer []byte, kept int, err error) {
	if encoded == nil {
		return append(dst, 0, 0), 0, nil
	}
	pairs, err := wire.IterMap(encoded)
	if err != nil {
		return dst, 0, NewError(wire.ConditionDecodeError, "annotations: %s", err)
	}
	start, count := len(dst), uint64(0)
	for {
		key, value, ok := pairs.Next()
		if !ok {
			break
		}
		before := len(dst)
		if dst, err = add(dst, key, value); err != nil {
			return dst, 0, err
		}
		if len(dst) > before {
			count++
		}
	}
	// The length and the count precede the pairs, and are known only now.
	kept = len(dst) - start
	var numbers [2 * binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(numbers[:0], uint64(kept))
	head = binary.AppendUvarint(head, count)
	dst = append(dst, head...)
	copy(dst[start+len(head):], dst[start:start+kept])
	copy(dst[start:], head)
	return dst, kept, nil
}

// appendDeliveryAnnotations appends the delivery annotations of the client to the payload that begins at start, and
// sets its flag, if there are any.
func (p *parsedMessage) appendDeliveryAnnotations(dst []byte, start int) ([]byte, error) {
	if p.delivery == nil {
		return dst, nil
	}
	before := len(dst)
	dst, kept, err := appendPairs(dst, p.delivery, appendDeliveryAnnotation)
	switch {
	case err != nil:
		return dst, err
	case kept == 0:
		return dst[:before], nil
	case kept > propertiesBytesMax:
		return dst, NewError(wire.ConditionMessageSizeExceeded, "delivery annotations take more than %d bytes", propertiesBytesMax)
	}
	dst[start+1] |= payloadHasDeliveryAnnotations
	return dst, nil
}

// appendDeliveryAnnotation appends one delivery annotation of the client with its key as a symbol. It appends nothing
// for a lock token, which is that of another delivery, and for keys of other types.
func appendDeliveryAnnotation(dst, key, value []byte) ([]byte, error) {
	name, ok := wire.TextOf(key)
	if !ok || string(name) == lockTokenKey {
		return dst, nil
	}
	if len(key)+len(value) > propertyBytesMax {
		return dst, NewError(wire.ConditionMessageSizeExceeded, "delivery annotation takes more than %d bytes", propertyBytesMax)
	}
	return append(wire.AppendSymbol(dst, name), value...), nil
}

// appendAnnotation appends one annotation of the client with its key as a symbol. It appends nothing if the
// annotation is null or belongs to the broker. Clients rely on the types of the annotations of Service Bus
// (docs/service-bus-protocol.md#message-annotations), so wrong types are corrected or refused.
func (p *parsedMessage) appendAnnotation(dst, key, value []byte) ([]byte, error) {
	name, ok := wire.TextOf(key)
	if !ok {
		if _, isNumber := wire.UlongOf(key); isNumber {
			return append(append(dst, key...), value...), nil // reserved keys (part 3, 3.2.10)
		}
		return dst, NewError(wire.ConditionDecodeError, "message annotation whose key is neither symbol nor ulong")
	}
	if len(key)+len(value) > propertyBytesMax {
		return dst, NewError(wire.ConditionMessageSizeExceeded, "message annotation takes more than %d bytes", propertyBytesMax)
	}
	if IsBrokerAnnotation(name) {
		return dst, nil
	}
	switch string(name) {
	case ScheduledEnqueueTimeKey:
		if wire.IsNull(value) {
			return dst, nil
		}
		ms, ok := wire.MillisOf(value)
		if !ok {
			return dst, NewError(wire.ConditionInvalidField, "message annotation %s is not a timestamp", name)
		}
		p.enqueueAt = fsm.Instant(max(1, ms)) // a time before 1970 is over, but 0 means none
		return wire.AppendMillis(wire.AppendSymbol(dst, name), ms), nil
	case partitionKeyKey, viaPartitionKeyKey:
		if wire.IsNull(value) {
			return dst, nil
		}
		text, ok := wire.TextOf(value)
		if !ok { // Python sends the key of a message that it has received as binary
			text, ok = wire.BinaryOf(value)
		}
		if !ok || !utf8.Valid(text) {
			return dst, NewError(wire.ConditionInvalidField, "message annotation %s is not a string", name)
		}
		if err := CheckName(string(name), text); err != nil {
			return dst, err
		}
		if string(name) == partitionKeyKey {
			p.partitionKey = string(text)
		}
		return wire.AppendString(wire.AppendSymbol(dst, name), text), nil
	}
	return append(wire.AppendSymbol(dst, name), value...), nil
}

// footerOf returns the encoded map of a footer with symbols in place of keys that are strings: Java's client reads
// nothing else, and two clients for JavaScript write strings. It refuses keys that are not ASCII, as symbols are, and keys
// that occur twice.
func footerOf(value []byte) ([]byte, error) {
	pairs, err := wire.IterMap(value)
	if err != nil {
		return nil, sectionError(wire.SectionFooter, err)
	}
	rewrite, keys := false, make(map[string]struct{}, pairs.Len())
	for all := pairs; ; {
		key, _, ok := all.Next()
		if !ok {
			break
		}
		name, isText := wire.TextOf(key)
		if !isText {
			number, isNumber := wire.UlongOf(key)
			if !isNumber {
				return nil, NewError(wire.ConditionDecodeError, "footer has a key that is neither symbol nor ulong")
			}
			keys["\xff"+strconv.FormatUint(number, 10)] = struct{}{} // not ASCII, so that it equals no symbol
			continue
		}
		if slices.ContainsFunc(name, func(b byte) bool { return b >= utf8.RuneSelf }) {
			return nil, NewError(wire.ConditionDecodeError, "footer has a key that is not ASCII")
		}
		_, isSymbol := wire.SymbolOf(key)
		keys[string(name)], rewrite = struct{}{}, rewrite || !isSymbol
	}
	if len(keys) < pairs.Len() {
		return nil, NewError(wire.ConditionDecodeError, "footer has a key that occurs twice")
	}
	if !rewrite {
		return value, nil
	}
	return wire.AppendMapOf(nil, func(dst []byte) ([]byte, int) {
		count := pairs.Len()
		for {
			key, v, ok := pairs.Next()
			if !ok {
				return dst, count
			}
			if name, isText := wire.TextOf(key); isText {
				key = wire.AppendSymbol(nil, name)
			}
			dst = append(append(dst, key...), v...)
		}
	}), nil
}
