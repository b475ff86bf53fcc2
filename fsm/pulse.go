package fsm

import "github.com/peeklock/peeklock/fsm/planted"

// addTimer adds a timer.
func (q *Queues) addTimer(sub *subqueue, x timer) {
	sub.timers.heap.push(x)
	if sub.timers.heap[0] == x {
		q.timers.fix(sub)
	}
}

// isTimerCurrent reports whether a timer is not stale: what it stands for exists, and is due then
// or later.
func (sub *subqueue) isTimerCurrent(x timer) bool {
	switch x.kind {
	case timerLock:
		_, rec, ok := sub.findLocked(LockID{Sequence: x.number, Epoch: x.epoch})
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
func (q *Queues) removeStaleTimers(sub *subqueue) {
	a := &sub.timers
	stale := a.stale + sub.ix.lostTimers
	if stale > len(a.heap)-stale+staleSlack {
		a.rebuild(sub.isTimerCurrent)
		sub.ix.lostTimers = 0
		q.timers.fix(sub)
	}
}

// nextTimer finds the earliest timer of all; it removes stale ones before it.
func (q *Queues) nextTimer() (*subqueue, timer, bool) {
	for len(q.timers) > 0 {
		sub := q.timers[0]
		x := sub.timers.heap[0]
		if sub.isTimerCurrent(x) {
			return sub, x, true
		}
		sub.timers.heap.pop()
		sub.countSkipped(x)
		q.timers.fix(sub)
	}
	return nil, timer{}, false
}

// countSkipped counts a stale timer that was removed.
func (sub *subqueue) countSkipped(x timer) {
	if x.kind == timerChunk && sub.ix.lostTimers > 0 {
		sub.ix.lostTimers--
	} else if sub.timers.stale > 0 {
		sub.timers.stale--
	}
}

// pulse publishes Pending messages, then processes what is due, earliest first, at most
// pulseMessagesMax messages and little more than pulseBytesMax: expired locks return their messages, messages expire, scheduled
// messages become active, idle entities are deleted, ids and incarnations are forgotten. Lower
// bounds of timers have no influence on the result: before something is done, its exact time is
// compared with all timers.
func (q *Queues) pulse() {
	q.releasePending(releasesPerPulse)
	q.publishPending()
	budget := pulseMessagesMax
	q.bodies.appended = 0
	for budget > 0 && !q.isPulseFull() {
		sub, x, ok := q.nextTimer()
		if !ok || x.at > q.clock {
			break
		}
		if x.kind == timerChunk {
			budget -= q.processDue(sub, x, budget)
			q.removeStaleTimers(sub)
			continue
		}
		sub.timers.heap.pop()
		q.timers.fix(sub)
		switch x.kind {
		case timerLock:
			budget--
			at, rec, _ := sub.findLocked(LockID{Sequence: x.number, Epoch: x.epoch})
			q.returnToQueue(sub, at, rec, true, 0, Patch{})
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
			if sub.entity.idleDue() == x.at {
				budget--
				q.deleteIdle(sub.entity)
			} else {
				q.scheduleIdle(sub.entity)
			}
		case timerChunk:
		}
	}
	q.table.forgetIdle(q.clock, max(budget, 0))
}

// isPulseFull reports whether the current pulse has stored as many bytes as it may.
func (q *Queues) isPulseFull() bool {
	return q.FormatLevel() >= levelEpochs && q.bodies.appended >= pulseBytesMax && !planted.Active(planted.PulseWithoutByteBound)
}

// NextDeadline returns a time at or before which something is due for a Pulse. A time that the
// clock of the newest entry has reached means that a Pulse is due now.
func (q *Queues) NextDeadline() (at Instant, ok bool) {
	if len(q.pendingReleases) > 0 || len(q.pending) > 0 {
		return max(q.clock, 1), true
	}
	at = q.table.due
	if _, x, found := q.nextTimer(); found && (at == 0 || x.at < at) {
		at = x.at
	}
	return at, at != 0
}
