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
}

// PutQueue makes a queue or changes its settings. Version comes from the catalog; a
// Version at or below the one held changes nothing and is answered OK.
type PutQueue struct {
	Entity   EntityID
	Version  uint64
	Settings QueueSettings
}

// DropQueue removes a queue and everything in it. Dropping an unknown queue is OK.
type DropQueue struct{ Entity EntityID }

// SendMessages stores messages at the tail of a queue: all of them or none.
// Result: Sequence is the first number, the others follow without gaps.
type SendMessages struct {
	Entity   EntityID
	Messages []Message
}

// LockMessages takes the oldest ready messages under a peek-lock, or for good with
// Delete (receive-and-delete). Result: Deliveries, at least one unless nothing was
// ready; the first is given even when it alone is over MaxBytes.
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
// Deliveries of those found; a number that is not deferred here is left out.
type FetchDeferred struct {
	Address   Address
	Sequences []SequenceNumber
	Delete    bool
}

// CloseLane forgets a lane whose asker has gone.
type CloseLane struct{ Origin, Lane uint64 }

// Pulse lets time pass: what is due at Env.Now happens, at most pulseMessagesMax
// messages at a time, earliest first. The leader proposes one when NextDeadline is due.
type Pulse struct{}

func (PutQueue) command()       {}
func (DropQueue) command()      {}
func (SendMessages) command()   {}
func (LockMessages) command()   {}
func (SettleMessages) command() {}
func (RenewLocks) command()     {}
func (FetchDeferred) command()  {}
func (CloseLane) command()      {}
func (Pulse) command()          {}

// QueueSettings is what an operator chooses for a queue.
type QueueSettings struct {
	LockDuration     Millis // 5 s to 5 min
	MaxDeliveryCount uint32 // 1 to 2000: attempts after which a message is dead-lettered
	MaxMessageBytes  uint32 // largest payload accepted
}

// Delivery is one message given out by LockMessages, FetchDeferred or a peek.
type Delivery struct {
	Lock        LockID
	State       MessageState
	Attempts    uint32  // deliveries before this one that failed
	Enqueued    Instant // when it was accepted
	LockedUntil Instant // zero when not locked
	Body        Ref     // where Payload lies on this replica
	Patch       Ref     // where Patches lie; zero when there are none
	Payload     []byte  // filled in by partition, after apply
	Patches     []byte  // filled in by partition: for DecodePatches
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
}

// Counts says how many messages a queue holds, by state, and how many bytes their
// payloads take.
type Counts struct {
	Active     uint64 // ready and locked, main queue
	Locked     uint64 // main queue
	Deferred   uint64 // main queue
	DeadLetter uint64 // dead-letter queue, every state
	Bytes      uint64 // both sub-queues
}

// Effect tells the leader that Ready messages wait at Address after this apply.
// Followers drop it.
type Effect struct {
	Address Address
	Ready   uint64
}
