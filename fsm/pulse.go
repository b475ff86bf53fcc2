package fsm

// arm adds an alarm.
func (q *Queues) arm(sub *subqueue, x alarm) {
	sub.alarms.heap.push(x)
	if sub.alarms.heap[0] == x {
		q.due.fix(sub)
	}
}

// stands says whether an alarm still means something, if not by itself then as a lower
// bound.
func (sub *subqueue) stands(x alarm) bool {
	switch x.kind {
	case alarmLock:
		_, rec, ok := sub.held(LockID{Sequence: x.number, Epoch: x.epoch})
		return ok && rec.deadline == x.at
	case alarmChunk:
		base, _ := split(x.number)
		pos, found := sub.ix.find(base)
		return found && sub.ix.entries[pos].due == x.at
	case alarmSweep:
		return sub.of.sweepAt == x.at
	case alarmIdle:
		return sub.of.idleAt == x.at
	case alarmSession:
		return sub.of.sessionStands(x)
	}
	return false
}

// tidy bounds the stale alarms of a sub-queue by its live ones. It must run after
// locks or messages have gone, once the records say so.
func (q *Queues) tidy(sub *subqueue) {
	a := &sub.alarms
	stale := a.stale + sub.ix.lost
	if stale > len(a.heap)-stale+staleSlack {
		a.rebuild(sub.stands)
		sub.ix.lost = 0
		q.due.fix(sub)
	}
}

// next finds the alarm that rings first of all, taking stale ones out on the way.
func (q *Queues) next() (*subqueue, alarm, bool) {
	for len(q.due) > 0 {
		sub := q.due[0]
		x := sub.alarms.heap[0]
		if sub.stands(x) {
			return sub, x, true
		}
		sub.alarms.heap.pop()
		sub.skipped(x)
		q.due.fix(sub)
	}
	return nil, alarm{}, false
}

// skipped counts a stale alarm out.
func (sub *subqueue) skipped(x alarm) {
	if x.kind == alarmChunk && sub.ix.lost > 0 {
		sub.ix.lost--
	} else if sub.alarms.stale > 0 {
		sub.alarms.stale--
	}
}

// pulse publishes what is Pending, and does what is due, earliest first, at most
// pulseMessagesMax messages: locks that
// have run out give their messages back, lives end, scheduled messages become active,
// idle queues go, ids and origins are forgotten. Which lower bounds stand decides
// nothing: before something is done its exact moment is compared with all alarms.
func (q *Queues) pulse() {
	q.letGo(releasesPerPulse)
	q.publishPending()
	budget := pulseMessagesMax
	for budget > 0 {
		sub, x, ok := q.next()
		if !ok || x.at > q.clock {
			break
		}
		if x.kind == alarmChunk {
			budget -= q.ripen(sub, x, budget)
			q.tidy(sub)
			continue
		}
		sub.alarms.heap.pop()
		q.due.fix(sub)
		switch x.kind {
		case alarmLock:
			budget--
			at, rec, _ := sub.held(LockID{Sequence: x.number, Epoch: x.epoch})
			q.giveBack(sub, at, rec, true, 0, Patch{})
		case alarmSession:
			slot := uint32(x.number)
			budget -= 1 + sub.of.sessions.lines[slot].held.count()
			q.endSession(sub.of, slot, true)
			q.tidy(sub)
		case alarmSweep:
			sub.of.sweepAt = 0
			if sub.of.sweepDue() == x.at {
				budget -= 1 + q.sweep(sub.of)/sweepPerBudget
			}
			q.expectSweep(sub.of)
		case alarmIdle:
			sub.of.idleAt = 0
			if sub.of.idleDue() == x.at {
				budget--
				q.goIdle(sub.of)
			} else {
				q.expectIdle(sub.of)
			}
		case alarmChunk:
		}
	}
	q.table.forgetIdle(q.clock, max(budget, 0))
}

// NextDeadline says when something is due that a Pulse does, or earlier. A moment that
// the clock of the newest entry has reached already means that a Pulse is due now.
func (q *Queues) NextDeadline() (at Instant, ok bool) {
	if len(q.remains) > 0 || len(q.pending) > 0 {
		return max(q.clock, 1), true
	}
	at = q.table.due
	if _, x, found := q.next(); found && (at == 0 || x.at < at) {
		at = x.at
	}
	return at, at != 0
}
