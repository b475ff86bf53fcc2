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
		x.window.sweep(q.times.Wall, x.settings.DuplicateWindow, sweepPerSend*messages, q.arena.generation)
		q.scheduleSweep(x)
	}
	q.removeStaleTimers(&x.subs[MainQueue])
	x.lastActivity = q.times.Serving
	q.recordUse(x)
}

// admit checks a send before anything is changed.
func (q *Queues) admit(id EntityID, messages []sentMessage) (*entityState, Code) {
	if !within(len(messages), commandSendMax) {
		return nil, InvalidArgument
	}
	x, code := q.sendable(id)
	if code != OK {
		return nil, code
	}
	size, code := q.checkMessages(x, messages)
	if code != OK {
		return nil, code
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
	return x, x.fenced()
}

// checkMessages checks each of these messages, and returns their size together.
func (q *Queues) checkMessages(x *entityState, messages []sentMessage) (size uint64, code Code) {
	most := x.payloadMax()
	for i := range messages {
		m := &messages[i]
		if !validSent(m) {
			return 0, InvalidArgument
		}
		if x.sessions != nil && !m.hasSession {
			return 0, NotAllowed
		}
		if uint64(len(m.payload)) > most {
			return 0, MessageTooLarge
		}
		size += uint64(len(m.payload))
	}
	return size, OK
}

// payloadMax returns the size of the largest payload that an entity stores.
func (x *entityState) payloadMax() uint64 {
	return uint64(x.settings.MaxMessageBytes) + payloadOverheadMax
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
	n := q.numberFor(x, m)
	rec := record{enqueued: q.times.Wall, state: Ready}
	rec.body = q.bodies.Append(Owner{Address: sub.address, Sequence: n}, m.payload)
	if m.at > q.times.Wall {
		rec.state, rec.deadline, rec.expires = Scheduled, m.at, Instant(m.ttl)
	} else {
		rec.expires = expiry(q.times.Wall, x.effectiveTimeToLive(m.ttl))
		q.notifyReady(sub)
	}
	q.insertInSession(sub, n, rec, q.messageSession(x, m))
	return n
}

// uniqueBytes returns the size of the payloads that are not duplicates. It repeats the work of the
// look-ups, so it is called only if a queue is nearly full.
func (q *Queues) uniqueBytes(x *entityState, messages []sentMessage) uint64 {
	total := uint64(0)
	batch := make(map[idKey]struct{}, len(messages))
	for i := range messages {
		m := &messages[i]
		if x.window != nil && len(m.id) > 0 {
			key := keyOf(m.id)
			if _, twice := batch[key]; twice || x.window.contains(&key, q.times.Wall, x.settings.DuplicateWindow) {
				continue
			}
			batch[key] = struct{}{}
		}
		total += uint64(len(m.payload))
	}
	return total
}
