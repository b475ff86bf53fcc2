package fsm

import "github.com/peeklock/peeklock/fsm/filter"

// The limits of commands. A command over a limit is refused with InvalidArgument or
// MessageTooLarge when it is built and again when it is applied.
const (
	commandMessagesMax    = 4096      // messages of one SendMessages
	commandSettlementsMax = 4096      // settlements of one SettleMessages
	commandFetchMax       = 4096      // sequence numbers of one FetchDeferred
	messageIDBytesMax     = 128 * 4   // 128 characters
	reasonBytesMax        = 4096 * 4  // dead-letter reason or description
	propertiesBytesMax    = 64 * 1024 // properties to modify, all patches of a message together
	entityNameBytesMax    = 260       // characters too: names are ASCII
	// pathBytesMax is the longest path of a subscription.
	pathBytesMax               = entityNameBytesMax + len("/Subscriptions/") + subscriptionNameCharactersMax
	answersOutstandingMax      = 16384 // answers kept for one receiver
	receiversPerIncarnationMax = 65536 // receivers of one incarnation in one partition
	incarnationIdleMax         = Millis(10 * 60 * 1000)
	pulseMessagesMax           = 1000 // messages that one Pulse moves
	commandPurgeMax            = 4000 // messages of one PurgeMessages: what the cloud allows
	commandRedriveMax          = 1000 // sequence numbers of one RedriveMessages
	// delayMax is how far ahead an abandoned message may be put off.
	delayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// Header makes a command exactly-once. A member's router numbers what it asks of a
// partition; the machine remembers the answer to every (Origin, Receiver, Serial) until a
// later command of the receiver carries a Low above it. A command seen again is answered
// from memory and not performed (Raft dissertation, 6.3). Origin 0 is the leader
// itself (pulses): nothing is remembered.
type Header struct {
	Incarnation uint64 // incarnation of the asking member, drawn at its start; 0 = none
	Receiver    uint64 // 0 for ordinary requests, else one receiver (at most one request at a time)
	Serial      uint64 // rises by one per receiver, from 1
	Low         uint64 // every Serial below it has been answered and need not be remembered
}

// Command is one of the command structs of this package.
type Command interface{ command() }

// Message is a message as a gateway hands it over. Payload is opaque to the machine
// and comes back byte for byte at delivery.
type Message struct {
	ID      string // message-id as text, "" when absent
	Payload []byte
	// TimeToLive counts from the moment at which the message is enqueued; 0 when the
	// sender gave none. The queue's DefaultTimeToLive takes its place then, and cuts what
	// is longer (docs/requirements.md#e1, #e4).
	TimeToLive Millis
	// EnqueueAt is when the message becomes active. A moment that is not in the future,
	// or 0, means at once.
	EnqueueAt Instant
	// Properties are what the rules of a topic can ask about, as AppendProperties writes
	// them. The gateway gives them for a message sent to a topic and leaves them out else.
	// Bytes that do not decode are refused with InvalidArgument.
	Properties []byte
	// Session is the session of the message where HasSession; the gateway gives it for
	// entities that require sessions and for topics.
	Session    string // at most 128 characters; "" is a session too
	HasSession bool
	// PartitionKey says which shard of a partitioned entity the message goes to, "" leaves
	// it open. It is for those who route: no command carries it, and no machine sees it.
	PartitionKey string
}

// PutEntity makes an entity or changes its settings. Version comes from the catalog; a
// Version at or below the one held changes nothing and is answered OK. An entity that
// deleted itself for being idle is not made again: EntityNotFound. A subscription wants
// its Topic here: EntityNotFound else. Kind and Topic never change.
type PutEntity struct {
	Entity   EntityID
	Version  uint64
	Settings EntitySettings
	Kind     EntityKind
	Topic    EntityID // of a subscription, else 0
	// Rule is the rule that a subscription is made with; nil is the rule DefaultRuleName
	// that takes everything. It has no effect on a subscription that is there.
	Rule *Rule
}

// DropEntity removes an entity and everything in it, a topic with its subscriptions, and
// what is remembered of an entity that deleted itself. Dropping an unknown one is OK.
type DropEntity struct{ Entity EntityID }

// SendMessages stores messages at the tail of a queue: all of them or none. Those with
// an EnqueueAt in the future become Scheduled and get a number like the others; when
// their time comes they get another one, at the tail. Where duplicates are detected, a
// message whose id is remembered is accepted and not stored.
//
// Result: Sequence is the number of the first message stored, the others follow
// without gaps; 0 when all were duplicates. Sequences, with one number per message and
// 0 for every duplicate, is given only when there is a duplicate. Refused with
// EntityDisabled, MessageTooLarge, below Level 2 also when a topic would make more than
// publishingsMax copies of all, or QuotaExceeded when the queue would hold more than
// MaxBytes or remember more ids than it may.
type SendMessages struct {
	Entity   EntityID
	Messages []Message
}

// LockMessages takes the oldest ready messages under a peek-lock, or for good with
// Delete (receive-and-delete). Result: Deliveries, at least one unless nothing was
// ready; the first is given even when it alone is over MaxBytes. What has expired is
// never given. Refused with EntityDisabled by status.
type LockMessages struct {
	Address  Address
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes
	Delete   bool
	// Session, where its Epoch is not 0, asks for the next messages of that session:
	// SessionLockLost when the lock has ended. Entities with sessions want it: NotAllowed.
	Session SessionLock
}

// Settlement ends one lock.
type Settlement struct {
	Lock        LockID
	Verb        Verb
	Reason      string // DeadLetter only
	Description string // DeadLetter only
	// Until puts an abandoned message off: it is not given out before this moment, which
	// is at most 7 days ahead. 0 or a past moment leaves it to the queue's RetryDelay.
	// Abandon only; a message that was fetched by number goes back to Deferred at once.
	Until Instant
	// Properties are merged into the application properties of the message when it
	// is next delivered: an AMQP map body (pairs), opaque to the machine.
	Properties []byte
}

// SettleMessages ends locks. Result: Codes, one per settlement, each OK or
// MessageLockLost; the settlements stand alone, one that fails does not stop others.
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

// FetchDeferred locks (or takes, with Delete) deferred messages by number. Result:
// Deliveries of those found; a number that is not deferred here, or has expired, is left
// out. Refused with EntityDisabled by status.
type FetchDeferred struct {
	Address   Address
	Sequences []SequenceNumber
	Delete    bool
	Session   SessionLock // as in LockMessages; finds messages of that session only
}

// CloseReceiver forgets a receiver whose asker has gone.
type CloseReceiver struct{ Incarnation, Receiver uint64 }

// CancelScheduled removes messages whose time has not come, all of them or none:
// MessageNotFound when one is not waiting to be enqueued (also when it only was put
// off by an Abandon).
type CancelScheduled struct {
	Entity    EntityID
	Sequences []SequenceNumber // 1 to 4096
}

// PurgeMessages removes ready messages for good, oldest number first. Result: Count.
type PurgeMessages struct {
	Address Address
	Before  Instant // only messages enqueued before it; 0 = all
	Max     uint32  // messages, 1 to 4000
}

// RedriveMessages brings dead letters that are ready back to the main queue: under
// their old number, with no attempts, without the reason and description they were
// dead-lettered with, and with their time to live from now on. A number that is not a
// ready dead letter is left out. Result: Count.
type RedriveMessages struct {
	Entity    EntityID
	Sequences []SequenceNumber // 1 to 1000
}

// Touch notes activity that leaves no other trace here: peeks and waiting receives
// (docs/requirements.md#e8).
type Touch struct{ Entity EntityID }

// PutRule adds a rule to a subscription. Refused with EntityNotFound when there is no such
// subscription, InvalidArgument when the rule does not pass Rule.Validate, RuleExists,
// or QuotaExceeded when the topic has sqlRulesMax or correlationRulesMax rules already, or
// rulesBytesMax of them.
// Messages sent before it are not looked at again.
type PutRule struct {
	Subscription EntityID
	Rule         Rule
	Replace      bool // put it in the place of the rule of that name: RuleNotFound if there is none
}

// DropRule removes a rule by name, without regard to case: RuleNotFound, EntityNotFound.
type DropRule struct {
	Subscription EntityID
	Name         string
}

// ForwardMessages moves the outbox of a sub-queue with a destination on. It needs no
// header: the leader of the source asks it with Origin 0, as often as it likes.
//
//	Done   ends the batch of that serial: what arrived goes, what did not (Codes) moves to
//	       the transfer dead-letter queue. An older or unknown serial changes nothing.
//	To     then takes the next batch, oldest ready messages first, unless one is out or
//	       nothing is ready or the setting names no destination any more; zero takes none.
//	       A message that was forwarded hopsMax times is dead-lettered instead, with reason
//	       MaxTransferHopCountExceeded. From a TransferQueue those are taken, in order, that go
//	       where the oldest goes, and To says no more than that some may be.
//
// Result: the batch that is out: Serial, To (where it goes, whatever the settings say now)
// and Deliveries; Serial 0 when there is none.
type ForwardMessages struct {
	Address  Address // MainQueue (ForwardTo), DeadLetterQueue (ForwardDeadLettersTo) or TransferQueue
	Done     uint64
	Codes    []Code // one per message of batch Done; none when all arrived
	To       Destination
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes; one message is always taken
}

// Destination is where a batch goes.
type Destination struct {
	Partition PartitionID
	Entity    EntityID
}

// TransferMessages stores messages that another entity forwards, once: a Serial that is
// not above the last one taken from this Source is answered as it was and not performed.
// It needs no header. Result: Codes, one per message: OK, MessageTooLarge or QuotaExceeded.
// Refused as a whole with EntityNotFound, EntityDisabled or InvalidArgument, and Stale when
// Serial is below the last one taken: nobody waits for that answer any more.
type TransferMessages struct {
	Entity   EntityID // queue or topic
	Source   Outbox
	Serial   uint64
	Messages []Transferred
}

// Outbox names the sub-queue that a batch comes from.
type Outbox struct {
	Partition PartitionID
	Address   Address
}

// Transferred is a message on its way between two entities.
type Transferred struct {
	Message
	Patches []byte // as AppendPatches writes them; they stay with the message
	Hops    uint8  // how often it was forwarded, this time included: 1 to hopsMax; 0 from a TransferQueue
}

// Pulse publishes what is Pending, as much as an entry may, and lets time pass: what is due
// at Env.Now happens, at most pulseMessagesMax messages at a time, earliest first. The leader
// proposes one when NextDeadline is due.
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

// EntitySettings is what an operator chooses for an entity. Of a topic only MaxMessageBytes,
// DefaultTimeToLive, the two of duplicates, AutoDeleteOnIdle, MaxBytes, Status and
// UserMetadata have an effect; of a subscription all but MaxMessageBytes, MaxBytes and the
// two of duplicates, which are its topic's. Where the zero value is no
// valid choice it stands for the default, so settings that name few fields are complete.
type EntitySettings struct {
	LockDuration     Millis `json:"LockDuration"`     // 5 s to 24 h; above 5 min only where the namespace allows it
	MaxDeliveryCount uint32 `json:"MaxDeliveryCount"` // 1 to 2000: attempts after which a message is dead-lettered
	MaxMessageBytes  uint32 `json:"MaxMessageBytes"`  // largest payload accepted

	// DefaultTimeToLive is how long messages live that say nothing themselves, and the
	// ceiling for those that do (docs/requirements.md#e4). At least 1 ms; Forever, the default, never ends.
	DefaultTimeToLive Millis `json:"DefaultTimeToLive"`
	// DeadLetterOnExpiry moves what expires to the dead-letter queue instead of dropping
	// it (docs/requirements.md#e5).
	DeadLetterOnExpiry bool `json:"DeadLetterOnExpiry"`
	// RequiresDuplicateDetection cannot be changed once the queue is made.
	RequiresDuplicateDetection bool   `json:"RequiresDuplicateDetection"`
	DuplicateWindow            Millis `json:"DuplicateWindow"` // 20 s to 7 days, default 10 min: how long an id is remembered
	// AutoDeleteOnIdle is how long the queue may be idle before it deletes itself (docs/requirements.md#e7):
	// 5 min at least, default Forever.
	AutoDeleteOnIdle Millis `json:"AutoDeleteOnIdle"`
	// MaxBytes bounds the payloads held in both sub-queues: 1 MiB to 80 GiB, default 1 GiB.
	MaxBytes     uint64       `json:"MaxBytes"`
	Status       EntityStatus `json:"Status"`
	UserMetadata string       `json:"UserMetadata"` // UTF-8, at most 1024 bytes

	// DeadLetterOnFilterErrors keeps a message that a rule of this subscription fails on, in
	// its dead-letter queue. Subscriptions only.
	DeadLetterOnFilterErrors bool `json:"DeadLetterOnFilterErrors"`
	// ForwardTo names the queue or topic that all messages are sent on to, and
	// ForwardDeadLettersTo that for dead letters; "" keeps them here. At most 260 bytes. While
	// set, nobody can receive from the sub-queue concerned. Not for topics.
	ForwardTo            string `json:"ForwardTo"`
	ForwardDeadLettersTo string `json:"ForwardDeadLettersTo"`
	// RequiresSession cannot be changed once the entity is made. Not for topics.
	RequiresSession bool `json:"RequiresSession"`
	// EnablePartitioning spreads the entity over up to ShardsMax partitions (Entity.Shards). It
	// cannot be changed once the entity is made. Each shard is a machine's entity of its own:
	// MaxBytes bounds each of them, order is kept within each. Not for subscriptions, which are
	// spread as their topic is, and not together with AutoDeleteOnIdle: a shard does not see
	// that the others are in use.
	EnablePartitioning bool `json:"EnablePartitioning"`

	// What follows goes beyond the cloud and is off by default.

	// DeadLetterTimeToLive is how long dead letters are kept, from when they were
	// dead-lettered, to the second. At least 1 s; default Forever.
	DeadLetterTimeToLive Millis `json:"DeadLetterTimeToLive"`
	// RetryDelay puts a message off after a failed attempt (abandoned, or its lock ran
	// out): RetryDelay after the first, twice as long after each further one, at most
	// RetryDelayMax. Both 0, or 1 ms <= RetryDelay <= RetryDelayMax <= 7 days.
	RetryDelay    Millis `json:"RetryDelay"`
	RetryDelayMax Millis `json:"RetryDelayMax"`
}

// Delivery is one message given out by LockMessages, FetchDeferred or a peek.
type Delivery struct {
	Lock             LockID
	State            MessageState
	FailedDeliveries uint32  // deliveries before this one that failed
	Enqueued         Instant // when it was accepted
	LockedUntil      Instant // zero when not locked
	// Expires is when the message's time to live ends; of a scheduled one, if settings
	// stay as they are. Zero when it never does, and in the dead-letter queue.
	Expires Instant
	Body    Ref    // where Payload lies on this replica
	Patch   Ref    // where Patches lie; zero when there are none
	Payload []byte // filled in by partition, after apply
	Patches []byte // filled in by partition: for DecodePatches
	// Topic is the number that the message got at the topic of this subscription, 0 in a queue.
	Topic SequenceNumber
	Hops  uint8 // how often it was forwarded
}

// Patch is one change made to a message after it was sent, in the order made: by a
// settlement, by the action of a rule, or by being forwarded.
type Patch struct {
	DeadLetter  bool // Reason and Description are meaningful
	Reason      string
	Description string
	Properties  []byte   // AMQP map body, as in Settlement
	Changes     []Change // made by the action of a rule
	// Enqueued is the number that the message got where it was sent first, before it was
	// forwarded: x-opt-enqueue-sequence-number. 0: not said here.
	Enqueued SequenceNumber
	// Source is the path of the entity whose dead-letter queue the message was forwarded
	// from: x-opt-deadletter-source. "": not said here.
	Source string
	// To and ToName say where a message of a transfer queue goes: they are not said of
	// messages that have arrived. Zero: not said here.
	To     Destination
	ToName string // path
}

// Change is what an action did to one property.
type Change struct {
	Property filter.Property
	Value    filter.Value // NULL may be set too
	Remove   bool         // Value has no meaning
}

// Result answers the proposer.
type Result struct {
	Code       Code
	Sequence   SequenceNumber // SendMessages
	Deliveries []Delivery     // LockMessages, FetchDeferred, ForwardMessages
	Codes      []Code         // SettleMessages, RenewLocks, TransferMessages
	Untils     []Instant      // RenewLocks
	Entity     EntityID       // catalog: of the entity made
	Namespace  NamespaceID    // catalog: of the namespace made
	Version    uint64         // catalog: of the entity's settings
	Count      uint64         // PurgeMessages, RedriveMessages
	// Sequences has a number per message of a SendMessages with duplicates, or of a Transact:
	// 0 for those.
	Sequences []SequenceNumber
	Serial    uint64      // ForwardMessages
	To        Destination // ForwardMessages
	Session   SessionLock // AcceptSession
}

// Counts says how many messages a queue holds, by state, and how many bytes their
// payloads take.
type Counts struct {
	Active     uint64 `json:"Active"`     // ready and locked, main queue
	Locked     uint64 `json:"Locked"`     // main queue
	Deferred   uint64 `json:"Deferred"`   // main queue
	Scheduled  uint64 `json:"Scheduled"`  // main queue: not yet enqueued, or put off; at a topic also not yet published
	DeadLetter uint64 `json:"DeadLetter"` // dead-letter queue, every state, without what Transfer counts
	Bytes      uint64 `json:"Bytes"`      // all sub-queues; of a topic what its subscriptions share
	// Transfer counts what waits to be forwarded or is under way, of all sub-queues.
	Transfer           uint64 `json:"Transfer"`
	TransferDeadLetter uint64 `json:"TransferDeadLetter"` // transfer dead-letter queue
	Subscriptions      uint64 `json:"Subscriptions"`      // of a topic
	Sessions           uint64 `json:"Sessions"`           // that hold messages or state, or are held
}

// EffectKind says what an Effect is about.
type EffectKind uint8

// The kinds of effects.
const (
	EffectReady EffectKind = 0 // Ready messages wait at Address after this apply
	EffectIdle  EffectKind = 1 // Address.Entity was idle for too long and deleted itself
	// EffectForward says that messages at Address wait to be forwarded.
	EffectForward EffectKind = 2
	// EffectSession says that Ready sessions at Address wait to be accepted.
	EffectSession EffectKind = 3
	// EffectSessionLost says that the lock of Session has ended by time: its holder, if it waits
	// for messages, is to be told.
	EffectSessionLost EffectKind = 4
)

// Effect tells the leader what to do about the world after an apply. Followers drop it.
type Effect struct {
	Address Address
	Session string // EffectReady at an entity with sessions, EffectSessionLost: which one
	Ready   uint64
	Kind    EffectKind
}
