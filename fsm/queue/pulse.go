package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// pulses does what is due.
type pulses struct {
	*core
	*messages
	*releases
	*sessions
	*topics
	*idleness
}

const (
	// pulseBytesMax bounds the bodies and patches that one Pulse stores: a
	// Pulse begins no message once it has stored so many bytes.
	pulseBytesMax = 4 << 20
)

// pulse publishes Pending messages, then processes what is due, earliest first, at most
// PulseMessagesMax messages and little more than pulseBytesMax: expired locks return their messages, messages expire, scheduled
// messages become active, idle entities are deleted, ids and incarnations are forgotten. Lower
// bounds of timers have no influence on the result: before something is done, its exact time is
// compared with all timers.
func (q *pulses) pulse() (budget int) {
	q.releasePending(releasesPerPulse)
	q.publishPending()
	budget = fsm.PulseMessagesMax
	q.bodies.appended = 0
	for budget > 0 && !q.isPulseFull() {
		ix, x, ok := q.arena.NextTimer(q.times)
		if !ok || x.OnWall(q.times) > q.times.Wall {
			break
		}
		sub := &q.byID[ix.Address().Entity].subs[ix.Address().Sub]
		if x.Kind == index.ChunkTimer {
			budget -= q.processDue(sub, x, budget)
			ix.RemoveStaleTimers()
			continue
		}
		ix.PopTimer(x.Kind)
		switch x.Kind {
		case index.LockTimer:
			budget--
			at, rec, _ := sub.ix.FindLocked(fsm.LockID{Sequence: x.Number, Epoch: x.Epoch})
			q.returnToQueue(sub, at, rec, true, 0, fsm.Patch{})
		case index.SessionTimer:
			slot := uint32(x.Number)
			budget -= 1 + sub.entity.sessions.messages[slot].locked.count()
			q.endSession(sub.entity, slot, true)
			sub.ix.RemoveStaleTimers()
		case index.SweepTimer:
			sub.entity.sweepAt = 0
			if sub.entity.sweepDue() == x.At {
				budget -= 1 + q.sweep(sub.entity)/sweepPerBudget
			}
			q.scheduleSweep(sub.entity)
		case index.IdleTimer:
			sub.entity.idleAt = 0
			switch {
			case sub.entity.isShard() && q.isIdle(sub.entity):
				q.reportIdleShard(sub.entity)
			case sub.entity.idleDue() == x.At:
				budget--
				q.deleteIdle(sub.entity)
			default:
				q.scheduleIdle(sub.entity)
			}
		case index.ChunkTimer:
		}
	}
	return budget
}

// isPulseFull reports whether the current pulse has stored as many bytes as it may.
func (q *pulses) isPulseFull() bool {
	return q.bodies.appended >= pulseBytesMax
}

// processDue processes what is due among the messages of a chunk, whose timer x is the first of
// all. It returns how many messages it moved, at most budget and the copies of the last one: none if x was only a bound.
func (q *pulses) processDue(sub *subqueue, x index.Timer, budget int) (moved int) {
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
func (q *pulses) processDueMessage(sub *subqueue, n fsm.SequenceNumber) (moved int) {
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
func (q *pulses) activate(sub *subqueue, at index.Cursor, rec index.Record) {
	x, session := sub.entity, sub.ix.Session(at)
	sub.entity.sessions.pin(session)
	defer sub.entity.sessions.unpin(session, *q.arena.Generation())
	sub.ix.Remove(at)
	x.last++
	body := q.rewriteBody(fsm.Owner{Address: sub.address, Sequence: x.last}, rec.Body())
	sub.ix.Insert(x.last, index.Enqueued(body, q.times.Wall, q.times.Wall.Expiry(x.effectiveTimeToLive(rec.Life()))), session)
	q.notifyReady(sub)
}

// sweep removes expired ids in a pulse.
func (q *pulses) sweep(x *entityState) (taken int) {
	x.window.swept = q.times.Wall
	return x.window.sweep(q.times.Wall, x.settings.DuplicateWindow, sweepPerPulse, *q.arena.Generation())
}
