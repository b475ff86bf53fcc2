package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// MessageBytesMin is the minimum size of a Message, against which counts are checked: four empty texts, two numbers.
const MessageBytesMin = 6

// SendMessages stores messages at the tail of a queue: all of them or none. Messages with an
// EnqueueAt in the future become Scheduled and get a sequence number like the others; when their
// time comes they get a new number, at the tail. With duplicate detection, a message whose id is
// remembered is accepted and not stored.
//
// Result: Sequence is the number of the first message stored, the others follow without gaps; 0 if
// all were duplicates. Sequences has one number per message, for a duplicate 0, or one that no message
// gets if it has an EnqueueAt; it is set only if there is a duplicate. Refused with EntityDisabled, MessageTooLarge, or
// QuotaExceeded when the queue would hold more than MaxBytes or remember more ids than it can.
type SendMessages struct {
	Entity   EntityID
	Messages []Message
}

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
	// Reserved is the number that ReserveNumbers gave for a message with an EnqueueAt: it is Scheduled under it. 0
	// takes the next number, as does a message whose time has come. Only in transactions, see Transact.
	Reserved SequenceNumber
	// Only, if it is not 0, is the one subscription of a topic that gets the message, whatever its rules say and which ids the topic remembers: a
	// dead letter returns to its subscription, changed. Only in transactions, for a message without EnqueueAt and a topic of the same partition.
	Only EntityID
	// PartitionKey selects the shard of a partitioned entity, "" leaves the choice to the router.
	// It is not part of a command and never reaches a state machine.
	PartitionKey string
}

func (SendMessages) kind() Kind { return KindSendMessages }

func (c SendMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c SendMessages) Check() Code {
	if !Within(len(c.Messages), CommandSendMax) {
		return InvalidArgument
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if len(m.ID) > MessageIDBytesMax || !checkSession(m.Session) || !ValidTime(m.TimeToLive, m.EnqueueAt) || !ValidProperties(m.Properties) {
			return InvalidArgument
		}
		if len(m.Payload) > MessageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}

func (c *SendMessages) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	for i := range fields.Len(x, &c.Messages, MessageBytesMin) {
		c.Messages[i].fields(x)
	}
}

func (m *Message) fields(x *fields.Codec) {
	fields.Text(x, &m.ID)
	fields.Bytes(x, &m.Payload)
	fields.Int64(x, &m.TimeToLive)
	fields.Int64(x, &m.EnqueueAt)
	fields.Bytes(x, &m.Properties)
	fieldSession(x, &m.Session, &m.HasSession)
}

// ValidTime reports whether a message may have this time to live and time of enqueueing.
func ValidTime(ttl Millis, at Instant) bool { return ttl >= 0 && at >= 0 && at <= Instant(Forever) }

// verifySend decodes and checks a SendMessages without building it.
func verifySend(r *fields.Codec) {
	r.Uvarint()
	n := r.Count(MessageBytesMin)
	r.Limit(Within(n, CommandSendMax))
	for range n {
		id, payload := r.Bytes(), r.Bytes()
		r.Limit(len(id) <= MessageIDBytesMax && len(payload) <= MessageBytesMax)
		r.Limit(ValidTime(Millis(r.Int64()), Instant(r.Int64())))
		r.Limit(ValidProperties(r.Bytes()))
		session, _ := ReadSession(r)
		r.Limit(len(session) <= SessionIDBytesMax)
	}
}
