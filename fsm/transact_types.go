package fsm

// Transact performs operations of one partition as a whole: all of them or none. It checks
// every operation, those before it in mind, before it changes anything.
//
// Result: Sequences, one number per message of Sends in order, 0 for duplicates. Refused
// with what the first operation that cannot be done is refused with (MessageLockLost,
// SessionLockLost, EntityNotFound, EntityDisabled, QuotaExceeded, MessageTooLarge, ...).
type Transact struct {
	Settles   []SettleMessages // a lock may occur once; Release is not among the verbs
	Sends     []SendMessages
	Transfers []TransferOut
}

// TransferOut stores messages for an entity of another partition in the outbox of an
// entity of this one: they are forwarded exactly once (ForwardMessages at TransferQueue),
// in order, and what cannot be delivered goes to the transfer dead-letter queue of Via.
type TransferOut struct {
	Via      EntityID // queue, topic or subscription of this partition
	To       Destination
	Name     string // path of the destination, for the words of dead letters
	Messages []Message
}

// TransferQueue holds what transactions send to other partitions. Nobody attaches to it.
const TransferQueue SubQueue = 3

func (Transact) command() {}

// Transaction is what an asker wants done as a whole, wherever it lies: the router makes a
// Transact of it.
type Transaction struct {
	Settles []SettleAt
	Sends   []SendTo
}

// SettleAt is the settlements of a transaction at one place.
type SettleAt struct {
	At          EntityRef
	Settlements []Settlement
}

// SendTo is the messages of a transaction for one entity. Via, where it is not nil, is the
// entity whose partition they go through, and whose transfer dead-letter queue gets what
// cannot be delivered.
type SendTo struct {
	At       EntityRef
	Via      *EntityRef
	Messages []Message
}
