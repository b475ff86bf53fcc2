package fsm

// arm adds an alarm.
func (q *Queues) arm(sub *subqueue, x alarm) {
	sub.alarms.push(x)
	if sub.alarms.heap[0] == x {
		q.due.fix(sub)
	}
}

// rings says whether an alarm still means something.
func (sub *subqueue) rings(x alarm) bool {
	_, rec, ok := sub.held(LockID{Sequence: x.number, Epoch: x.epoch})
	return ok && rec.deadline == x.at
}

// tidy bounds the stale alarms of a sub-queue by its live ones. It must run after
// locks have ended, once the records say so.
func (q *Queues) tidy(sub *subqueue) {
	a := &sub.alarms
	if a.stale > len(a.heap)-a.stale+staleSlack {
		a.rebuild(sub.rings)
		q.due.fix(sub)
	}
}

// next finds the alarm that rings first of all, taking stale ones out on the way.
func (q *Queues) next() (*subqueue, alarm, bool) {
	for len(q.due) > 0 {
		sub := q.due[0]
		x := sub.alarms.heap[0]
		if sub.rings(x) {
			return sub, x, true
		}
		sub.alarms.pop()
		sub.alarms.stale = max(0, sub.alarms.stale-1)
		q.due.fix(sub)
	}
	return nil, alarm{}, false
}

// pulse does what is due, earliest first, at most pulseMessagesMax messages: locks
// that have run out give their messages back, origins that fell silent are forgotten.
func (q *Queues) pulse() {
	budget := pulseMessagesMax
	for budget > 0 {
		sub, x, ok := q.next()
		if !ok || x.at > q.clock {
			break
		}
		budget--
		sub.alarms.pop()
		q.due.fix(sub)
		at, rec, _ := sub.held(LockID{Sequence: x.number, Epoch: x.epoch})
		q.giveBack(q.byID[sub.address.Entity], sub, at, rec, true, Patch{})
	}
	q.table.forgetIdle(q.clock, budget)
}

// NextDeadline says when something is due that a Pulse does: the end of a lock, or an
// origin to be forgotten. A time in the past means that the last pulse left something.
func (q *Queues) NextDeadline() (at Instant, ok bool) {
	at = q.table.due
	if _, x, found := q.next(); found && (at == 0 || x.at < at) {
		at = x.at
	}
	return at, at != 0
}
