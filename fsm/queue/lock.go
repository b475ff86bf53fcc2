package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// receiving locks messages for receivers and settles them.
type receiving struct {
	*core
	*messages
	*sessions
}

// lock delivers the oldest ready messages. remembered tells whether the answer will be remembered:
// receive-and-delete requires it, because the messages would be lost with a lost answer. Expired
// messages are not delivered even if no pulse came yet; if there are very many, or they are large, the
// rest is left to the next lock.
func (q *receiving) lock(c fsm.LockMessages, remembered bool) fsm.Result {
	if c.Check() != fsm.OK || (c.Delete && !remembered) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	sub, code := q.receivable(c.Address)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	session, code := sub.receiverSession(c.Session)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	n := min(uint64(c.Max), sub.readyCount(session))
	if n == 0 || sub.entity.fence != 0 { // who waits is woken when the fence is lifted
		return fsm.Result{}
	}
	deliveries := make([]fsm.Delivery, 0, n)
	size, expired := uint64(0), 0
	for uint64(len(deliveries)) < n {
		at, found := sub.oldestReady(session)
		if !found {
			break
		}
		rec := sub.ix.Get(at)
		if sub.ix.Expired(&rec, q.times.Wall) {
			if expired == fsm.PulseMessagesMax || !q.mayExpire(sub, at) {
				q.notifyReady(sub)
				break
			}
			expired++
			q.expire(sub, at, rec, fsm.Patch{})
			continue
		}
		if size += rec.Size(); size > uint64(c.MaxBytes) && len(deliveries) > 0 {
			break
		}
		deliveries = append(deliveries, q.grant(sub, at, rec, c.Delete))
	}
	sub.ix.RemoveStaleTimers()
	if len(deliveries) == 0 {
		return fsm.Result{}
	}
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
	return fsm.Result{Deliveries: deliveries}
}

// grant delivers one message, ready or deferred: locks it, or marks it Deleting.
func (q *receiving) grant(sub *subqueue, at index.Cursor, rec index.Record, forGood bool) fsm.Delivery {
	switch {
	case forGood:
		rec.Delete()
	case sub.ix.DeliversBySession():
		rec.Lock(0) // as long as its session is locked
	default:
		rec.Lock(q.times.Serving.After(sub.entity.settings.LockDuration))
	}
	sub.ix.Set(at, rec)
	sub.ix.AddLockTimer(sub.ix.Number(at), &rec)
	sub.entity.totals.Outgoing++
	return q.delivery(sub, at, &rec)
}

// fetch delivers deferred messages by number. A number that is named twice is delivered once,
// because the message is no longer deferred the second time.
func (q *receiving) fetch(c fsm.FetchDeferred, remembered bool) fsm.Result {
	if c.Check() != fsm.OK || (c.Delete && !remembered) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	return q.take(c.Address, c.Session, c.Delete, len(c.Sequences), func(i int) (fsm.SequenceNumber, func(*index.Record) bool) {
		return c.Sequences[i], func(rec *index.Record) bool { return rec.State() == fsm.Deferred }
	})
}

// fetchReady delivers ready messages that nobody has locked since they were peeked at.
func (q *receiving) fetchReady(c fsm.FetchReady, remembered bool) fsm.Result {
	if c.Check() != fsm.OK || (c.Delete && !remembered) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	return q.take(c.Address, fsm.SessionLock{}, c.Delete, len(c.Seen), func(i int) (fsm.SequenceNumber, func(*index.Record) bool) {
		return c.Seen[i].Sequence, func(rec *index.Record) bool {
			return rec.State() == fsm.Ready && rec.Epoch() == c.Seen[i].Epoch
		}
	})
}

// take delivers n messages: named returns the number of each, and whether its record allows it. An expired message expires
// now, or when it is taken again if there are very many, or they are large.
func (q *receiving) take(a fsm.Address, l fsm.SessionLock, forGood bool, n int, named func(i int) (fsm.SequenceNumber, func(*index.Record) bool)) fsm.Result {
	sub, code := q.receivable(a)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	session, code := sub.receiverSession(l)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	if code := sub.entity.fenced(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	var res fsm.Result
	expired := 0
	for i := range n {
		number, allowed := named(i)
		at, found := sub.ix.Seek(number)
		if !found {
			continue
		}
		rec := sub.ix.Get(at)
		switch {
		case !allowed(&rec) || sub.ix.DeliversBySession() && sub.ix.Session(at) != session:
		case rec.State() == fsm.Ready && sub.forwardsReady() && !rec.IsHeld():
		case !sub.ix.Expired(&rec, q.times.Wall):
			res.Deliveries = append(res.Deliveries, q.grant(sub, at, rec, forGood))
		case expired < fsm.PulseMessagesMax && q.mayExpire(sub, at):
			expired++
			q.expire(sub, at, rec, fsm.Patch{})
		}
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
	return res
}

// receivable finds the sub-queue of a receiver.
func (q *receiving) receivable(a fsm.Address) (*subqueue, fsm.Code) {
	sub := q.subqueueAt(a)
	switch {
	case sub == nil:
		return nil, fsm.EntityNotFound
	case sub.hasNoReceivers():
		return nil, fsm.NotAllowed
	case !sub.entity.settings.Status.AllowsReceive():
		return nil, fsm.EntityDisabled
	case a.Sub == fsm.MainQueue && sub.forwardsReady():
		return nil, fsm.NotAllowed // a dead-letter queue may have messages that are held back
	}
	return sub, fsm.OK
}
