package settlement

import (
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// DeliveryTimeMax is how far ahead the delivery time of an abandoned message may be.
const DeliveryTimeMax = 7 * 24 * time.Hour

// DeliveryTimeKey is the annotation that delays an abandoned message: the message is not delivered before that
// time. The cloud has no such annotation; its users ask for one.
const DeliveryTimeKey = "x-opt-delivery-time"

// SetModifications adds to a settlement the properties that are merged into the message. The delivery time of
// an abandoned message is not a property: it determines when the message becomes available again.
func SetModifications(s *fsm.Settlement, properties wire.Map) refusal.Cause {
	rest := properties
	for i, p := range properties {
		if key, _ := wire.AsText(p.Key); key == DeliveryTimeKey {
			if cause := setDeliveryTime(s, p.Value); cause.Condition != "" {
				return cause
			}
			rest = slices.Concat(properties[:i], properties[i+1:])
		}
	}
	encoded, err := message.EncodeProperties(rest)
	if err != nil {
		return refusal.Of("A property to modify", err)
	}
	s.Properties = encoded
	return refusal.Cause{}
}

// setDeliveryTime adds the time of the next delivery to a settlement.
func setDeliveryTime(s *fsm.Settlement, at any) refusal.Cause {
	until, ok := message.InstantOf(at)
	switch {
	case s.Verb != fsm.Abandon:
		return refusal.New(wire.ConditionArgumentError, "Only a message that is abandoned can have a delivery time. Abandon it, or leave %s out.", DeliveryTimeKey)
	case !ok:
		return refusal.New(wire.ConditionInvalidField, "The annotation %s is not a time. Give it as a timestamp, as a com.microsoft:datetime-offset, or as a long of milliseconds since 1970.", DeliveryTimeKey)
	case until > fsm.Instant(time.Now().Add(DeliveryTimeMax).UnixMilli()):
		return refusal.New(wire.ConditionArgumentOutOfRange, "The delivery time is more than %d days ahead. Choose an earlier one.", DeliveryTimeMax/(24*time.Hour))
	}
	s.Until = until
	return refusal.Cause{}
}
