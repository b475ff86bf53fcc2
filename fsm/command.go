package fsm

import "github.com/peeklock/peeklock/fsm/filter"

// Limits of commands. A command over a limit is refused with InvalidArgument or MessageTooLarge
// when it is built, and again when it is applied.
const (
	commandMessagesMax    = 4096      // messages of one SendMessages
	commandSettlementsMax = 4096      // settlements of one SettleMessages
	commandFetchMax       = 4096      // sequence numbers of one FetchDeferred
	messageIDBytesMax     = 128 * 4   // 128 characters
	reasonBytesMax        = 4096 * 4  // dead-letter reason or description
	propertiesBytesMax    = 64 * 1024 // properties to modify, for all patches of a message together
	entityNameBytesMax    = 260       // also the number of characters, because names are ASCII
	// pathBytesMax is the longest path of a subscription.
	pathBytesMax               = entityNameBytesMax + len("/Subscriptions/") + subscriptionNameCharactersMax
	answersOutstandingMax      = 16384 // remembered answers of one receiver
	receiversPerIncarnationMax = 65536 // receivers of one incarnation in one partition
	incarnationIdleMax         = Millis(10 * 60 * 1000)
	pulseMessagesMax           = 1000 // messages that one Pulse processes
	commandPurgeMax            = 4000 // messages of one PurgeMessages, as in Azure Service Bus
	commandRedriveMax          = 1000 // sequence numbers of one RedriveMessages
	// delayMax is how long the redelivery of an abandoned message can be delayed.
	delayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// Header makes a command exactly-once. The router of a member numbers its requests to a partition.
// The state machine remembers the answer to every (Incarnation, Receiver, Serial) until a later
// command of the receiver has a Low above that serial. A repeated command is answered from memory
// and not performed again (Raft dissertation, section 6.3). Incarnation 0 is the leader itself
// (pulses): its answers are not remembered.
type Header struct {
	Incarnation uint64 // of the requesting member, drawn at its start; 0: none
	Receiver    uint64 // 0 for ordinary requests, else one receiver, which has at most one request in flight
	Serial      uint64 // rises by one per receiver, from 1
	Low         uint64 // every Serial below it has been answered and need not be remembered
}

// Command is implemented by the command structs of this package, as values.
type Command interface{ command() }

// Message is a message to be sent. Payload is opaque to the state machine and is delivered
// unchanged.
type Message struct {
	ID      string // message-id as text, "" when absent
	Payload []byte
	// TimeToLive counts from the time at which the message is enqueued; 0 if the sender set none.
	// The DefaultTimeToLive of the queue replaces 0 and limits longer values
	// (docs/requirements.md#e1, #e4).
	TimeToLive Millis
	// EnqueueAt is the time at which the message becomes active. 0 or a past time means at once.
	EnqueueAt Instant
	// Properties are the properties that the rules of a topic can read, as written by
	// AppendProperties. The gateway sets them for messages to a topic only. Bytes that do not
	// decode are refused with InvalidArgument.
	Properties []byte
	// Session is the session of the message if HasSession is true. The gateway sets both for topics
	// and for entities that require sessions.
	Session    string // at most 128 characters; "" is a valid session
	HasSession bool
	// PartitionKey selects the shard of a partitioned entity, "" leaves the choice to the router.
	// It is not part of a command and never reaches a state machine.
	PartitionKey string
}

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

// SendMessages stores messages at the tail of a queue: all of them or none. Messages with an
// EnqueueAt in the future become Scheduled and get a sequence number like the others; when their
// time comes they get a new number, at the tail. With duplicate detection, a message whose id is
// remembered is accepted and not stored.
//
// Result: Sequence is the number of the first message stored, the others follow without gaps; 0 if
// all were duplicates. Sequences has one number per message, 0 for a duplicate; it is set only if
// there is a duplicate. Refused with EntityDisabled; MessageTooLarge, below format level 2 also
// when a topic would make more than publishingsMax copies of all messages together; or
// QuotaExceeded when the queue would hold more than MaxBytes or remember more ids than it can.
type SendMessages struct {
	Entity   EntityID
	Messages []Message
}

// LockMessages locks the oldest ready messages, or removes them from the queue with Delete
// (receive-and-delete). Result: Deliveries, at least one unless no message was ready; the first is
// delivered even if it alone exceeds MaxBytes. Expired messages are never delivered. Refused with
// EntityDisabled if the status of the entity forbids receiving.
type LockMessages struct {
	Address  Address
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes
	Delete   bool
	// Session, if its Epoch is not 0, asks for the next messages of that session: SessionLockLost
	// if the lock has ended. Entities with sessions require it: NotAllowed.
	Session SessionLock
}

// Settlement ends one lock.
type Settlement struct {
	Lock        LockID
	Verb        Verb
	Reason      string // DeadLetter only
	Description string // DeadLetter only
	// Until delays the redelivery of an abandoned message up to this time, at most 7 days ahead. 0
	// or a past time applies the queue's RetryDelay. Abandon only; a deferred message that was
	// fetched by number becomes Deferred again at once.
	Until Instant
	// Properties are merged into the application properties of the message at its next delivery:
	// the pairs of an AMQP map, opaque to the state machine.
	Properties []byte
}

// SettleMessages ends locks. Result: Codes, one per settlement, each OK or MessageLockLost.
// Settlements are independent: one that fails does not affect the others.
type SettleMessages struct {
	Address     Address
	Settlements []Settlement
}

// RenewLocks extends locks by the lock duration from now. Result: Codes and Untils,
// one per lock.
type RenewLocks struct {
	Address Address
	Locks   []LockID
}

// FetchDeferred locks deferred messages by number, or removes them with Delete. Result: Deliveries
// of the messages found; a number that is not deferred here, or has expired, is left out. Refused
// with EntityDisabled if the status of the entity forbids receiving.
type FetchDeferred struct {
	Address   Address
	Sequences []SequenceNumber
	Delete    bool
	Session   SessionLock // as in LockMessages; only messages of that session are found
}

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

// PutRule adds a rule to a subscription. Refused with EntityNotFound if there is no such
// subscription, InvalidArgument if Rule.Validate fails, RuleExists, or QuotaExceeded if the topic
// already has sqlRulesMax or correlationRulesMax rules, or rulesBytesMax bytes of them. The rule
// applies to messages that are published after it.
type PutRule struct {
	Subscription EntityID
	Rule         Rule
	Replace      bool // replace the rule of that name: RuleNotFound if there is none
}

// DropRule removes a rule by name, case-insensitively. Refused with RuleNotFound or EntityNotFound.
type DropRule struct {
	Subscription EntityID
	Name         string
}

// ForwardMessages advances the outbox of a sub-queue that forwards its messages. It needs no
// header: the leader of the source partition can repeat it at any time with Incarnation 0.
//
//	Done   ends the batch with that serial: messages that arrived are deleted, the others
//	       (Codes) move to the transfer dead-letter queue. Another serial changes nothing.
//	To     then takes the next batch, oldest ready messages first, unless a batch is in
//	       flight, no message is ready, or the settings no longer name a destination. Zero
//	       takes none. A message that was forwarded hopsMax times is dead-lettered with
//	       reason MaxTransferHopCountExceeded. From a TransferQueue, To only permits a batch:
//	       it contains, in order, messages with the destination of the oldest one.
//
// Result: the batch in flight: Serial, To (its destination, whatever the settings say now) and
// Deliveries; Serial 0 if there is none.
type ForwardMessages struct {
	Address  Address // MainQueue (ForwardTo), DeadLetterQueue (ForwardDeadLettersTo) or TransferQueue
	Done     uint64
	Codes    []Code // one per message of batch Done; empty if all arrived
	To       Destination
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes; a batch contains at least one message
}

// Destination is the entity that a batch is sent to.
type Destination struct {
	Partition PartitionID
	Entity    EntityID
}

// TransferMessages stores messages that another entity forwards, exactly once: a Serial that is not
// above the last one accepted from this Source gets the same answer again and is not performed. It
// needs no header. Result: Codes, one per message: OK, MessageTooLarge or QuotaExceeded. Refused as
// a whole with EntityNotFound, EntityDisabled or InvalidArgument, and with Stale if Serial is below
// the last one accepted, whose answer the source already has.
type TransferMessages struct {
	Entity   EntityID // queue or topic
	Source   Outbox
	Serial   uint64
	Messages []Transferred
}

// Outbox identifies the sub-queue that a batch comes from.
type Outbox struct {
	Partition PartitionID
	Address   Address
}

// Transferred is a message in transit between two entities.
type Transferred struct {
	Message
	Patches []byte // as written by AppendPatches; they stay with the message
	Hops    uint8  // number of times it was forwarded, this one included: 1 to hopsMax; 0 from a TransferQueue
}

// Pulse publishes Pending messages, within the budget of an entry, and processes what is due at
// Env.Now: at most pulseMessagesMax messages, earliest first. The leader proposes one when
// NextDeadline is due.
type Pulse struct{}

func (PutEntity) command()        {}
func (DropEntity) command()       {}
func (SendMessages) command()     {}
func (LockMessages) command()     {}
func (SettleMessages) command()   {}
func (RenewLocks) command()       {}
func (FetchDeferred) command()    {}
func (CloseReceiver) command()    {}
func (Pulse) command()            {}
func (CancelScheduled) command()  {}
func (PurgeMessages) command()    {}
func (RedriveMessages) command()  {}
func (Touch) command()            {}
func (PutRule) command()          {}
func (DropRule) command()         {}
func (ForwardMessages) command()  {}
func (TransferMessages) command() {}

// EntitySettings are the settings of an entity. For a topic only MaxMessageBytes,
// DefaultTimeToLive, the two settings of duplicate detection, AutoDeleteOnIdle, MaxBytes, Status
// and UserMetadata have an effect; for a subscription all but MaxMessageBytes, MaxBytes and the two
// of duplicate detection, which are those of its topic. A zero value that is not valid stands for
// the default, so settings that name few fields are complete.
type EntitySettings struct {
	LockDuration     Millis `json:"LockDuration"`     // 5 s to 24 h; above 5 min only if the namespace allows it
	MaxDeliveryCount uint32 `json:"MaxDeliveryCount"` // 1 to 2000: failed deliveries after which a message is dead-lettered
	MaxMessageBytes  uint32 `json:"MaxMessageBytes"`  // largest payload accepted

	// DefaultTimeToLive is the time to live of messages that have none of their own, and the
	// maximum for the others (docs/requirements.md#e4). At least 1 ms; the default, Forever, means
	// no expiry.
	DefaultTimeToLive Millis `json:"DefaultTimeToLive"`
	// DeadLetterOnExpiry moves expired messages to the dead-letter queue instead of deleting them
	// (docs/requirements.md#e5).
	DeadLetterOnExpiry bool `json:"DeadLetterOnExpiry"`
	// RequiresDuplicateDetection cannot be changed after creation.
	RequiresDuplicateDetection bool   `json:"RequiresDuplicateDetection"`
	DuplicateWindow            Millis `json:"DuplicateWindow"` // 20 s to 7 days, default 10 min: how long message ids are remembered
	// AutoDeleteOnIdle is the idle time after which the entity is deleted automatically
	// (docs/requirements.md#e7): at least 5 min, default Forever.
	AutoDeleteOnIdle Millis `json:"AutoDeleteOnIdle"`
	// MaxBytes is the maximum size of all payloads of the entity, in all sub-queues: 1 MiB to 80
	// GiB, default 1 GiB.
	MaxBytes     uint64       `json:"MaxBytes"`
	Status       EntityStatus `json:"Status"`
	UserMetadata string       `json:"UserMetadata"` // UTF-8, at most 1024 bytes

	// DeadLetterOnFilterErrors stores a message for which a rule of this subscription fails in the
	// dead-letter queue. Subscriptions only.
	DeadLetterOnFilterErrors bool `json:"DeadLetterOnFilterErrors"`
	// ForwardTo is the queue or topic to which all messages are forwarded, and ForwardDeadLettersTo
	// the one for dead letters; "" means no forwarding. At most 260 bytes. While one is set, nobody
	// can receive from the sub-queue concerned. Not for topics.
	ForwardTo            string `json:"ForwardTo"`
	ForwardDeadLettersTo string `json:"ForwardDeadLettersTo"`
	// RequiresSession cannot be changed after creation. Not for topics.
	RequiresSession bool `json:"RequiresSession"`
	// EnablePartitioning distributes the entity over up to ShardsMax partitions (Entity.Shards). It
	// cannot be changed after creation. Each shard is an entity of its own for the state machine:
	// MaxBytes and the order of messages apply to each of them. Not for subscriptions, which have
	// the shards of their topic, and not together with AutoDeleteOnIdle: a shard cannot see whether
	// the others are in use.
	EnablePartitioning bool `json:"EnablePartitioning"`

	// The following settings do not exist in Azure Service Bus and are off by default.

	// DeadLetterTimeToLive is the time for which dead letters are kept, to the second. At least 1
	// s; default Forever.
	DeadLetterTimeToLive Millis `json:"DeadLetterTimeToLive"`
	// RetryDelay delays redelivery after a failed delivery (abandoned, or the lock expired):
	// RetryDelay after the first, twice as long after each further one, at most RetryDelayMax. Both
	// 0, or 1 ms <= RetryDelay <= RetryDelayMax <= 7 days.
	RetryDelay    Millis `json:"RetryDelay"`
	RetryDelayMax Millis `json:"RetryDelayMax"`
}

// Delivery is one message returned by LockMessages, FetchDeferred, ForwardMessages or a peek.
type Delivery struct {
	Lock             LockID
	State            MessageState
	FailedDeliveries uint32  // earlier deliveries that failed
	Enqueued         Instant // when it was accepted
	LockedUntil      Instant // zero when not locked
	// Expires is the end of the message's time to live; for a scheduled message, if the settings
	// stay as they are. Zero if it never expires, and in the dead-letter queue.
	Expires Instant
	Body    Ref    // location of Payload on this replica
	Patch   Ref    // location of Patches; zero if there are none
	Payload []byte // filled in by partition, after apply
	Patches []byte // filled in by partition: for DecodePatches
	// Topic is the sequence number of the message at the topic of this subscription, 0 in a queue.
	Topic SequenceNumber
	Hops  uint8 // number of times it was forwarded
}

// Patch is one change of a message since it was sent, in order of the changes: by a settlement, by
// the action of a rule, or by forwarding.
type Patch struct {
	DeadLetter  bool // Reason and Description are set
	Reason      string
	Description string
	Properties  []byte   // AMQP map body, as in Settlement
	Changes     []Change // made by the action of a rule
	// Enqueued is the sequence number at the entity to which the message was sent first, before it
	// was forwarded: x-opt-enqueue-sequence-number. 0: not in this patch.
	Enqueued SequenceNumber
	// Source is the path of the entity from whose dead-letter queue the message was forwarded:
	// x-opt-deadletter-source. "": not in this patch.
	Source string
	// To and ToName are the destination of a message of a transfer queue; they are removed on
	// arrival. Zero: not in this patch.
	To     Destination
	ToName string // path
}

// Change is the change of one property by an action.
type Change struct {
	Property filter.Property
	Value    filter.Value // may be NULL
	Remove   bool         // Value is ignored
}

// Result is the answer to a command. Unless a comment says otherwise, a field is zero for other
// commands.
type Result struct {
	Code       Code
	Sequence   SequenceNumber // SendMessages
	Deliveries []Delivery     // LockMessages, FetchDeferred, ForwardMessages
	Codes      []Code         // SettleMessages, RenewLocks, TransferMessages
	Untils     []Instant      // RenewLocks
	Entity     EntityID       // catalog: of the created entity
	Namespace  NamespaceID    // catalog: of the created namespace
	Version    uint64         // catalog: of the entity's settings
	Count      uint64         // PurgeMessages, RedriveMessages
	// Sequences has one number per message of a SendMessages with duplicates, or of a Transact: 0
	// for a duplicate.
	Sequences []SequenceNumber
	Serial    uint64      // ForwardMessages
	To        Destination // ForwardMessages
	Session   SessionLock // AcceptSession
}

// Counts are the numbers of messages of an entity by state, and the bytes of their payloads.
type Counts struct {
	Active     uint64 `json:"Active"`     // ready and locked, main queue
	Locked     uint64 `json:"Locked"`     // main queue
	Deferred   uint64 `json:"Deferred"`   // main queue
	Scheduled  uint64 `json:"Scheduled"`  // main queue: not yet enqueued, or redelivery delayed; at a topic also not yet published
	DeadLetter uint64 `json:"DeadLetter"` // dead-letter queue, every state, without what Transfer counts
	Bytes      uint64 `json:"Bytes"`      // all sub-queues; for a topic what its subscriptions share
	// Transfer counts messages of all sub-queues that wait to be forwarded or are in flight.
	Transfer           uint64 `json:"Transfer"`
	TransferDeadLetter uint64 `json:"TransferDeadLetter"` // transfer dead-letter queue
	Subscriptions      uint64 `json:"Subscriptions"`      // of a topic
	Sessions           uint64 `json:"Sessions"`           // sessions that have messages or state, or are locked
}

// EffectKind is the kind of an Effect.
type EffectKind uint8

// The kinds of effects.
const (
	EffectReady EffectKind = 0 // Ready messages are available at Address after this apply
	EffectIdle  EffectKind = 1 // Address.Entity was deleted automatically because it was idle
	// EffectForward means that messages at Address are ready to be forwarded.
	EffectForward EffectKind = 2
	// EffectSession means that Ready sessions at Address can be accepted.
	EffectSession EffectKind = 3
	// EffectSessionLost means that the lock of Session has expired: its holder, if it waits for
	// messages, must be notified.
	EffectSessionLost EffectKind = 4
)

// Effect is work for the leader after an apply. Followers discard it.
type Effect struct {
	Address Address
	Session string // EffectReady at an entity with sessions, EffectSessionLost: which one
	Ready   uint64
	Kind    EffectKind
}
