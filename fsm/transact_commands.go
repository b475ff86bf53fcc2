package fsm

import "slices"

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
	transactionSendsMax       = 100  // messages sent, as in Azure Service Bus; below format level 4 sent and settled
	transactionSettlementsMax = 1000 // messages settled
)

// withinLimits reports whether a transaction has operations, and no more than fit into one at a format level.
func withinLimits(settlements, sends int, level uint32) bool {
	if level < LevelTransactions {
		return within(settlements+sends, transactionSendsMax)
	}
	return settlements+sends > 0 && settlements <= transactionSettlementsMax && sends <= transactionSendsMax
}

// Level returns the format level from which on the command may be written.
func (c Transact) Level() uint32 {
	scheduled := func(t TransferOut) bool {
		return slices.ContainsFunc(t.Messages, func(m Message) bool { return m.EnqueueAt != 0 })
	}
	settlements, sends := c.operations()
	if !withinLimits(settlements, sends, 1) || slices.ContainsFunc(c.Transfers, scheduled) {
		return LevelTransactions
	}
	return 1
}

// operations returns the numbers of messages that the command settles and sends.
func (c Transact) operations() (settlements, sends int) {
	for i := range c.Settles {
		settlements += len(c.Settles[i].Settlements)
	}
	for i := range c.Sends {
		sends += len(c.Sends[i].Messages)
	}
	for i := range c.Transfers {
		sends += len(c.Transfers[i].Messages)
	}
	return settlements, sends
}

// transaction is a Transact whose messages alias the command.
type transaction struct {
	settles   []SettleMessages
	sends     []transactionSend
	transfers []transactionTransfer
}

// transactionSend is one SendMessages of a transaction.
type transactionSend struct {
	entity   EntityID
	messages []sentMessage
}

// transactionTransfer is one TransferOut of a transaction.
type transactionTransfer struct {
	via      EntityID
	to       Destination
	name     []byte
	messages []sentMessage
}

// operations returns the numbers of messages that a transaction settles and sends.
func (c *transaction) operations() (settlements, sends int) {
	for i := range c.settles {
		settlements += len(c.settles[i].Settlements)
	}
	for i := range c.sends {
		sends += len(c.sends[i].messages)
	}
	for i := range c.transfers {
		sends += len(c.transfers[i].messages)
	}
	return settlements, sends
}

// The minimum sizes of the parts of a Transact.
const (
	transactionSettleBytesMin   = 3 // address, count
	transactionSendBytesMin     = 2 // entity, count
	transactionTransferBytesMin = 5 // via, partition, entity, name, count
)

// transaction reads a Transact whose messages alias the input.
func (r *codec) transaction() transaction {
	var c transaction
	for range r.count(transactionSettleBytesMin) {
		var s SettleMessages
		s.fields(r)
		c.settles = append(c.settles, s)
	}
	for range r.count(transactionSendBytesMin) {
		var s transactionSend
		s.entity, s.messages = r.sends(nil)
		c.sends = append(c.sends, s)
	}
	for range r.count(transactionTransferBytesMin) {
		p := transactionTransfer{via: EntityID(r.uvarint())}
		p.to.fields(r)
		p.name = r.bytes()
		p.messages = r.messages(nil)
		c.transfers = append(c.transfers, p)
	}
	return c
}

// validTransferOut checks the limits of a TransferOut, its messages aside.
func validTransferOut(via EntityID, to Destination, nameBytes, messages int) bool {
	return via != 0 && to.Partition != CatalogPartition && to.Entity != 0 && nameBytes <= entityNameBytesMax && messages > 0
}

func (Transact) kind() Kind             { return KindTransact }
func (c Transact) encode(x codec) codec { c.fields(&x); return x }
func (c Transact) check() Code {
	if settlements, sends := c.operations(); !withinLimits(settlements, sends, FormatLevel) {
		return InvalidArgument
	}
	for _, s := range c.Settles {
		if code := s.check(); code != OK {
			return code
		}
		if slices.ContainsFunc(s.Settlements, func(s Settlement) bool { return s.Verb == Release }) {
			return InvalidArgument
		}
	}
	for _, s := range c.Sends {
		if code := s.check(); code != OK {
			return code
		}
	}
	for _, t := range c.Transfers {
		if code := (SendMessages{Entity: t.Via, Messages: t.Messages}).check(); code != OK {
			return code
		}
		if !validTransferOut(t.Via, t.To, len(t.Name), len(t.Messages)) {
			return InvalidArgument
		}
	}
	return OK
}

func (c *Transact) fields(x *codec) {
	for i := range fieldLen(x, &c.Settles, transactionSettleBytesMin) {
		c.Settles[i].fields(x)
	}
	for i := range fieldLen(x, &c.Sends, transactionSendBytesMin) {
		c.Sends[i].fields(x)
	}
	for i := range fieldLen(x, &c.Transfers, transactionTransferBytesMin) {
		c.Transfers[i].fields(x)
	}
}

func (t *TransferOut) fields(x *codec) {
	field64(x, &t.Via)
	t.To.fields(x)
	fieldText(x, &t.Name)
	for i := range fieldLen(x, &t.Messages, messageBytesMin) {
		t.Messages[i].fields(x)
	}
}
