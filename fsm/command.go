package fsm

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
	answersOutstandingMax = 16384     // answers kept for one lane
	lanesPerOriginMax     = 65536     // lanes of one origin in one partition
	originIdleMax         = Millis(10 * 60 * 1000)
	pulseMessagesMax      = 1000 // messages that one Pulse moves
	commandPurgeMax       = 4000 // messages of one PurgeMessages: what the cloud allows
	commandRedriveMax     = 1000 // sequence numbers of one RedriveMessages
	// delayMax is how far ahead an abandoned message may be put off.
	delayMax = Millis(7 * 24 * 60 * 60 * 1000)
)

// Header makes a command exactly-once. A member's router numbers what it asks of a
// partition; the machine remembers the answer to every (Origin, Lane, Serial) until a
// later command of the lane carries a Low above it. A command seen again is answered
// from memory and not performed (Raft dissertation, 6.3). Origin 0 is the leader
// itself (pulses): nothing is remembered.
type Header struct {
	Origin uint64 // incarnation of the asking member, drawn at its start; 0 = none
	Lane   uint64 // 0 for ordinary requests, else one receiver (at most one request at a time)
	Serial uint64 // rises by one per lane, from 1
	Low    uint64 // every Serial below it has been answered and need not be remembered
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
	// is longer (E.1, E.4).
	TimeToLive Millis
	// EnqueueAt is when the message becomes active. A moment that is not in the future,
	// or 0, means at once.
	EnqueueAt Instant
}

// PutQueue makes a queue or changes its settings. Version comes from the catalog; a
// Version at or below the one held changes nothing and is answered OK. A queue that
// deleted itself for being idle is not made again: EntityNotFound.
type PutQueue struct {
	Entity   EntityID
	Version  uint64
	Settings QueueSettings
}

// DropQueue removes a queue and everything in it, and what is remembered of a queue
// that deleted itself. Dropping an unknown queue is OK.
type DropQueue struct{ Entity EntityID }

// SendMessages stores messages at the tail of a queue: all of them or none. Those with
// an EnqueueAt in the future become Scheduled and get a number like the others; when
// their time comes they get another one, at the tail. Where duplicates are detected, a
// message whose id is remembered is accepted and not stored.
//
// Result: Sequence is the number of the first message stored, the others follow
// without gaps; 0 when all were duplicates. Sequences, with one number per message and
// 0 for every duplicate, is given only when there is a duplicate. Refused with
// EntityDisabled, MessageTooLarge, or QuotaExceeded when the queue would hold more than
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
}

// CloseLane forgets a lane whose asker has gone.
type CloseLane struct{ Origin, Lane uint64 }

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
// (E.8).
type Touch struct{ Entity EntityID }

// Pulse lets time pass: what is due at Env.Now happens, at most pulseMessagesMax
// messages at a time, earliest first. The leader proposes one when NextDeadline is due.
type Pulse struct{}

func (PutQueue) command()        {}
func (DropQueue) command()       {}
func (SendMessages) command()    {}
func (LockMessages) command()    {}
func (SettleMessages) command()  {}
func (RenewLocks) command()      {}
func (FetchDeferred) command()   {}
func (CloseLane) command()       {}
func (Pulse) command()           {}
func (CancelScheduled) command() {}
func (PurgeMessages) command()   {}
func (RedriveMessages) command() {}
func (Touch) command()           {}

// QueueSettings is what an operator chooses for a queue. Where the zero value is no
// valid choice it stands for the default, so settings that name few fields are complete.
type QueueSettings struct {
	LockDuration     Millis // 5 s to 5 min
	MaxDeliveryCount uint32 // 1 to 2000: attempts after which a message is dead-lettered
	MaxMessageBytes  uint32 // largest payload accepted

	// DefaultTimeToLive is how long messages live that say nothing themselves, and the
	// ceiling for those that do (E.4). At least 1 ms; Forever, the default, never ends.
	DefaultTimeToLive Millis
	// DeadLetterOnExpiry moves what expires to the dead-letter queue instead of dropping
	// it (E.5).
	DeadLetterOnExpiry bool
	// RequiresDuplicateDetection cannot be changed once the queue is made.
	RequiresDuplicateDetection bool
	DuplicateWindow            Millis // 20 s to 7 days, default 10 min: how long an id is remembered
	// AutoDeleteOnIdle is how long the queue may be idle before it deletes itself (E.7):
	// 5 min at least, default Forever.
	AutoDeleteOnIdle Millis
	// MaxBytes bounds the payloads held in both sub-queues: 1 MiB to 80 GiB, default 1 GiB.
	MaxBytes     uint64
	Status       EntityStatus
	UserMetadata string // UTF-8, at most 1024 bytes

	// What follows goes beyond the cloud and is off by default.

	// DeadLetterTimeToLive is how long dead letters are kept, from when they were
	// dead-lettered, to the second. At least 1 s; default Forever.
	DeadLetterTimeToLive Millis
	// RetryDelay puts a message off after a failed attempt (abandoned, or its lock ran
	// out): RetryDelay after the first, twice as long after each further one, at most
	// RetryDelayMax. Both 0, or 1 ms <= RetryDelay <= RetryDelayMax <= 7 days.
	RetryDelay    Millis
	RetryDelayMax Millis
}

// Delivery is one message given out by LockMessages, FetchDeferred or a peek.
type Delivery struct {
	Lock        LockID
	State       MessageState
	Attempts    uint32  // deliveries before this one that failed
	Enqueued    Instant // when it was accepted
	LockedUntil Instant // zero when not locked
	// Expires is when the message's time to live ends; of a scheduled one, if settings
	// stay as they are. Zero when it never does, and in the dead-letter queue.
	Expires Instant
	Body    Ref    // where Payload lies on this replica
	Patch   Ref    // where Patches lie; zero when there are none
	Payload []byte // filled in by partition, after apply
	Patches []byte // filled in by partition: for DecodePatches
}

// Patch is one change made to a message by a settlement, in the order made.
type Patch struct {
	DeadLetter  bool // Reason and Description are meaningful
	Reason      string
	Description string
	Properties  []byte // AMQP map body, as in Settlement
}

// Result answers the proposer.
type Result struct {
	Code       Code
	Sequence   SequenceNumber // SendMessages
	Deliveries []Delivery     // LockMessages, FetchDeferred
	Codes      []Code         // SettleMessages, RenewLocks
	Untils     []Instant      // RenewLocks
	Entity     EntityID       // catalog: of the entity made
	Version    uint64         // catalog: of the entity's settings
	Count      uint64         // PurgeMessages, RedriveMessages
	// Sequences has a number per message of a SendMessages with duplicates: 0 for those.
	Sequences []SequenceNumber
}

// Counts says how many messages a queue holds, by state, and how many bytes their
// payloads take.
type Counts struct {
	Active     uint64 // ready and locked, main queue
	Locked     uint64 // main queue
	Deferred   uint64 // main queue
	Scheduled  uint64 // main queue: not yet enqueued, or put off
	DeadLetter uint64 // dead-letter queue, every state
	Bytes      uint64 // both sub-queues
}

// EffectKind says what an Effect is about.
type EffectKind uint8

// The kinds of effects.
const (
	EffectReady EffectKind = 0 // Ready messages wait at Address after this apply
	EffectIdle  EffectKind = 1 // the queue of Address.Entity was idle for too long and deleted itself
)

// Effect tells the leader what to do about the world after an apply. Followers drop it.
type Effect struct {
	Address Address
	Ready   uint64
	Kind    EffectKind
}
