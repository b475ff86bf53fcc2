package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// validSent checks the limits of a message that do not depend on the entity.
func validSent(m *sentMessage) bool {
	return len(m.id) <= messageIDBytesMax && len(m.session) <= sessionIDBytesMax && validTime(m.ttl, m.at) &&
		(len(m.properties) == 0 || validProperties(m.properties))
}

// sentMessage is a Message whose fields alias the command: Apply makes no strings of identifiers
// that it only compares.
type sentMessage struct {
	id, payload []byte
	ttl         Millis
	at          Instant
	properties  []byte // for the rules of a topic
	session     []byte
	hasSession  bool
	reserved    SequenceNumber // see Message.Reserved

	// Only of messages that are forwarded.
	patches []byte
	hops    uint8
	number  SequenceNumber // at the source; 0 if it is not known
}

// sends reads the payload of a SendMessages into scratch.
func readSends(r *fields.Codec, scratch []sentMessage) (EntityID, []sentMessage) {
	entity := EntityID(r.Uvarint())
	return entity, readMessages(r, scratch)
}

// messages reads messages into scratch.
func readMessages(r *fields.Codec, scratch []sentMessage) []sentMessage {
	n := r.Count(messageBytesMin)
	scratch = slices.Grow(scratch[:0], n)[:n] // the old contents were cleared after use
	for i := range scratch {
		m := &scratch[i] // in place: a sentMessage is large
		m.id, m.payload = r.Bytes(), r.Bytes()
		m.ttl, m.at = Millis(r.Int64()), Instant(r.Int64())
		m.properties = r.Bytes()
		m.session, m.hasSession = readSession(r)
	}
	return scratch
}

// readTransferred reads a message in transit, which aliases the input.
func readTransferred(r *fields.Codec) sentMessage {
	m := sentMessage{number: SequenceNumber(r.Uvarint()), hops: r.Byte(), id: r.Bytes(), payload: r.Bytes(), ttl: Millis(r.Int64())}
	m.properties, m.patches = r.Bytes(), r.Bytes()
	m.session, m.hasSession = readSession(r)
	fields.Uint64(r, &m.reserved)
	fields.Int64(r, &m.at)
	return m
}

// readTransfers reads a TransferMessages, its messages into scratch.
func readTransfers(r *fields.Codec, scratch []sentMessage) (TransferMessages, []sentMessage) {
	c, n := readTransferHead(r)
	scratch = scratch[:0]
	for range n {
		scratch = append(scratch, readTransferred(r))
	}
	return c, scratch
}

// transaction is a Transact whose messages alias the command.
type transaction struct {
	settles   []SettleMessages
	sends     []transactionSend
	transfers []transactionTransfer
	cancels   []CancelScheduled
	states    []SetSessionState
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
	settlements += endings(c.cancels, c.states)
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
	for range r.Count(transactionSettleBytesMin) {
		var s SettleMessages
		s.fields(r)
		c.settles = append(c.settles, s)
	}
	for range r.Count(transactionSendBytesMin) {
		var s transactionSend
		s.entity, s.messages = readSends(r, nil)
		readReserved(r, s.messages)
		c.sends = append(c.sends, s)
	}
	for range r.Count(transactionTransferBytesMin) {
		p := transactionTransfer{via: EntityID(r.Uvarint())}
		p.to.fields(r)
		p.name = r.Bytes()
		p.messages = readMessages(r, nil)
		readReserved(r, p.messages)
		c.transfers = append(c.transfers, p)
	}
	for range r.Count(transactionCancelBytesMin) {
		var s CancelScheduled
		s.fields(r)
		c.cancels = append(c.cancels, s)
	}
	for range r.Count(transactionStateBytesMin) {
		var s SetSessionState
		s.fields(r)
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
