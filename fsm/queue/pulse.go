package queue

import (
	"github.com/peeklock/peeklock/fsm"
)

const (
	// pulseBytesMax bounds the bodies and patches that one Pulse stores: a
	// Pulse begins no message once it has stored so many bytes.
	pulseBytesMax = 4 << 20
)

// addTimer adds a timer.
func (q *Machine) addTimer(sub *subqueue, x timer) {
	line := x.kind.timeline()
	a := &sub.timers[line]
	a.heap.push(x)
	if a.heap[0] == x {
		q.timers[line].fix(a)
	}
}

// popTimer removes the first timer of a sub-queue on a timeline.
func (q *Machine) popTimer(sub *subqueue, line fsm.Timeline) {
	a := &sub.timers[line]
	a.heap.pop()
	q.timers[line].fix(a)
}

// isTimerCurrent reports whether a timer is not stale: what it stands for exists, and is due then
// or later.
func (sub *subqueue) isTimerCurrent(x timer) bool {
	switch x.kind {
	case timerLock:
		_, rec, ok := sub.findLocked(fsm.LockID{Sequence: x.number, Epoch: x.epoch})
		return ok && rec.deadline == x.at
	case timerChunk:
		base, _ := split(x.number)
		pos, found := sub.ix.find(base)
		return found && sub.ix.entries[pos].due == x.at
	case timerSweep:
		return sub.entity.sweepAt == x.at
	case timerIdle:
		return sub.entity.idleAt == x.at
	case timerSession:
		return sub.entity.isSessionTimerCurrent(x)
	}
	return false
}

// removeStaleTimers bounds the number of stale timers of a sub-queue by that of the others. It must
// run after locks or messages were removed, once the records reflect it.
func (q *Machine) removeStaleTimers(sub *subqueue) {
	sub.timers[fsm.WallTime].stale += sub.ix.lostTimers
	sub.ix.lostTimers = 0
	for line := range sub.timers {
		if a := &sub.timers[line]; a.stale > len(a.heap)-a.stale+staleSlack {
			a.rebuild(sub.isTimerCurrent)
			q.timers[line].fix(a)
		}
	}
}

// nextTimer finds the earliest timer of all, and the timers that it is one of; it removes stale ones
// before it.
func (q *Machine) nextTimer() (*timers, timer, bool) {
	wall, serving := q.firstTimer(fsm.WallTime), q.firstTimer(fsm.ServingTime)
	switch {
	case wall == nil && serving == nil:
		return nil, timer{}, false
	case wall == nil || serving != nil && q.precedes(serving, wall.sub, wall.heap[0]):
		return serving, serving.heap[0], true
	}
	return wall, wall.heap[0], true
}

// firstTimer finds the sub-queue with the earliest timer of a timeline, nil if there is none; it
// removes stale ones before it.
func (q *Machine) firstTimer(line fsm.Timeline) *timers {
	for len(q.timers[line]) > 0 {
		a := q.timers[line][0]
		if a.sub.isTimerCurrent(a.heap[0]) {
			return a
		}
		a.heap.pop()
		if a.stale > 0 {
			a.stale--
		} else if line == fsm.WallTime && a.sub.ix.lostTimers > 0 {
			a.sub.ix.lostTimers--
		}
		q.timers[line].fix(a)
	}
	return nil
}

// precedes reports whether the first of these timers comes before the timer x of a sub-queue. Serving
// times are compared as the wall times that correspond to them at this entry: so there is one order
// over both timelines.
func (q *Machine) precedes(a *timers, sub *subqueue, x timer) bool {
	y := a.heap[0]
	y.at, x.at = q.onWall(y), q.onWall(x)
	switch {
	case y.at != x.at:
		return y.at < x.at
	case a.sub != sub:
		return a.sub.address.Before(sub.address)
	}
	return y.Before(x)
}

// onWall returns the wall time that corresponds to a timer.
func (q *Machine) onWall(x timer) fsm.Instant {
	if x.kind.timeline() == fsm.ServingTime {
		return q.times.OnWall(x.at)
	}
	return x.at
}

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
		a, x, ok := q.nextTimer()
		if !ok || q.onWall(x) > q.times.Wall {
			break
		}
		sub := a.sub
		if x.kind == timerChunk {
			budget -= q.processDue(sub, x, budget)
			q.removeStaleTimers(sub)
			continue
		}
		q.popTimer(sub, x.kind.timeline())
		switch x.kind {
		case timerLock:
			budget--
			at, rec, _ := sub.findLocked(fsm.LockID{Sequence: x.number, Epoch: x.epoch})
			q.returnToQueue(sub, at, rec, true, 0, fsm.Patch{})
		case timerSession:
			slot := uint32(x.number)
			budget -= 1 + sub.entity.sessions.messages[slot].locked.count()
			q.endSession(sub.entity, slot, true)
			q.removeStaleTimers(sub)
		case timerSweep:
			sub.entity.sweepAt = 0
			if sub.entity.sweepDue() == x.at {
				budget -= 1 + q.sweep(sub.entity)/sweepPerBudget
			}
			q.scheduleSweep(sub.entity)
		case timerIdle:
			sub.entity.idleAt = 0
			switch {
			case sub.entity.isShard() && q.isIdle(sub.entity):
				q.reportIdleShard(sub.entity)
			case sub.entity.idleDue() == x.at:
				budget--
				q.deleteIdle(sub.entity)
			default:
				q.scheduleIdle(sub.entity)
			}
		case timerChunk:
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
	if a := q.firstTimer(fsm.WallTime); a != nil {
		due.Wall = a.heap[0].at
	}
	if a := q.firstTimer(fsm.ServingTime); a != nil {
		due.Serving = fsm.Earlier(due.Serving, a.heap[0].at)
	}
	return due
}
