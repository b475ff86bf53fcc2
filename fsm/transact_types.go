package fsm

// Transact performs operations of one partition atomically: all of them or none. It checks every
// operation, with the effects of those before it in mind, before it changes anything.
//
// Result: Sequences, one number per message of Sends in order, 0 for duplicates. Refused with the
// code of the first operation that cannot be performed (MessageLockLost, SessionLockLost,
// EntityNotFound, EntityDisabled, QuotaExceeded, MessageTooLarge, ...).
type Transact struct {
	Settles   []SettleMessages // a lock may occur once; the verb Release is not allowed
	Sends     []SendMessages
	Transfers []TransferOut
}

// TransferOut stores messages for an entity of another partition in the transfer queue of an entity
// of this one. They are forwarded exactly once (ForwardMessages at TransferQueue), in order;
// messages that cannot be delivered move to the transfer dead-letter queue of Via.
type TransferOut struct {
	Via      EntityID // queue, topic or subscription of this partition
	To       Destination
	Name     string // path of the destination, for the descriptions of dead letters
	Messages []Message
}

// TransferQueue holds messages that transactions send to other partitions. Nobody can receive from
// it.
const TransferQueue SubQueue = 3

func (Transact) command() {}

// Transaction is a transaction as requested, with entities in any partition: the router makes a
// Transact of it.
type Transaction struct {
	Settles []SettleAt
	Sends   []SendTo
}

// SettleAt are the settlements of a transaction at one sub-queue.
type SettleAt struct {
	At          EntityRef
	Settlements []Settlement
}

// SendTo are the messages of a transaction for one entity. Via, if not nil, is the entity through
// whose partition they are sent, and whose transfer dead-letter queue gets messages that cannot be
// delivered.
type SendTo struct {
	At       EntityRef
	Via      *EntityRef
	Messages []Message
}
