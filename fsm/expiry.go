package fsm

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// What an expired message is dead-lettered with, word for word as in the cloud (docs/requirements.md#e5).
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
)

// effectiveTimeToLive is how long a message of this queue lives: what its sender gave, 0 if nothing,
// cut to what the queue allows (docs/requirements.md#e4).
func (x *entityState) effectiveTimeToLive(given Millis) Millis {
	if given == 0 {
		return x.settings.DefaultTimeToLive
	}
	return min(given, x.settings.DefaultTimeToLive)
}

// expiry is the end of a life that begins at a moment (docs/requirements.md#e1); 0 if it never ends.
func expiry(from Instant, life Millis) Instant {
	if at := from.After(life); at < Instant(Forever) {
		return at
	}
	return 0
}

// deadLetterExpirySecond is the second in which a dead letter that lies down at a moment is dropped,
// not earlier than it should be; 0 if never. A second is enough for a rule that counts
// in days, and it keeps the record at 48 bytes.
func deadLetterExpirySecond(from Instant, life Millis) uint32 {
	const second = 1000
	at := expiry(from, life)
	if at == 0 || at > math.MaxUint32*second {
		return 0
	}
	return uint32((at + second - 1) / second)
}

// expiresAt is when a message that has been enqueued is dropped or dead-lettered by time; 0 if
// never.
func (sub *subqueue) expiresAt(rec *record) Instant {
	if sub.address.Sub != MainQueue {
		return Instant(rec.deadLetterExpiry) * 1000
	}
	return rec.expires
}

// expired says whether a message that has been enqueued must not be given out any more.
func (q *Queues) expired(sub *subqueue, rec *record) bool {
	end := sub.expiresAt(rec)
	return end != 0 && end <= q.clock
}

// expire ends the life of a message that nobody holds: it goes to the dead-letter
// queue, or for good. The patch is of the settlement that ended its lock, if one did.
func (q *Queues) expire(sub *subqueue, at cursor, rec record, patch Patch) {
	if sub.address.Sub != MainQueue || !sub.entity.settings.DeadLetterOnExpiry {
		q.deleteMessage(sub, at, &rec)
		return
	}
	patch.DeadLetter, patch.Reason, patch.Description = true, reasonExpired, descriptionExpired
	q.deadLetter(sub.entity, at, rec, patch)
}

// dueAt is when time does something with a message that nobody holds; 0 if never. A
// deferred message is left alone until it is asked for.
func (sub *subqueue) dueAt(rec *record) Instant {
	switch rec.state {
	case Ready:
		return sub.expiresAt(rec)
	case Scheduled:
		if rec.flags&delayed != 0 {
			if end := sub.expiresAt(rec); end != 0 {
				return min(end, rec.deadline)
			}
		}
		return rec.deadline
	case Locked, Deferred, Deleting, Shared, Forwarding, Pending:
	}
	return 0
}

// insert adds a message to a sub-queue and sees to what time will do with it.
func (q *Queues) insert(sub *subqueue, n SequenceNumber, rec record) cursor {
	return q.insertInSession(sub, n, rec, noSession)
}

// insertInSession is insert for a message of a session.
func (q *Queues) insertInSession(sub *subqueue, n SequenceNumber, rec record, session uint32) cursor {
	at := sub.ix.insert(n, rec, session)
	q.scheduleDue(sub, at, &rec)
	return at
}

// replaceRecord replaces a record and sees to what time will do with it.
func (q *Queues) replaceRecord(sub *subqueue, at cursor, rec record) {
	sub.ix.set(at, rec)
	q.scheduleDue(sub, at, &rec)
}

func (q *Queues) scheduleDue(sub *subqueue, at cursor, rec *record) {
	if when := sub.dueAt(rec); when != 0 {
		q.lowerDue(sub, at.pos, when)
	}
}

// lowerDue sees to it that the chunk at pos is looked at by then.
func (q *Queues) lowerDue(sub *subqueue, pos int, when Instant) {
	old := sub.ix.entries[pos].due
	if old != 0 && old <= when {
		return
	}
	if old != 0 {
		sub.timers.stale++
	}
	sub.ix.setDue(pos, when)
	q.addTimer(sub, timer{at: when, number: SequenceNumber(sub.ix.entries[pos].base << chunkShift), kind: timerChunk})
}

// dueMessage is a message that is due.
type dueMessage struct {
	when   Instant
	number SequenceNumber
}

// collectDue collects what is due in the chunk at pos until a moment, earliest first, and
// says when the rest of it is. It goes over the records as they lie, dead places
// included, and sorts only what it collects: chunks whose moments alternate cost a walk
// each time, some microseconds, and no more.
func (q *Queues) collectDue(sub *subqueue, pos int, until Instant) (rest Instant) {
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
				q.dueMessages = append(q.dueMessages, dueMessage{when: when, number: first + SequenceNumber(slot)})
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
