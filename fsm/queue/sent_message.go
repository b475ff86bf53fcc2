package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// validSent checks the limits of a message that do not depend on the entity.
func validSent(m *sentMessage) bool {
	return len(m.id) <= fsm.MessageIDBytesMax && len(m.session) <= fsm.SessionIDBytesMax && fsm.ValidTime(m.ttl, m.at) &&
		(len(m.properties) == 0 || fsm.ValidProperties(m.properties))
}

// sentMessage is a Message whose fields alias the command: Apply makes no strings of identifiers
// that it only compares.
type sentMessage struct {
	id, payload []byte
	ttl         fsm.Millis
	at          fsm.Instant
	properties  []byte // for the rules of a topic
	session     []byte
	hasSession  bool
	reserved    fsm.SequenceNumber // see Message.Reserved
	only        fsm.EntityID       // see Message.Only

	// Only of messages that are forwarded.
	patches []byte
	hops    uint8
	number  fsm.SequenceNumber // at the source; 0 if it is not known
}

// sends reads the payload of a SendMessages into scratch.
func readSends(r *fields.Codec, scratch []sentMessage) (fsm.EntityID, []sentMessage) {
	entity := fsm.EntityID(r.Uvarint())
	return entity, readMessages(r, scratch)
}

// messages reads messages into scratch.
func readMessages(r *fields.Codec, scratch []sentMessage) []sentMessage {
	n := r.Count(fsm.MessageBytesMin)
	scratch = slices.Grow(scratch[:0], n)[:n] // the old contents were cleared after use
	for i := range scratch {
		m := &scratch[i] // in place: a sentMessage is large
		m.id, m.payload = r.Bytes(), r.Bytes()
		m.ttl, m.at = fsm.Millis(r.Int64()), fsm.Instant(r.Int64())
		m.properties = r.Bytes()
		m.session, m.hasSession = fsm.ReadSession(r)
	}
	return scratch
}

// readTransferred reads a message in transit, which aliases the input.
func readTransferred(r *fields.Codec) sentMessage {
	m := sentMessage{number: fsm.SequenceNumber(r.Uvarint()), hops: r.Byte(), id: r.Bytes(), payload: r.Bytes(), ttl: fsm.Millis(r.Int64())}
	m.properties, m.patches = r.Bytes(), r.Bytes()
	m.session, m.hasSession = fsm.ReadSession(r)
	fields.Uint64(r, &m.reserved)
	fields.Int64(r, &m.at)
	return m
}

// readTransfers reads a TransferMessages, its messages into scratch.
func readTransfers(r *fields.Codec, scratch []sentMessage) (fsm.TransferMessages, []sentMessage) {
	c, n := fsm.ReadTransferHead(r)
	scratch = scratch[:0]
	for range n {
		scratch = append(scratch, readTransferred(r))
	}
	return c, scratch
}

// transaction is a Transact whose messages alias the command.
type transaction struct {
	settles   []fsm.SettleMessages
	sends     []transactionSend
	transfers []transactionTransfer
	cancels   []fsm.CancelScheduled
	states    []fsm.SetSessionState
}

// transactionSend is one SendMessages of a transaction.
type transactionSend struct {
	entity   fsm.EntityID
	messages []sentMessage
}

// transactionTransfer is one TransferOut of a transaction.
type transactionTransfer struct {
	via      fsm.EntityID
	to       fsm.Destination
	name     []byte
	messages []sentMessage
}

// operations returns the numbers of messages that a transaction settles and sends.
func (c *transaction) operations() (settlements, sends int) {
	for i := range c.settles {
		settlements += len(c.settles[i].Settlements)
	}
	settlements += fsm.Endings(c.cancels, c.states)
	for i := range c.sends {
		sends += len(c.sends[i].messages)
	}
	for i := range c.transfers {
		sends += len(c.transfers[i].messages)
	}
	return settlements, sends
}

// readTransaction reads a Transact whose messages alias the input.
func readTransaction(r *fields.Codec) transaction {
	var c transaction
	for range r.Count(fsm.TransactionSettleBytesMin) {
		var s fsm.SettleMessages
		s.Fields(r)
		c.settles = append(c.settles, s)
	}
	for range r.Count(fsm.TransactionSendBytesMin) {
		var s transactionSend
		s.entity, s.messages = readSends(r, nil)
		readReserved(r, s.messages)
		for i := range s.messages {
			fields.Uint64(r, &s.messages[i].only)
		}
		c.sends = append(c.sends, s)
	}
	for range r.Count(fsm.TransactionTransferBytesMin) {
		p := transactionTransfer{via: fsm.EntityID(r.Uvarint())}
		p.to.Fields(r)
		p.name = r.Bytes()
		p.messages = readMessages(r, nil)
		readReserved(r, p.messages)
		c.transfers = append(c.transfers, p)
	}
	for range r.Count(fsm.TransactionCancelBytesMin) {
		var s fsm.CancelScheduled
		s.Fields(r)
		c.cancels = append(c.cancels, s)
	}
	for range r.Count(fsm.TransactionStateBytesMin) {
		var s fsm.SetSessionState
		s.Fields(r)
		c.states = append(c.states, s)
	}
	return c
}

// readReserved reads the reserved numbers of messages.
func readReserved(r *fields.Codec, messages []sentMessage) {
	for i := range messages {
		fields.Uint64(r, &messages[i].reserved)
	}
}
