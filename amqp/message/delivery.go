package message

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Values of x-opt-message-state.
const (
	messageStateActive    int32 = 0
	messageStateDeferred  int32 = 1
	messageStateScheduled int32 = 2 // also of messages that were abandoned with a delivery time
)

// DeliveryOptions determines how a message is encoded for a receiver.
type DeliveryOptions struct {
	LockToken *fsm.LockToken // written as a delivery annotation, for messages that are delivered under a lock
	Peeked    bool           // the message is only peeked: its state is written whatever it is, and the end of a lock
}

// ApplicationProperties returns the application-properties section of a stored payload, as a part of it; empty
// if there is none.
func ApplicationProperties(payload []byte) (section []byte, err error) {
	v, err := openPayload(payload)
	return v.application, err
}

// Body returns the sections of a stored payload that follow the application properties, as a part of it: the body, and the
// footer if there is one.
func Body(payload []byte) (sections []byte, err error) {
	v, err := openPayload(payload)
	return v.body, err
}

// AppendDelivery appends the encoded message that a receiver gets for d. place is the entity from which it was
// received. Header, message annotations and properties are always present, because the Go client derives
// delivery count and time to live only from these sections. An error means that the stored bytes are damaged.
// Without patches, and unless the message lives by the default of its queue, it does not allocate if the capacity
// of dst suffices.
func AppendDelivery(dst []byte, place fsm.EntityRef, d fsm.Delivery, o DeliveryOptions) ([]byte, error) {
	v, err := openPayload(d.Payload)
	if err != nil {
		return dst, fmt.Errorf("message %d of entity %d: %w", d.Lock.Sequence, place.ID, err)
	}
	changed, err := v.patch(d.Patches)
	if err != nil {
		return dst, fmt.Errorf("message %d of entity %d: %w", d.Lock.Sequence, place.ID, err)
	}
	timed, err := v.setDefaultTimes(&d)
	if err != nil {
		return dst, fmt.Errorf("message %d of entity %d: %w", d.Lock.Sequence, place.ID, err)
	}
	changed.sections = changed.sections || timed
	dst = v.appendHeader(dst, &d, o.Peeked)
	dst = v.appendDelivery(dst, &o)
	dst = wire.AppendSectionDescriptor(dst, wire.SectionMessageAnnotations)
	dst = wire.AppendMapOf(dst, func(dst []byte) ([]byte, int) {
		dst, own := appendBrokerAnnotations(dst, &place, &d, changed, v.messageState(&d), o.Peeked)
		return append(dst, v.annotations...), own + v.pairs
	})
	if len(v.properties) == 0 {
		dst = wire.AppendProperties(dst, &wire.Properties{})
	}
	bare := len(dst)
	if !changed.sections {
		dst = append(dst, v.bare...)
	} else {
		dst = append(append(append(dst, v.properties...), v.application...), v.body...)
	}
	v.correctExpiry(dst[bare:], &d)
	return dst, nil
}

// appendHeader appends the header section. The delivery-count is the number of earlier deliveries that failed
// (part 3, 3.2.1). Clients add the ttl to the time of enqueueing to compute when the message expires
// (docs/requirements.md#e1), so the ttl is the one that the queue applies. The dead-letter queue applies none,
// so there it is the ttl of the sender. first-acquirer is true if the sender set it and nobody has acquired the
// message before: it was never locked, except by this delivery. durable and first-acquirer are false only if the sender
// sent that.
func (v *payloadView) appendHeader(dst []byte, d *fsm.Delivery, peeked bool) []byte {
	h := wire.Header{DeliveryCount: d.FailedDeliveries}
	durable, first := v.flags&payloadDurable != 0, v.flags&payloadFirstAcquirer != 0
	if durable || v.flags&payloadNotDurable != 0 {
		h.Durable = &durable
	}
	if first && (d.Lock.Epoch == 0 || d.Lock.Epoch == 1 && !peeked) || v.flags&payloadNotFirstAcquirer != 0 {
		h.FirstAcquirer = &first
	}
	if v.flags&payloadHasPriority != 0 {
		h.Priority = &v.priority
	}
	if d.Expires != 0 {
		v.ttl = uint32(max(0, min(lifetimeOf(d), math.MaxUint32)))
		h.TTL = &v.ttl
	} else if v.flags&payloadHasTTL != 0 {
		h.TTL = &v.ttl
	}
	return wire.AppendHeader(dst, &h)
}

