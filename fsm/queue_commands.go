package fsm

import "github.com/peeklock/peeklock/fsm/fields"

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

// ReserveNumbers reserves sequence numbers for messages that a transaction schedules at an entity later. Result:
// Sequence, the first of them. Numbers that are not used remain a gap. Refused with EntityNotFound or EntityDisabled.
type ReserveNumbers struct {
	Entity EntityID
	Count  uint32 // 1 to 100
}

// PurgeMessages deletes ready messages, lowest number first. Result: Count.
type PurgeMessages struct {
	Address Address
	Before  Instant // only messages enqueued before it; 0: all
	Max     uint32  // messages, 1 to 4000
}

// RedriveMessages moves ready dead letters back to the main queue. They keep their number; failed
// deliveries, reason and description are cleared, and the time to live starts again. A number that
// is not a ready dead letter is left out. Result: Count; Sequence is the number from which on the command has to be repeated,
// because the entry has rewritten as many bytes as it may, 0 if all is done.
type RedriveMessages struct {
	Entity    EntityID
	Sequences []SequenceNumber // 1 to 1000
}

// Touch records activity that changes nothing else: peeks and waiting receives
// (docs/requirements.md#e8).
type Touch struct{ Entity EntityID }

// Pulse publishes Pending messages, within the budget of an entry, and processes what is due at
// the times of the entry: at most PulseMessagesMax messages, earliest first. The leader proposes one when
// NextDeadline is due.
type Pulse struct{}

// ValidKind reports whether an entity of that kind can have this topic and first rule.
func ValidKind(kind EntityKind, topic EntityID, rule *Rule) bool {
	return kind <= SubscriptionEntity && (kind == SubscriptionEntity) == (topic != 0) &&
		(rule == nil || kind == SubscriptionEntity && rule.Validate() == nil)
}

func (PutEntity) kind() Kind                           { return KindPutEntity }
func (c PutEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c PutEntity) Check() Code {
	return CodeIf(c.Entity != 0 && c.Settings.ValidFor(c.Kind) && ValidKind(c.Kind, c.Topic, c.Rule))
}

func (c *PutEntity) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fields.Uint64(x, &c.Version)
	c.Settings.Fields(x)
	fields.Uint8(x, &c.Kind)
	fields.Uint64(x, &c.Topic)
	fieldFirstRule(x, &c.Rule)
}

func (DropEntity) kind() Kind                           { return KindDropEntity }
func (c DropEntity) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c DropEntity) Check() Code { return CodeIf(c.Entity != 0) }

func (c *DropEntity) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
}

func (CloseReceiver) kind() Kind                           { return KindCloseReceiver }
func (c CloseReceiver) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (CloseReceiver) Check() Code { return OK }

func (c *CloseReceiver) fields(x *fields.Codec) {
	fields.Fixed64(x, &c.Incarnation)
	fields.Uint64(x, &c.Receiver)
}

func (CancelScheduled) kind() Kind                           { return KindCancelScheduled }
func (c CancelScheduled) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c CancelScheduled) Check() Code { return CodeIf(Within(len(c.Sequences), commandFetchMax)) }

// Fields lists the fields of the record for the codec.
func (c *CancelScheduled) Fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fields.Uint64s(x, &c.Sequences)
}

func (ReserveNumbers) kind() Kind                           { return KindReserveNumbers }
func (c ReserveNumbers) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c ReserveNumbers) Check() Code { return CodeIf(Within(int(c.Count), transactionSendsMax)) }

func (c *ReserveNumbers) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fields.Uint32(x, &c.Count)
}

func (PurgeMessages) kind() Kind                           { return KindPurgeMessages }
func (c PurgeMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c PurgeMessages) Check() Code {
	return CodeIf(Within(int(c.Max), CommandPurgeMax) && c.Address.Valid() && c.Before >= 0)
}

func (c *PurgeMessages) fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Int64(x, &c.Before)
	fields.Uint32(x, &c.Max)
}

func (RedriveMessages) kind() Kind                           { return KindRedriveMessages }
func (c RedriveMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c RedriveMessages) Check() Code { return CodeIf(Within(len(c.Sequences), commandRedriveMax)) }

func (c *RedriveMessages) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fields.Uint64s(x, &c.Sequences)
}

func (Touch) kind() Kind                           { return KindTouch }
func (c Touch) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (Touch) Check() Code { return OK }

func (c *Touch) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
}

func (Pulse) kind() Kind { return KindPulse }

// Check implements [Command].
func (Pulse) Check() Code                        { return OK }
func (Pulse) encode(x fields.Codec) fields.Codec { return x }
