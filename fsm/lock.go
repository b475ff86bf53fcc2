package fsm

import (
	"github.com/peeklock/peeklock/fsm/planted"
)

// lock delivers the oldest ready messages. remembered tells whether the answer will be remembered:
// receive-and-delete requires it, because the messages would be lost with a lost answer. Expired
// messages are not delivered even if no pulse came yet; if there are very many, or they are large, the
// rest is left to the next lock.
func (q *Queues) lock(c LockMessages, remembered bool) Result {
	if c.check() != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	sub, code := q.receivable(c.Address)
	if code != OK {
		return Result{Code: code}
	}
	session, code := sub.receiverSession(c.Session)
	if code != OK {
		return Result{Code: code}
	}
	n := min(uint64(c.Max), sub.readyCount(session))
	if n == 0 || sub.entity.fence != 0 { // who waits is woken when the fence is lifted
		return Result{}
	}
	deliveries := make([]Delivery, 0, n)
	size, expired := uint64(0), 0
	for uint64(len(deliveries)) < n {
		at, found := sub.oldestReady(session)
		if !found {
			break
		}
		rec := sub.ix.get(at)
		if q.expired(sub, &rec) {
			if expired == pulseMessagesMax || !q.mayExpire(sub, at) {
				q.notifyReady(sub)
				break
			}
			expired++
			q.expire(sub, at, rec, Patch{})
			continue
		}
		if size += uint64(rec.body.Size); size > uint64(c.MaxBytes) && len(deliveries) > 0 {
			break
		}
		deliveries = append(deliveries, q.grant(sub, at, rec, c.Delete))
	}
	q.removeStaleTimers(sub)
	if len(deliveries) == 0 {
		return Result{}
	}
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
	return Result{Deliveries: deliveries}
}

// grant delivers one message, ready or deferred: locks it, or marks it Deleting.
func (q *Queues) grant(sub *subqueue, at cursor, rec record, forGood bool) Delivery {
	if !planted.Active(planted.ReuseLockEpoch) {
		rec.epoch++
	}
	switch {
	case forGood:
		rec.state = Deleting
	case sub.deliversBySession():
		rec.state = Locked // as long as its session is locked
	default:
		rec.state = Locked
		rec.deadline = q.times.Serving.After(sub.entity.settings.LockDuration)
	}
	sub.ix.set(at, rec)
	if rec.deadline != 0 {
		q.addTimer(sub, timer{at: rec.deadline, number: sub.ix.number(at), epoch: rec.epoch, kind: timerLock})
	}
	return q.delivery(sub, at, &rec)
}

// fetch delivers deferred messages by number. A number that is named twice is delivered once,
// because the message is no longer deferred the second time.
func (q *Queues) fetch(c FetchDeferred, remembered bool) Result {
	if c.check() != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	return q.take(c.Address, c.Session, c.Delete, len(c.Sequences), func(i int) (SequenceNumber, func(*record) bool) {
		return c.Sequences[i], func(rec *record) bool { return rec.state == Deferred }
	})
}

// fetchReady delivers ready messages that nobody has locked since they were peeked at.
func (q *Queues) fetchReady(c FetchReady, remembered bool) Result {
	if c.check() != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	return q.take(c.Address, SessionLock{}, c.Delete, len(c.Seen), func(i int) (SequenceNumber, func(*record) bool) {
		return c.Seen[i].Sequence, func(rec *record) bool {
			held := rec.state == Locked && planted.Active(planted.FetchReadyTakesLocked)
			return (rec.state == Ready || held) && rec.epoch == c.Seen[i].Epoch
		}
	})
}

// take delivers n messages: named returns the number of each, and whether its record allows it. An expired message expires
// now, or when it is taken again if there are very many, or they are large.
func (q *Queues) take(a Address, l SessionLock, forGood bool, n int, named func(i int) (SequenceNumber, func(*record) bool)) Result {
	sub, code := q.receivable(a)
	if code != OK {
		return Result{Code: code}
	}
	session, code := sub.receiverSession(l)
	if code != OK {
		return Result{Code: code}
	}
	if code := sub.entity.fenced(); code != OK {
		return Result{Code: code}
	}
	var res Result
	expired := 0
	for i := range n {
		number, allowed := named(i)
		at, found := sub.ix.seek(number)
		if !found {
			continue
		}
		rec := sub.ix.get(at)
		switch {
		case !allowed(&rec) || sub.deliversBySession() && sub.ix.session(at) != session:
		case !q.expired(sub, &rec):
			if rec.state == Deferred {
				rec.flags |= fromDeferred
			}
			res.Deliveries = append(res.Deliveries, q.grant(sub, at, rec, forGood))
		case expired < pulseMessagesMax && q.mayExpire(sub, at):
			expired++
			q.expire(sub, at, rec, Patch{})
		}
	}
	q.removeStaleTimers(sub)
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
	return res
}

// receivable finds the sub-queue of a receiver.
func (q *Queues) receivable(a Address) (*subqueue, Code) {
	sub := q.subqueueAt(a)
	switch {
	case sub == nil:
		return nil, EntityNotFound
	case sub.hasNoReceivers():
		return nil, NotAllowed
	case !sub.entity.settings.Status.allowsReceive():
		return nil, EntityDisabled
	case sub.destination() != "":
		return nil, NotAllowed // its messages are forwarded
	}
	return sub, OK
}

// hasNoReceivers reports whether the sub-queue cannot be received from: those of a topic, except
// the transfer dead-letter queue.
func (sub *subqueue) hasNoReceivers() bool {
	return sub.entity.kind == TopicEntity && sub.address.Sub != TransferDeadLetterQueue
}

// findSubQueue finds a sub-queue that can contain messages for receivers.
func (q *Queues) findSubQueue(a Address) (*subqueue, Code) {
	sub := q.subqueueAt(a)
	switch {
	case sub == nil:
		return nil, EntityNotFound
	case sub.hasNoReceivers():
		return nil, NotAllowed
	}
	return sub, OK
}

// usableSubQueue is findSubQueue for commands that change something: ServerBusy while the entity is fenced.
func (q *Queues) usableSubQueue(a Address) (*subqueue, Code) {
	sub, code := q.findSubQueue(a)
	if code == OK {
		code = sub.entity.fenced()
	}
	return sub, code
}

// delivery returns the message at a cursor as a delivery.
func (q *Queues) delivery(sub *subqueue, at cursor, rec *record) Delivery {
	return q.newDelivery(sub, sub.ix.number(at), rec, sub.ix.patch(at))
}

func (q *Queues) newDelivery(sub *subqueue, n SequenceNumber, rec *record, patch Ref) Delivery {
	d := Delivery{
		Lock:             LockID{Sequence: n, Epoch: rec.epoch},
		State:            rec.state,
		FailedDeliveries: uint32(rec.failedDeliveries),
		Enqueued:         rec.enqueued,
		Body:             rec.body,
		Patch:            patch,
		Hops:             rec.flags.hops(),
	}
	if rec.flags&shared != 0 {
		d.Body, d.Topic = sub.sharedBody(rec)
	}
	switch {
	case sub.address.Sub != MainQueue:
	case rec.state == Scheduled && rec.flags&delayed == 0:
		d.Expires = expiry(rec.deadline, sub.entity.effectiveTimeToLive(Millis(rec.expires)))
	default:
		d.Expires = rec.expires
	}
	if rec.state == Locked {
		d.LockedUntil = q.times.onWall(sub.lockEnd(n, rec))
	}
	return d
}
