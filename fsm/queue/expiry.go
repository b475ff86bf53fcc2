package queue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// Reason and description of expired messages that are dead-lettered, exactly as in Azure Service
// Bus (docs/requirements.md#e5).
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
)

// effectiveTimeToLive returns the time to live of a message of this entity: the sender's, 0 for
// none, limited by that of the entity (docs/requirements.md#e4).
func (x *entityState) effectiveTimeToLive(given fsm.Millis) fsm.Millis {
	if given == 0 {
		return x.settings.DefaultTimeToLive
	}
	return min(given, x.settings.DefaultTimeToLive)
}

// expiry returns the end of a time to live that begins at a time; 0 for none.
func expiry(from fsm.Instant, life fsm.Millis) fsm.Instant { return from.Expiry(life) }

// deadLetterExpirySecond returns the second in which a message that is dead-lettered at a time is
// deleted, rounded up; 0 for never. A resolution of one second is enough for a setting in days, and
// keeps the record at 48 bytes.
func deadLetterExpirySecond(from fsm.Instant, life fsm.Millis) uint32 {
	const second = 1000
	at := expiry(from, life)
	if at == 0 || at > math.MaxUint32*second {
		return 0
	}
	return uint32((at + second - 1) / second)
}

// expiresAt returns the time at which an enqueued message expires; 0 for never.
func (sub *subqueue) expiresAt(rec *record) fsm.Instant {
	if sub.address.Sub != fsm.MainQueue {
		return fsm.Instant(rec.deadLetterExpiry) * 1000
	}
	return rec.expires
}

// expired reports whether an enqueued message has expired and must not be delivered any more.
func (q *Machine) expired(sub *subqueue, rec *record) bool {
	end := sub.expiresAt(rec)
	return end != 0 && end <= q.times.Wall
}

// keepsExpired reports whether expired messages are dead-lettered instead of deleted.
func (sub *subqueue) keepsExpired() bool {
	return sub.address.Sub == fsm.MainQueue && sub.entity.settings.DeadLetterOnExpiry
}

// expire moves an expired message that is not locked to the dead-letter queue, or deletes it. The
// patch is that of the settlement that ended its lock, if one did.
func (q *Machine) expire(sub *subqueue, at cursor, rec record, patch fsm.Patch) {
	if !sub.keepsExpired() {
		q.deleteMessage(sub, at, &rec)
		return
	}
	patch.DeadLetter, patch.Reason, patch.Description = true, reasonExpired, descriptionExpired
	q.deadLetter(sub.entity, at, rec, patch)
}

// dueAt returns the time at which a pulse has to process a message that is not locked; 0 for never.
// A deferred message expires only when it is fetched.
func (sub *subqueue) dueAt(rec *record) fsm.Instant {
	switch rec.state {
	case fsm.Ready:
		return sub.expiresAt(rec)
	case fsm.Scheduled:
		if rec.flags&delayed != 0 {
			if end := sub.expiresAt(rec); end != 0 {
				return min(end, rec.deadline)
			}
		}
		return rec.deadline
	case fsm.Locked, fsm.Deferred, fsm.Deleting, fsm.Shared, fsm.Forwarding, fsm.Pending:
	}
	return 0
}

// insert adds a message to a sub-queue and schedules its due time.
func (q *Machine) insert(sub *subqueue, n fsm.SequenceNumber, rec record) cursor {
	return q.insertInSession(sub, n, rec, noSession)
}

// insertInSession is insert for a message of a session.
func (q *Machine) insertInSession(sub *subqueue, n fsm.SequenceNumber, rec record, session uint32) cursor {
	at := sub.ix.insert(n, rec, session)
	q.scheduleDue(sub, at, &rec)
	return at
}

// replaceRecord replaces a record and schedules its due time.
func (q *Machine) replaceRecord(sub *subqueue, at cursor, rec record) {
	sub.ix.set(at, rec)
	q.scheduleDue(sub, at, &rec)
}

func (q *Machine) scheduleDue(sub *subqueue, at cursor, rec *record) {
	if when := sub.dueAt(rec); when != 0 {
		q.lowerDue(sub, at.pos, when)
	}
}

// lowerDue makes sure that the chunk at pos is processed no later than when.
func (q *Machine) lowerDue(sub *subqueue, pos int, when fsm.Instant) {
	old := sub.ix.entries[pos].due
	if old != 0 && old <= when {
		return
	}
	if old != 0 {
		sub.timers[fsm.WallTime].stale++
	}
	sub.ix.setDue(pos, when)
	q.addTimer(sub, timer{at: when, number: fsm.SequenceNumber(sub.ix.entries[pos].base << chunkShift), kind: timerChunk})
}

// dueMessage is a message that is due.
type dueMessage struct {
	when   fsm.Instant
	number fsm.SequenceNumber
}

// collectDue collects the messages of the chunk at pos that are due until a time, earliest first,
// and returns when the rest of them are. It reads the records in order, unused ones included, and
// sorts only what it collects: chunks whose due times alternate are read once for each, some
// microseconds.
func (q *Machine) collectDue(sub *subqueue, pos int, until fsm.Instant) (rest fsm.Instant) {
	q.dueMessages = q.dueMessages[:0]
	c, first := sub.ix.entries[pos].c, sub.ix.number(cursor{pos: pos})
	sorted, next := true, 0
	for i, word := range c.kept {
		for ; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			rec := &c.records[next]
			next++
			when := sub.dueAt(rec)
			switch {
			case when == 0 || !c.live.has(slot):
			case when > until:
				if rest == 0 || when < rest {
					rest = when
				}
			default:
				n := len(q.dueMessages)
				sorted = sorted && (n == 0 || q.dueMessages[n-1].when <= when)
				q.dueMessages = append(q.dueMessages, dueMessage{when: when, number: first + fsm.SequenceNumber(slot)})
			}
		}
	}
	if !sorted {
		slices.SortFunc(q.dueMessages, func(a, b dueMessage) int {
			return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.number, b.number))
		})
	}
	return rest
}