// appendDelivery appends the delivery annotations: those of the sender, and the lock token. Without either the section
// is empty, as in the service, and absent in a peeked message.
func (v *payloadView) appendDelivery(dst []byte, o *DeliveryOptions) []byte {
	if o.Peeked && v.deliveries == 0 {
		return dst
	}
	dst = wire.AppendSectionDescriptor(dst, wire.SectionDeliveryAnnotations)
	return wire.AppendMapOf(dst, func(dst []byte) ([]byte, int) {
		dst = append(dst, v.delivery...)
		if o.LockToken == nil {
			return dst, v.deliveries
		}
		dst = wire.AppendSymbol(dst, lockTokenKey)
		return wire.AppendUUID(dst, UUIDFromToken(*o.LockToken)), v.deliveries + 1
	})
}

// setDefaultTimes writes both times to the properties of a message that lives by the default of its queue, because the
// header has no space for 100 days, and reports whether it did. Such a message has no time to live of its sender,
// neither in the header nor as an end. A creation-time of the sender stays, otherwise it is the time of enqueueing.
func (v *payloadView) setDefaultTimes(d *fsm.Delivery) (done bool, err error) {
	if d.Expires == 0 || v.flags&payloadHasTTL != 0 && v.ttl != 0 {
		return false, nil
	}
	created, expires, _ := v.times()
	if expires != nil {
		return false, nil
	}
	var set [propertyFieldCount][]byte
	from := int64(d.Enqueued)
	if created != nil {
		from, _ = wire.MillisOf(created)
	} else {
		set[creationField] = wire.AppendMillis(nil, from)
	}
	set[expiryField] = wire.AppendMillis(nil, from+lifetimeOf(d))
	v.properties, err = replaceFields(v.properties, &set)
	return true, err
}

// timestampBytes is the size of an encoded timestamp; the time follows its first byte.
const timestampBytes = 9

// correctExpiry writes the lifetime that the queue has shortened to the properties at the beginning of bare.
// Clients that send both creation-time and absolute-expiry-time trust their difference more than the header.
// The creation-time does not change.
func (v *payloadView) correctExpiry(bare []byte, d *fsm.Delivery) {
	if d.Expires == 0 {
		return
	}
	created, expires, behind := v.times()
	from, timed := wire.MillisOf(created)
	if !timed || !wire.IsTimestamp(expires) {
		return
	}
	// The fields end with the section.
	at := len(v.properties) - behind - timestampBytes + 1
	binary.BigEndian.PutUint64(bare[at:], uint64(from+lifetimeOf(d)))
}

// appendBrokerAnnotations appends the annotations of the broker, those of the second half only where they say
// something. The types are exact and no value is null, because the Go client panics on anything else.
func appendBrokerAnnotations(dst []byte, place *fsm.EntityRef, d *fsm.Delivery, changed changes, state int32, peeked bool) (longer []byte, pairs int) {
	dst = wire.AppendSymbol(dst, sequenceNumberKey)
	dst = wire.AppendLong(dst, int64(d.Lock.Sequence))
	dst = wire.AppendSymbol(dst, enqueuedTimeKey)
	dst = wire.AppendMillis(dst, int64(d.Enqueued))
	pairs = 2
	if n := enqueueSequenceNumber(d, changed); n != 0 {
		dst = wire.AppendSymbol(dst, EnqueueSequenceNumberKey)
		dst = wire.AppendLong(dst, int64(n))
		pairs++
	}
	if state != messageStateActive || peeked {
		dst = wire.AppendSymbol(dst, messageStateKey)
		dst = wire.AppendInt(dst, state)
		pairs++
	}
	if len(place.Shards) > 0 {
		dst = wire.AppendSymbol(dst, partitionIDKey)
		dst = wire.AppendShort(dst, int16(d.Lock.Sequence.Shard()))
		pairs++
	}
	if d.LockedUntil != 0 || peeked {
		dst = wire.AppendSymbol(dst, lockedUntilKey)
		dst = wire.AppendMillis(dst, lockedUntil(d))
		pairs++
	}
	if changed.source != "" {
		dst = wire.AppendSymbol(dst, DeadLetterSourceKey)
		dst = wire.AppendString(dst, changed.shownSource())
		pairs++
	}
	return dst, pairs
}

// notLocked is the end of the lock of a peeked message that is not locked: the year 1, which stands for an unset time
// in .NET and in the administration API.
const notLocked = -62_135_596_800_000

// lockedUntil returns the end of the lock of a message, in milliseconds since the Unix epoch.
func lockedUntil(d *fsm.Delivery) int64 {
	if d.LockedUntil == 0 {
		return notLocked
	}
	return int64(d.LockedUntil)
}

