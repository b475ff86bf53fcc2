package fsm

// send stores messages at the tail, all or none, except duplicates.
func (q *Queues) send(id EntityID, messages []sentMessage) Result {
	x, code := q.admit(id, messages)
	if code != OK {
		return Result{Code: code}
	}
	first := x.last + 1
	var res Result
	for i := range messages {
		if q.checkDuplicate(x, messages[i].id) {
			if res.Sequences == nil {
				res.Sequences = make([]SequenceNumber, len(messages))
				for j := range i {
					res.Sequences[j] = first + SequenceNumber(j)
				}
			}
			continue
		}
		n := q.storeOrPublish(x, &messages[i])
		if res.Sequences != nil {
			res.Sequences[i] = n
		}
	}
	if x.last >= first {
		res.Sequence = first
	}
	q.finishStore(x, len(messages))
	return res
}

// finishStore updates the entity after so many messages were stored, sent or forwarded.
func (q *Queues) finishStore(x *entityState, messages int) {
	if x.window != nil {
		x.window.sweep(q.clock, x.settings.DuplicateWindow, sweepPerSend*messages, q.arena.generation)
		q.scheduleSweep(x)
	}
	q.removeStaleTimers(&x.subs[MainQueue])
	x.lastActivity = q.clock
}

// admit checks a send before anything is changed.
func (q *Queues) admit(id EntityID, messages []sentMessage) (*entityState, Code) {
	if !within(len(messages), commandMessagesMax) {
		return nil, InvalidArgument
	}
	x, code := q.sendable(id)
	if code != OK {
		return nil, code
	}
	size, code := x.checkMessages(messages)
	switch {
	case code != OK:
		return nil, code
	case x.topicState != nil && q.level < levelPublishSteps && q.exceedsPublishingsMax(x.topicState, messages):
		return nil, MessageTooLarge
	}
	return x, q.checkQuota(x, x.storedBytes(), size, messages)
}

// sendable finds an entity that accepts messages.
func (q *Queues) sendable(id EntityID) (*entityState, Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, EntityNotFound
	case x.kind == SubscriptionEntity:
		return nil, NotAllowed
	case !x.settings.Status.allowsSend():
		return nil, EntityDisabled
	}
	return x, OK
}

// checkMessages checks each of these messages, and returns their size together.
func (x *entityState) checkMessages(messages []sentMessage) (size uint64, code Code) {
	for i := range messages {
		m := &messages[i]
		if !validSent(m) {
			return 0, InvalidArgument
		}
		if x.sessions != nil && !m.hasSession {
			return 0, NotAllowed
		}
		if uint64(len(m.payload)) > uint64(x.settings.MaxMessageBytes) {
			return 0, MessageTooLarge
		}
		size += uint64(len(m.payload))
	}
	return size, OK
}

// validSent checks the limits of a message that do not depend on the entity.
func validSent(m *sentMessage) bool {
	return len(m.id) <= messageIDBytesMax && len(m.session) <= sessionIDBytesMax && validTime(m.ttl, m.at) &&
		(len(m.properties) == 0 || validProperties(m.properties))
}

// checkQuota reports whether an entity with held bytes can store messages of a size.
func (q *Queues) checkQuota(x *entityState, held, size uint64, messages []sentMessage) Code {
	if held+size > x.settings.MaxBytes && held+q.uniqueBytes(x, messages) > x.settings.MaxBytes {
		return QuotaExceeded
	}
	if w := x.window; w != nil && w.tail-w.head+uint64(len(messages)) > windowIDsMax {
		return QuotaExceeded
	}
	if x.sessions != nil && x.sessions.count+len(messages) > sessionsMax {
		return QuotaExceeded
	}
	return OK
}

// storedBytes returns the size of all payloads, in all sub-queues.
func (x *entityState) storedBytes() uint64 {
	total := uint64(0)
	for i := range x.subs {
		total += x.subs[i].ix.bytes
	}
	if x.sessions != nil {
		total += x.sessions.bytes
	}
	return total
}

// storeOrPublish stores one admitted message, or publishes it at a topic.
func (q *Queues) storeOrPublish(x *entityState, m *sentMessage) SequenceNumber {
	if x.kind == TopicEntity {
		return q.publish(x, m)
	}
	return q.store(x, m)
}

// store stores one message at the tail.
func (q *Queues) store(x *entityState, m *sentMessage) SequenceNumber {
	sub := &x.subs[MainQueue]
	x.last++
	rec := record{enqueued: q.clock, state: Ready}
	rec.body = q.bodies.Append(Owner{Address: sub.address, Sequence: x.last}, m.payload)
	if m.at > q.clock {
		rec.state, rec.deadline, rec.expires = Scheduled, m.at, Instant(m.ttl)
	} else {
		rec.expires = expiry(q.clock, x.effectiveTimeToLive(m.ttl))
		q.notifyReady(sub)
	}
	q.insertInSession(sub, x.last, rec, q.messageSession(x, m))
	return x.last
}

// delivery returns the message at a cursor as a delivery.
func (sub *subqueue) delivery(at cursor, rec *record) Delivery {
	return sub.newDelivery(sub.ix.number(at), rec, sub.ix.patch(at))
}

func (sub *subqueue) newDelivery(n SequenceNumber, rec *record, patch Ref) Delivery {
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
		d.LockedUntil = sub.lockEnd(n, rec)
	}
	return d
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

// lock delivers the oldest ready messages. remembered tells whether the answer will be remembered:
// receive-and-delete requires it, because the messages would be lost with a lost answer. Expired
// messages are not delivered even if no pulse came yet; if there are very many, the rest is left to
// the next lock.
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
	if n == 0 {
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
			if expired == pulseMessagesMax {
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
	sub.entity.lastActivity = q.clock
	return Result{Deliveries: deliveries}
}

// grant delivers one message, ready or deferred: locks it, or marks it Deleting.
func (q *Queues) grant(sub *subqueue, at cursor, rec record, forGood bool) Delivery {
	rec.epoch++
	switch {
	case forGood:
		rec.state = Deleting
	case sub.deliversBySession():
		rec.state = Locked // as long as its session is locked
	default:
		rec.state = Locked
		rec.deadline = q.clock.After(sub.entity.settings.LockDuration)
	}
	sub.ix.set(at, rec)
	if rec.deadline != 0 {
		q.addTimer(sub, timer{at: rec.deadline, number: sub.ix.number(at), epoch: rec.epoch, kind: timerLock})
	}
	return sub.delivery(at, &rec)
}

// fetch delivers deferred messages by number. A number that is named twice is delivered once,
// because the message is no longer deferred the second time. An expired message expires now.
func (q *Queues) fetch(c FetchDeferred, remembered bool) Result {
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
	var res Result
	expired := 0
	for _, n := range c.Sequences {
		at, found := sub.ix.seek(n)
		if !found {
			continue
		}
		rec := sub.ix.get(at)
		switch {
		case rec.state != Deferred || sub.deliversBySession() && sub.ix.session(at) != session:
		case !q.expired(sub, &rec):
			rec.flags |= fromDeferred
			res.Deliveries = append(res.Deliveries, q.grant(sub, at, rec, c.Delete))
		case expired < pulseMessagesMax:
			expired++
			q.expire(sub, at, rec, Patch{})
		}
	}
	q.removeStaleTimers(sub)
	sub.entity.lastActivity = q.clock
	return res
}
