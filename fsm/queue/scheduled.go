package queue

import "github.com/peeklock/peeklock/fsm"

// cancel removes scheduled messages: all or none.
func (q *sending) cancel(c fsm.CancelScheduled) fsm.Result {
	x, code := q.scheduledMessages(&c)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	q.removeScheduled(x, c.Sequences)
	return fsm.Result{}
}

// scheduledMessages returns the entity of a cancellation, if all of its messages are scheduled.
func (q *sending) scheduledMessages(c *fsm.CancelScheduled) (*entityState, fsm.Code) {
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
func (q *sending) removeScheduled(x *entityState, numbers []fsm.SequenceNumber) {
	sub := &x.subs[fsm.MainQueue]
	for _, n := range numbers {
		if at, found := sub.ix.Seek(n); found {
			rec := sub.ix.Get(at)
			q.deleteMessage(sub, at, &rec, &x.totals.Removed)
		}
	}
	sub.ix.RemoveStaleTimers()
	x.lastActivity = q.times.Serving
}

// reserve gives numbers to messages that a transaction will schedule. Those that it never stores leave a gap.
func (q *sending) reserve(c fsm.ReserveNumbers) fsm.Result {
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
