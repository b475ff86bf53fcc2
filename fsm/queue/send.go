package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// sending stores messages that clients send or other entities forward.
type sending struct {
	*core
	*messages
	*topics
}

// send stores messages at the tail, all or none, except duplicates.
func (q *sending) send(id fsm.EntityID, messages []sentMessage) fsm.Result {
	x, code := q.admit(id, messages)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	first := x.last + 1
	var res fsm.Result
	for i := range messages {
		if q.checkDuplicate(x, messages[i].id) {
			if res.Sequences == nil {
				res.Sequences = make([]fsm.SequenceNumber, len(messages))
				for j := range i {
					res.Sequences[j] = first + fsm.SequenceNumber(j)
				}
			}
			if messages[i].at != 0 { // clients cancel by the number, and expect one that is not 0
				x.last++
				res.Sequences[i] = x.last
			}
			continue
		}
		n := q.storeOrPublish(x, &messages[i])
		if res.Sequence == 0 {
			res.Sequence = n
		}
		if res.Sequences != nil {
			res.Sequences[i] = n
		}
	}
	q.finishStore(x, len(messages))
	return res
}

// finishStore updates the entity after so many messages were stored, sent or forwarded.
func (q *sending) finishStore(x *entityState, messages int) {
	if x.window != nil {
		x.window.sweep(q.times.Wall, x.settings.DuplicateWindow, sweepPerSend*messages, *q.arena.Generation())
		q.scheduleSweep(x)
	}
	x.subs[fsm.MainQueue].ix.RemoveStaleTimers()
	x.lastActivity = q.times.Serving
	q.recordUse(x)
}

// admit checks a send before anything is changed.
func (q *sending) admit(id fsm.EntityID, messages []sentMessage) (*entityState, fsm.Code) {
	if !fsm.Within(len(messages), fsm.CommandSendMax) {
		return nil, fsm.InvalidArgument
	}
	x, code := q.sendable(id)
	if code != fsm.OK {
		return nil, code
	}
	size, code := q.checkMessages(x, messages)
	if code != fsm.OK {
		return nil, code
	}
	return x, q.checkQuota(x, x.quotaBytes(), size, messages)
}

// sendable finds an entity that accepts messages.
func (q *sending) sendable(id fsm.EntityID) (*entityState, fsm.Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, fsm.EntityNotFound
	case x.kind == fsm.SubscriptionEntity:
		return nil, fsm.NotAllowed
	case !x.settings.Status.AllowsSend():
		return nil, fsm.EntityDisabled
	}
	return x, x.fenced()
}

// checkMessages checks each of these messages, and returns their size together.
func (q *sending) checkMessages(x *entityState, messages []sentMessage) (size uint64, code fsm.Code) {
	most := x.payloadMax()
	for i := range messages {
		m := &messages[i]
		if !validSent(m) {
			return 0, fsm.InvalidArgument
		}
		if x.sessions != nil && !m.hasSession {
			return 0, fsm.NotAllowed
		}
		if uint64(len(m.payload)) > most {
			return 0, fsm.MessageTooLarge
		}
		size += uint64(len(m.payload))
	}
	return size, fsm.OK
}

// checkQuota reports whether an entity with held bytes can store messages of a size.
func (q *sending) checkQuota(x *entityState, held, size uint64, messages []sentMessage) fsm.Code {
	if held+size > x.settings.MaxBytes && held+x.window.uniqueBytes(messages, q.times.Wall, x.settings.DuplicateWindow) > x.settings.MaxBytes {
		return fsm.QuotaExceeded
	}
	if w := x.window; w != nil && w.tail-w.head+uint64(len(messages)) > windowIDsMax {
		return fsm.QuotaExceeded
	}
	if x.sessions != nil && x.sessions.count+len(messages) > sessionsMax {
		return fsm.QuotaExceeded
	}
	return fsm.OK
}

// storeOrPublish stores one admitted message, or publishes it at a topic.
func (q *sending) storeOrPublish(x *entityState, m *sentMessage) fsm.SequenceNumber {
	if x.kind == fsm.TopicEntity {
		return q.publish(x, m)
	}
	return q.store(x, m)
}

// store stores one message at the tail.
func (q *sending) store(x *entityState, m *sentMessage) fsm.SequenceNumber {
	sub := &x.subs[fsm.MainQueue]
	n := q.numberFor(x, m)
	body := q.bodies.Append(fsm.Owner{Address: sub.address, Sequence: n}, m.payload)
	var rec index.Record
	if m.at > q.times.Wall {
		rec = index.Scheduled(body, q.times.Wall, m.at, m.ttl)
	} else {
		rec = index.Enqueued(body, q.times.Wall, q.times.Wall.Expiry(x.effectiveTimeToLive(m.ttl)))
		q.notifyReady(sub)
	}
	sub.ix.Insert(n, rec, q.messageSession(x, m))
	x.totals.Incoming++
	return n
}

// checkDuplicate reports whether a message is a duplicate, which it counts, and remembers its id if not. A message
// without an id is never one.
func (q *sending) checkDuplicate(x *entityState, id []byte) bool {
	if x.window == nil || len(id) == 0 || !x.window.seen(id, q.times.Wall, x.settings.DuplicateWindow) {
		return false
	}
	x.totals.Duplicates++
	return true
}
