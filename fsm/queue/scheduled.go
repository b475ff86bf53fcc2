package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// processDue processes what is due among the messages of a chunk, whose timer x is the first of
// all. It returns how many messages it moved, at most budget and the copies of the last one: none if x was only a bound.
func (q *Machine) processDue(sub *subqueue, x index.Timer, budget int) (moved int) {
	sub.ix.EachDue(x, q.times, func(n fsm.SequenceNumber) bool {
		if moved >= budget || q.isPulseFull() {
			return false
		}
		moved += q.processDueMessage(sub, n)
		return true
	})
	return moved
}

// processDueMessage processes one message that is due: it expires, is dead-lettered, or becomes active. It returns
// its share of the budget of a pulse: copies count like messages.
func (q *Machine) processDueMessage(sub *subqueue, n fsm.SequenceNumber) (moved int) {
	at, _ := sub.ix.Seek(n)
	rec := sub.ix.Get(at)
	switch {
	case sub.entity.kind == fsm.TopicEntity && sub.address.Sub == fsm.MainQueue:
		return 1 + q.publishDue(sub, at, rec)
	case rec.State() == fsm.Scheduled && !rec.IsDelayed():
		q.activate(sub, at, rec)
	case sub.ix.Expired(&rec, q.times.Wall):
		q.expire(sub, at, rec, fsm.Patch{})
	case rec.Deadline() == dueAtOnce:
		q.deadLetterExceeded(sub, at, rec, fsm.Patch{})
	default: // its delay is over
		rec.EndDelay()
		sub.ix.Set(at, rec)
		q.notifyReady(sub)
	}
	return 1
}

// activate enqueues a scheduled message: under a new number at the tail, and its time to live
// begins now. The body is written again because the owner stored beside a body identifies the
// record that references it; each message pays for that once, and a pulse writes pulseBytesMax.
func (q *Machine) activate(sub *subqueue, at index.Cursor, rec index.Record) {
	x, session := sub.entity, sub.ix.Session(at)
	sub.entity.sessions.pin(session)
	defer sub.entity.sessions.unpin(session, *q.arena.Generation())
	sub.ix.Remove(at)
	x.last++
	body := q.rewriteBody(fsm.Owner{Address: sub.address, Sequence: x.last}, rec.Body())
	sub.ix.Insert(x.last, index.Enqueued(body, q.times.Wall, q.times.Wall.Expiry(x.effectiveTimeToLive(rec.Life()))), session)
	q.notifyReady(sub)
}

// cancel removes scheduled messages: all or none.
func (q *Machine) cancel(c fsm.CancelScheduled) fsm.Result {
	x, code := q.scheduledMessages(&c)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	q.removeScheduled(x, c.Sequences)
	return fsm.Result{}
}

// scheduledMessages returns the entity of a cancellation, if all of its messages are scheduled.
func (q *Machine) scheduledMessages(c *fsm.CancelScheduled) (*entityState, fsm.Code) {
	if code := c.Check(); code != fsm.OK {
		return nil, code
	}
	x := q.byID[c.Entity]
	if x == nil {
		return nil, fsm.EntityNotFound
	}
	if code := x.fenced(); code != fsm.OK {
		return nil, code
	}
	sub := &x.subs[fsm.MainQueue]
	for _, n := range c.Sequences {
		at, found := sub.ix.Seek(n)
		if !found {
			return nil, fsm.MessageNotFound
		}
		if rec := sub.ix.Get(at); rec.State() != fsm.Scheduled || rec.IsDelayed() {
			return nil, fsm.MessageNotFound
		}
	}
	return x, fsm.OK
}

// removeScheduled removes scheduled messages; a number may be named twice.
func (q *Machine) removeScheduled(x *entityState, numbers []fsm.SequenceNumber) {
	sub := &x.subs[fsm.MainQueue]
	for _, n := range numbers {
		if at, found := sub.ix.Seek(n); found {
			rec := sub.ix.Get(at)
			q.deleteMessage(sub, at, &rec)
		}
	}
	sub.ix.RemoveStaleTimers()
	x.lastActivity = q.times.Serving
}

// reserve gives numbers to messages that a transaction will schedule. Those that it never stores leave a gap.
func (q *Machine) reserve(c fsm.ReserveNumbers) fsm.Result {
	if c.Check() != fsm.OK {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	x, code := q.sendable(c.Entity)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	first := x.last + 1
	x.last += fsm.SequenceNumber(c.Count)
	x.lastActivity = q.times.Serving
	return fsm.Result{Sequence: first}
}

// numberFor returns the number of a message that is stored: the reserved one while its time has not come, otherwise the
// next.
func (q *Machine) numberFor(x *entityState, m *sentMessage) fsm.SequenceNumber {
	if m.reserved != 0 && m.at > q.times.Wall {
		return m.reserved
	}
	x.last++
	return x.last
}

// usableNumber returns a reserved number, or 0 if the entity has not given it, as after a restore, or a message of any
// sub-queue has it: a dead letter returns to the main queue under its number.
func (x *entityState) usableNumber(n fsm.SequenceNumber) fsm.SequenceNumber {
	if n > x.last {
		return 0
	}
	for i := range x.subs {
		if _, taken := x.subs[i].ix.Seek(n); taken {
			return 0
		}
	}
	return n
}

// retryAt returns the time until which a returned message waits: what the receiver requested, or
// the queue's delay after a failed delivery, doubled with every failure. A time that is not in the
// future means that the message is ready at once.
func (q *Machine) retryAt(sub *subqueue, rec *index.Record, failed bool, until fsm.Instant) fsm.Instant {
	s := sub.entity.settings
	if until > q.times.Wall || !failed || s.RetryDelay == 0 || sub.address.Sub != fsm.MainQueue {
		return until
	}
	delay := s.RetryDelay
	for i := uint16(1); i < rec.FailedDeliveries() && delay < s.RetryDelayMax; i++ {
		delay *= 2 // at most twice DelayMax: no overflow
	}
	return q.times.Wall.After(min(delay, s.RetryDelayMax))
}
