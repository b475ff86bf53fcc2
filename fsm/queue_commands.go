package fsm

import "encoding/binary"

// PutEntity creates an entity or changes its settings. Version is assigned by the catalog; a
// command with a Version at or below the current one changes nothing and returns OK. An entity that
// was deleted automatically (AutoDeleteOnIdle) is not created again: EntityNotFound. A subscription
// requires its Topic in the same partition: EntityNotFound otherwise. Kind and Topic never change.
type PutEntity struct {
	Entity   EntityID
	Version  uint64
	Settings EntitySettings
	Kind     EntityKind
	Topic    EntityID // of a subscription, else 0
	// Rule is the first rule of a new subscription; nil stands for the rule DefaultRuleName, which
	// matches all messages. It is ignored if the subscription exists.
	Rule *Rule
}

// DropEntity removes an entity and its contents, a topic together with its subscriptions, and the
// tombstone of an entity that was deleted automatically. Dropping an unknown entity is OK.
type DropEntity struct{ Entity EntityID }

// CloseReceiver forgets the answers of a receiver that has been closed.
type CloseReceiver struct{ Incarnation, Receiver uint64 }

// CancelScheduled removes scheduled messages, all of them or none: MessageNotFound if one is not
// waiting to be enqueued, which includes messages whose redelivery was delayed by an Abandon.
type CancelScheduled struct {
	Entity    EntityID
	Sequences []SequenceNumber // 1 to 4096
}

// PurgeMessages deletes ready messages, lowest number first. Result: Count.
type PurgeMessages struct {
	Address Address
	Before  Instant // only messages enqueued before it; 0: all
	Max     uint32  // messages, 1 to 4000
}

// RedriveMessages moves ready dead letters back to the main queue. They keep their number; failed
// deliveries, reason and description are cleared, and the time to live starts again. A number that
// is not a ready dead letter is left out. Result: Count.
type RedriveMessages struct {
	Entity    EntityID
	Sequences []SequenceNumber // 1 to 1000
}

// Touch records activity that changes nothing else: peeks and waiting receives
// (docs/requirements.md#e8).
type Touch struct{ Entity EntityID }

// Pulse publishes Pending messages, within the budget of an entry, and processes what is due at
// Env.Now: at most pulseMessagesMax messages, earliest first. The leader proposes one when
// NextDeadline is due.
type Pulse struct{}

func appendPutEntity(dst []byte, c PutEntity) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	dst = binary.AppendUvarint(dst, c.Version)
	dst = append(appendSettings(dst, c.Settings), byte(c.Kind))
	return appendFirstRule(binary.AppendUvarint(dst, uint64(c.Topic)), c.Rule)
}

func (r *reader) putEntity() PutEntity {
	return PutEntity{
		Entity: EntityID(r.uvarint()), Version: r.uvarint(), Settings: r.settings(),
		Kind: EntityKind(r.byte()), Topic: EntityID(r.uvarint()), Rule: r.firstRule(),
	}
}

// validKind reports whether an entity of that kind can have this topic and first rule.
func validKind(kind EntityKind, topic EntityID, rule *Rule) bool {
	return kind <= SubscriptionEntity && (kind == SubscriptionEntity) == (topic != 0) &&
		(rule == nil || kind == SubscriptionEntity && rule.Validate() == nil)
}

func appendPurgeMessages(dst []byte, c PurgeMessages) []byte {
	dst = binary.AppendUvarint(appendAddress(dst, c.Address), uint64(c.Before))
	return binary.AppendUvarint(dst, uint64(c.Max))
}

func (r *reader) purgeMessages() PurgeMessages {
	return PurgeMessages{Address: r.address(), Before: r.instant(), Max: r.uint32()}
}

func (r *reader) closeReceiver() CloseReceiver {
	return CloseReceiver{Incarnation: r.fixed64(), Receiver: r.uvarint()}
}
