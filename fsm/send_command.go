package fsm

import (
	"slices"
)

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

// sentMessage is a Message whose fields alias the command: Apply makes no strings of identifiers
// that it only compares.
type sentMessage struct {
	id, payload []byte
	ttl         Millis
	at          Instant
	properties  []byte // for the rules of a topic
	session     []byte
	hasSession  bool

	// Only of messages that are forwarded.
	patches []byte
	hops    uint8
}

// sends reads the payload of a SendMessages into scratch.
func (r *codec) sends(scratch []sentMessage) (EntityID, []sentMessage) {
	entity := EntityID(r.uvarint())
	return entity, r.messages(scratch)
}

// messages reads messages into scratch.
func (r *codec) messages(scratch []sentMessage) []sentMessage {
	n := r.count(messageBytesMin)
	scratch = slices.Grow(scratch[:0], n)[:n] // the old contents were cleared after use
	for i := range scratch {
		m := &scratch[i] // in place: a sentMessage is large
		m.id, m.payload = r.bytes(), r.bytes()
		m.ttl, m.at = r.millis(), r.instant()
		m.properties = r.bytes()
		m.session, m.hasSession = r.session()
	}
	return scratch
}

// verifySend decodes and checks a SendMessages without building it.
func (r *codec) verifySend() {
	r.uvarint()
	n := r.count(messageBytesMin)
	r.limit(within(n, commandMessagesMax))
	for range n {
		id, payload := r.bytes(), r.bytes()
		r.limit(len(id) <= messageIDBytesMax && len(payload) <= messageBytesMax)
		r.limit(validTime(r.millis(), r.instant()))
		r.limit(validProperties(r.bytes()))
		session, _ := r.session()
		r.limit(len(session) <= sessionIDBytesMax)
	}
}

// validTime reports whether a message may have this time to live and time of enqueueing.
func validTime(ttl Millis, at Instant) bool { return ttl >= 0 && at >= 0 && at <= Instant(Forever) }

func (SendMessages) kind() Kind             { return KindSendMessages }
func (c SendMessages) encode(x codec) codec { c.fields(&x); return x }

func (c *SendMessages) fields(x *codec) {
	field64(x, &c.Entity)
	for i := range fieldLen(x, &c.Messages, messageBytesMin) {
		c.Messages[i].fields(x)
	}
}

func (m *Message) fields(x *codec) {
	fieldText(x, &m.ID)
	fieldBytes(x, &m.Payload)
	fieldTime(x, &m.TimeToLive)
	fieldTime(x, &m.EnqueueAt)
	fieldBytes(x, &m.Properties)
	fieldSession(x, &m.Session, &m.HasSession)
}

func (c SendMessages) check() Code {
	if !within(len(c.Messages), commandMessagesMax) {
		return InvalidArgument
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if len(m.ID) > messageIDBytesMax || !checkSession(m.Session) || !validTime(m.TimeToLive, m.EnqueueAt) || !validProperties(m.Properties) {
			return InvalidArgument
		}
		if len(m.Payload) > messageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}
