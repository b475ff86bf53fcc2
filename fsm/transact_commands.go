package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

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
	Cancels   []CancelScheduled // performed before the sends
	States    []SetSessionState // one of a session
}

// TransferOut stores messages for an entity of another partition in the transfer queue of an entity
// of this one. They are forwarded exactly once (ForwardMessages at TransferQueue), in order, those that are
// scheduled when their time has come; messages that cannot be delivered move to the transfer dead-letter queue of Via.
type TransferOut struct {
	Via      EntityID // queue, topic or subscription of this partition
	To       Destination
	Name     string // path of the destination, for the descriptions of dead letters
	Messages []Message
}

// TransferQueue holds messages that transactions send to other partitions. Nobody can receive from
// it.
const TransferQueue SubQueue = 3

// Transaction is a transaction as requested, with entities in any partition: the router makes a
// Transact of it.
type Transaction struct {
	Settles []SettleAt
	Sends   []SendTo
	Cancels []CancelAt
	States  []StateAt
}

// CancelAt are the scheduled messages that a transaction cancels at one entity.
type CancelAt struct {
	At        EntityRef
	Sequences []SequenceNumber
}

// StateAt is the state that a transaction stores with a session, at the shard of the session.
type StateAt struct {
	At    EntityRef
	State SetSessionState
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

// Limits of one transaction.
const (
	transactionSendsMax       = 100  // messages sent, as in Azure Service Bus
	transactionSettlementsMax = 1000 // messages settled
)

// WithinLimits reports whether a transaction has operations, and no more than fit into one.
func WithinLimits(settlements, sends int) bool {
	return settlements+sends > 0 && settlements <= transactionSettlementsMax && sends <= transactionSendsMax
}

// operations returns the numbers of messages that the command settles and sends. Cancelled messages and states count as
// settlements.
func (c Transact) operations() (settlements, sends int) {
	for i := range c.Settles {
		settlements += len(c.Settles[i].Settlements)
	}
	settlements += Endings(c.Cancels, c.States)
	for i := range c.Sends {
		sends += len(c.Sends[i].Messages)
	}
	for i := range c.Transfers {
		sends += len(c.Transfers[i].Messages)
	}
	return settlements, sends
}

// Endings returns how many settlements cancellations and states count as.
func Endings(cancels []CancelScheduled, states []SetSessionState) int {
	n := len(states)
	for i := range cancels {
		n += len(cancels[i].Sequences)
	}
	return n
}

// The minimum sizes of the parts of a Transact.
const (
	TransactionSettleBytesMin   = 3 // address, count
	TransactionSendBytesMin     = 2 // entity, count
	TransactionTransferBytesMin = 5 // via, partition, entity, name, count
	TransactionCancelBytesMin   = 2 // entity, count
	TransactionStateBytesMin    = 4 // entity, lock, clear, state
)

// ValidTransferOut checks the limits of a TransferOut, its messages aside.
func ValidTransferOut(via EntityID, to Destination, nameBytes, messages int) bool {
	return via != 0 && to.Partition != CatalogPartition && to.Entity != 0 && nameBytes <= EntityNameBytesMax && messages > 0
}

// grows reports whether the transaction does more than to settle messages and to clear states.
func (c Transact) grows() bool {
	return len(c.Sends)+len(c.Transfers) > 0 || slices.ContainsFunc(c.Settles, SettleMessages.grows) || slices.ContainsFunc(c.States, SetSessionState.grows)
}

func (Transact) kind() Kind                           { return KindTransact }
func (c Transact) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c Transact) Check() Code {
	if settlements, sends := c.operations(); !WithinLimits(settlements, sends) {
		return InvalidArgument
	}
	for _, s := range c.Settles {
		if code := s.Check(); code != OK {
			return code
		}
		if slices.ContainsFunc(s.Settlements, func(s Settlement) bool { return s.Verb == Release }) {
			return InvalidArgument
		}
	}
	for _, s := range c.Sends {
		if code := s.Check(); code != OK {
			return code
		}
	}
	for _, s := range c.Cancels {
		if code := s.Check(); code != OK {
			return code
		}
	}
	for _, s := range c.States {
		if code := s.Check(); code != OK {
			return code
		}
	}
	for _, t := range c.Transfers {
		if code := (SendMessages{Entity: t.Via, Messages: t.Messages}).Check(); code != OK {
			return code
		}
		if !ValidTransferOut(t.Via, t.To, len(t.Name), len(t.Messages)) {
			return InvalidArgument
		}
	}
	return OK
}

func (c *Transact) fields(x *fields.Codec) {
	for i := range fields.Len(x, &c.Settles, TransactionSettleBytesMin) {
		c.Settles[i].Fields(x)
	}
	for i := range fields.Len(x, &c.Sends, TransactionSendBytesMin) {
		c.Sends[i].fields(x)
		fieldReserved(x, c.Sends[i].Messages)
		for j := range c.Sends[i].Messages {
			fields.Uint64(x, &c.Sends[i].Messages[j].Only)
		}
	}
	for i := range fields.Len(x, &c.Transfers, TransactionTransferBytesMin) {
		c.Transfers[i].fields(x)
		fieldReserved(x, c.Transfers[i].Messages)
	}
	for i := range fields.Len(x, &c.Cancels, TransactionCancelBytesMin) {
		c.Cancels[i].Fields(x)
	}
	for i := range fields.Len(x, &c.States, TransactionStateBytesMin) {
		c.States[i].Fields(x)
	}
}

// fieldReserved is the reserved numbers of messages, which no other command has.
func fieldReserved(x *fields.Codec, messages []Message) {
	for i := range messages {
		fields.Uint64(x, &messages[i].Reserved)
	}
}

func (t *TransferOut) fields(x *fields.Codec) {
	fields.Uint64(x, &t.Via)
	t.To.Fields(x)
	fields.Text(x, &t.Name)
	for i := range fields.Len(x, &t.Messages, MessageBytesMin) {
		t.Messages[i].fields(x)
	}
}
