package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// SendMessages stores messages at the tail of a queue: all of them or none. Messages with an
// EnqueueAt in the future become Scheduled and get a sequence number like the others; when their
// time comes they get a new number, at the tail. With duplicate detection, a message whose id is
// remembered is accepted and not stored.
//
// Result: Sequence is the number of the first message stored, the others follow without gaps; 0 if
// all were duplicates. Sequences has one number per message, 0 for a duplicate; it is set only if
// there is a duplicate. Refused with EntityDisabled, MessageTooLarge, or
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
	// PartitionKey selects the shard of a partitioned entity, "" leaves the choice to the router.
	// It is not part of a command and never reaches a state machine.
	PartitionKey string
}

func (SendMessages) kind() Kind { return KindSendMessages }

func (c SendMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

func (c SendMessages) check() Code {
	if !within(len(c.Messages), commandSendMax) {
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

func (c *SendMessages) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	for i := range fields.Len(x, &c.Messages, messageBytesMin) {
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

// validTime reports whether a message may have this time to live and time of enqueueing.
func validTime(ttl Millis, at Instant) bool { return ttl >= 0 && at >= 0 && at <= Instant(Forever) }

// send stores messages at the tail, all or none, except duplicates.
func (q *Queues) send(id EntityID, messages []sentMessage) Result {
	x, code := q.admit(id, messages)
	if code != OK {
		return Result{Code: code}
	}
	first := x.last + 1
	var res Result
	for i := range messages {
		if q.checkDuplicate(x, messages[i].id) {
			if res.Sequences == nil {
				res.Sequences = make([]SequenceNumber, len(messages))
				for j := range i {
					res.Sequences[j] = first + SequenceNumber(j)
				}
			}
			continue
		}
		n := q.storeOrPublish(x, &messages[i])
		if res.Sequences != nil {
			res.Sequences[i] = n
		}
	}
	if x.last >= first {
		res.Sequence = first
	}
	q.finishStore(x, len(messages))
	return res
}

// finishStore updates the entity after so many messages were stored, sent or forwarded.
func (q *Queues) finishStore(x *entityState, messages int) {
	if x.window != nil {
		x.window.sweep(q.times.Wall, x.settings.DuplicateWindow, sweepPerSend*messages, q.arena.generation)
		q.scheduleSweep(x)
	}
	q.removeStaleTimers(&x.subs[MainQueue])
	x.lastActivity = q.times.Serving
	q.recordUse(x)
}

// admit checks a send before anything is changed.
func (q *Queues) admit(id EntityID, messages []sentMessage) (*entityState, Code) {
	if !within(len(messages), commandSendMax) {
		return nil, InvalidArgument
	}
	x, code := q.sendable(id)
	if code != OK {
		return nil, code
	}
	size, code := q.checkMessages(x, messages)
	if code != OK {
		return nil, code
	}
	return x, q.checkQuota(x, x.storedBytes(), size, messages)
}

// sendable finds an entity that accepts messages.
func (q *Queues) sendable(id EntityID) (*entityState, Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, EntityNotFound
	case x.kind == SubscriptionEntity:
		return nil, NotAllowed
	case !x.settings.Status.allowsSend():
		return nil, EntityDisabled
	}
	return x, x.fenced()
}

// checkMessages checks each of these messages, and returns their size together.
func (q *Queues) checkMessages(x *entityState, messages []sentMessage) (size uint64, code Code) {
	most := x.payloadMax()
	for i := range messages {
		m := &messages[i]
		if !validSent(m) {
			return 0, InvalidArgument
		}
		if x.sessions != nil && !m.hasSession {
			return 0, NotAllowed
		}
		if uint64(len(m.payload)) > most {
			return 0, MessageTooLarge
		}
		size += uint64(len(m.payload))
	}
	return size, OK
}

// payloadMax returns the size of the largest payload that an entity stores.
func (x *entityState) payloadMax() uint64 {
	return uint64(x.settings.MaxMessageBytes) + payloadOverheadMax
}

// validSent checks the limits of a message that do not depend on the entity.
func validSent(m *sentMessage) bool {
	return len(m.id) <= messageIDBytesMax && len(m.session) <= sessionIDBytesMax && validTime(m.ttl, m.at) &&
		(len(m.properties) == 0 || validProperties(m.properties))
}

// checkQuota reports whether an entity with held bytes can store messages of a size.
func (q *Queues) checkQuota(x *entityState, held, size uint64, messages []sentMessage) Code {
	if held+size > x.settings.MaxBytes && held+q.uniqueBytes(x, messages) > x.settings.MaxBytes {
		return QuotaExceeded
	}
	if w := x.window; w != nil && w.tail-w.head+uint64(len(messages)) > windowIDsMax {
		return QuotaExceeded
	}
	if x.sessions != nil && x.sessions.count+len(messages) > sessionsMax {
		return QuotaExceeded
	}
	return OK
}

// storedBytes returns the size of all payloads, in all sub-queues.
func (x *entityState) storedBytes() uint64 {
	total := uint64(0)
	for i := range x.subs {
		total += x.subs[i].ix.bytes
	}
	if x.sessions != nil {
		total += x.sessions.bytes
	}
	return total
}

// storeOrPublish stores one admitted message, or publishes it at a topic.
func (q *Queues) storeOrPublish(x *entityState, m *sentMessage) SequenceNumber {
	if x.kind == TopicEntity {
		return q.publish(x, m)
	}
	return q.store(x, m)
}

// store stores one message at the tail.
func (q *Queues) store(x *entityState, m *sentMessage) SequenceNumber {
	sub := &x.subs[MainQueue]
	n := q.numberFor(x, m)
	rec := record{enqueued: q.times.Wall, state: Ready}
	rec.body = q.bodies.Append(Owner{Address: sub.address, Sequence: n}, m.payload)
	if m.at > q.times.Wall {
		rec.state, rec.deadline, rec.expires = Scheduled, m.at, Instant(m.ttl)
	} else {
		rec.expires = expiry(q.times.Wall, x.effectiveTimeToLive(m.ttl))
		q.notifyReady(sub)
	}
	q.insertInSession(sub, n, rec, q.messageSession(x, m))
	return n
}

// uniqueBytes returns the size of the payloads that are not duplicates. It repeats the work of the
// look-ups, so it is called only if a queue is nearly full.
func (q *Queues) uniqueBytes(x *entityState, messages []sentMessage) uint64 {
	total := uint64(0)
	batch := make(map[idKey]struct{}, len(messages))
	for i := range messages {
		m := &messages[i]
		if x.window != nil && len(m.id) > 0 {
			key := keyOf(m.id)
			if _, twice := batch[key]; twice || x.window.contains(&key, q.times.Wall, x.settings.DuplicateWindow) {
				continue
			}
			batch[key] = struct{}{}
		}
		total += uint64(len(m.payload))
	}
	return total
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

// verifySend decodes and checks a SendMessages without building it.
func verifySend(r *fields.Codec) {
	r.Uvarint()
	n := r.Count(messageBytesMin)
	r.Limit(within(n, commandSendMax))
	for range n {
		id, payload := r.Bytes(), r.Bytes()
		r.Limit(len(id) <= messageIDBytesMax && len(payload) <= messageBytesMax)
		r.Limit(validTime(Millis(r.Int64()), Instant(r.Int64())))
		r.Limit(validProperties(r.Bytes()))
		session, _ := readSession(r)
		r.Limit(len(session) <= sessionIDBytesMax)
	}
}
