package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

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
func (q *Machine) pulse() {
	q.releasePending(releasesPerPulse)
	q.publishPending()
	budget := fsm.PulseMessagesMax
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
	q.table.ForgetIdle(q.times.Serving, max(budget, 0))
}

// isPulseFull reports whether the current pulse has stored as many bytes as it may.
func (q *Machine) isPulseFull() bool {
	return q.bodies.appended >= pulseBytesMax
}

// Times returns the times of the newest entry.
func (q *Machine) Times() fsm.Times { return q.times }

// NextDeadline returns times at or before which something is due for a Pulse, one on each timeline; 0
// for none. A time that the newest entry has reached means that a Pulse is due now.
func (q *Machine) NextDeadline() fsm.Times {
	if len(q.pendingReleases) > 0 || len(q.pending) > 0 {
		return fsm.Times{Wall: max(q.times.Wall, 1)}
	}
	due := fsm.Times{Serving: q.table.Due()}
	due.Wall, due.Serving = q.arena.NextDue(fsm.WallTime), fsm.Earlier(due.Serving, q.arena.NextDue(fsm.ServingTime))
	return due
}