// messageState returns the state of a message that clients see. A message that its sender scheduled remains scheduled when
// its time has come, and so do its copies; one that was abandoned with a delivery time is scheduled until then.
func (v *payloadView) messageState(d *fsm.Delivery) int32 {
	switch {
	case d.State == fsm.Deferred:
		return messageStateDeferred
	case d.State == fsm.Scheduled, v.flags&payloadScheduled != 0:
		return messageStateScheduled
	}
	return messageStateActive
}

// enqueueSequenceNumber returns the sequence number that the message got where it was sent: at the queue or
// topic that forwarded it first, otherwise at the topic of the subscription. 0 for a message that was sent to this queue.
func enqueueSequenceNumber(d *fsm.Delivery, changed changes) fsm.SequenceNumber {
	if changed.enqueued != 0 {
		return changed.enqueued
	}
	return d.Topic
}

// textReasons encodes the map of application properties again with dead-letter properties as text, and without those
// that have none.
func textReasons(value []byte) []byte {
	pairs, err := wire.IterMap(value)
	if err != nil {
		return value // cannot happen: the map has been read before
	}
	var set propertySet
	for {
		key, v, ok := pairs.Next()
		if !ok {
			break
		}
		name, _ := wire.StringOf(key)
		if _, isString := wire.StringOf(v); !isString && isReasonKey(name) {
			text := reasonText(v)
			if text == "" {
				continue
			}
			v = wire.AppendString(nil, text)
		}
		set.put(key, v)
	}
	return set.appendMap(nil)
}

// EncodeProperties encodes the changes of a settlement to the application properties, for
// fsm.Settlement.Properties: alternating keys and values. Keys may be strings or symbols and become strings.
// Dead-letter properties become strings (ReasonText), because the Go client panics on others; those without a text
// are omitted. Without properties it returns nil. Errors are *Error.
func EncodeProperties(m wire.Map) ([]byte, error) {
	var pairs []byte
	for _, p := range m {
		key, ok := wire.AsText(p.Key)
		if !ok {
			return nil, NewError(wire.ConditionInvalidField, "property to modify whose key is neither string nor symbol")
		}
		value := p.Value
		if _, isString := value.(string); !isString && (key == deadLetterReasonKey || key == deadLetterDescriptionKey) {
			text := ReasonText(value)
			if text == "" {
				continue
			}
			value = text
		}
		before := len(pairs)
		pairs = wire.AppendString(pairs, key)
		pairs = wire.AppendValue(pairs, value)
		if len(pairs)-before > propertyBytesMax {
			return nil, NewError(wire.ConditionMessageSizeExceeded, "property to modify takes more than %d bytes", propertyBytesMax)
		}
		if len(pairs) > propertiesBytesMax {
			return nil, NewError(wire.ConditionMessageSizeExceeded, "properties to modify take more than %d bytes", propertiesBytesMax)
		}
	}
	return pairs, nil
}

// ReasonText returns the text of a dead-letter reason or description, which clients read as a string whatever
// type it had: a number, boolean or time as rules write it. It is empty for null, lists and maps.
func ReasonText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	return reasonText(wire.AppendValue(nil, v))
}

// reasonText is ReasonText for an encoded value.
func reasonText(encoded []byte) string {
	value, ok := FilterValue(encoded, string(encoded))
	if !ok || value.Kind() == filter.KindNull {
		return ""
	}
	return validText(value)
}

// SplitDeadLetter separates the reason and description of a dead-lettering, as text, from the map sent with it.
func SplitDeadLetter(m wire.Map) (reason, description string, rest wire.Map) {
	for _, p := range m {
		key, _ := wire.AsText(p.Key)
		switch key {
		case deadLetterReasonKey:
			reason = ReasonText(p.Value)
		case deadLetterDescriptionKey:
			description = ReasonText(p.Value)
		default:
			rest = append(rest, p)
		}
	}
	return reason, description, rest
}

// UUIDFromToken returns the AMQP uuid of a lock token. The delivery-tag is the unchanged token, and clients
// read it as a GUID in the byte order of .NET: the first three groups are little-endian, whereas AMQP uses
// network order (docs/service-bus-protocol.md#lock-tokens).
func UUIDFromToken(token fsm.LockToken) wire.UUID { return wire.UUID(swapGUID(token)) }

// TokenFromUUID is the inverse of UUIDFromToken, for tokens in management requests.
func TokenFromUUID(id wire.UUID) fsm.LockToken { return fsm.LockToken(swapGUID(id)) }

// swapGUID converts a GUID from .NET's byte order to network order, or back.
func swapGUID(g [16]byte) [16]byte {
	return [16]byte{
		g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6],
		g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15],
	}
}
