package index

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// expiresAt returns the time at which an enqueued message expires; 0 for never.
func (ix *Index) expiresAt(rec *Record) fsm.Instant {
	if ix.address.Sub != fsm.MainQueue {
		return fsm.Instant(rec.deadLetterExpiry) * 1000
	}
	return rec.expires
}

// Expired reports whether an enqueued message has expired at a wall time, and must not be delivered any more.
func (ix *Index) Expired(rec *Record, now fsm.Instant) bool {
	end := ix.expiresAt(rec)
	return end != 0 && end <= now
}

// DueAt returns the time at which a pulse has to process a message that is not locked; 0 for never.
// A deferred message expires only when it is fetched.
func (ix *Index) DueAt(rec *Record) fsm.Instant {
	switch rec.state {
	case fsm.Ready:
		return ix.expiresAt(rec)
	case fsm.Scheduled:
		if rec.IsDelayed() {
			if end := ix.expiresAt(rec); end != 0 {
				return min(end, rec.deadline)
			}
		}
		return rec.deadline
	case fsm.Locked, fsm.Deferred, fsm.Deleting, fsm.Shared, fsm.Forwarding, fsm.Pending:
	}
	return 0
}

// AddTimer adds a timer: that of a lock, or one that the owner checks.
func (ix *Index) AddTimer(x Timer) {
	line := x.Kind.timeline()
	a := &ix.timers[line]
	a.heap.Push(x)
	if a.heap[0] == x {
		ix.arena.timers[line].fix(a)
	}
}

// AddLockTimer adds the timer of the lock of a message, unless its session is locked instead.
func (ix *Index) AddLockTimer(n fsm.SequenceNumber, rec *Record) {
	if rec.state == fsm.Locked && rec.deadline != 0 {
		ix.AddTimer(Timer{At: rec.deadline, Number: n, Epoch: rec.epoch, Kind: LockTimer})
	}
}

// PopTimer removes the first timer on the timeline of a kind: the one that [Arena.NextTimer] has returned.
func (ix *Index) PopTimer(kind TimerKind) {
	line := kind.timeline()
	a := &ix.timers[line]
	a.heap.Pop()
	ix.arena.timers[line].fix(a)
}

// DropTimer counts a timer of a kind as stale: its subject was removed or moved.
func (ix *Index) DropTimer(kind TimerKind) { ix.timers[kind.timeline()].stale++ }

// MoveTimer adds a timer for the whole entity, unless one exists that is due by then. at is when it is due, 0 for none, and
// is set. A when of 0 leaves none.
func (ix *Index) MoveTimer(at *fsm.Instant, when fsm.Instant, kind TimerKind) {
	if *at != 0 && when != 0 && *at <= when || *at == when {
		return
	}
	if *at != 0 {
		ix.DropTimer(kind)
	}
	if *at = when; when != 0 {
		ix.AddTimer(Timer{At: when, Number: LastNumber, Kind: kind})
	}
}

// RemoveTimers removes the timers of a sub-queue that is deleted.
func (ix *Index) RemoveTimers() {
	for line := range ix.timers {
		ix.arena.timers[line].remove(&ix.timers[line])
	}
}

// RemoveStaleTimers bounds the number of stale timers by that of the others. It must
// run after locks or messages were removed, once the records reflect it.
func (ix *Index) RemoveStaleTimers() {
	ix.timers[fsm.WallTime].stale += ix.lostTimers
	ix.lostTimers = 0
	for line := range ix.timers {
		if a := &ix.timers[line]; a.stale > len(a.heap)-a.stale+staleSlack {
			a.rebuild()
			ix.arena.timers[line].fix(a)
		}
	}
}

// Timers returns the number of timers on a timeline, stale ones included: at most twice the others and some more.
func (ix *Index) Timers(line fsm.Timeline) int { return len(ix.timers[line].heap) }

// lowerDue makes sure that the chunk at pos is processed no later than when.
func (ix *Index) lowerDue(pos int, when fsm.Instant) {
	old := ix.entries[pos].due
	if old != 0 && old <= when {
		return
	}
	if old != 0 {
		ix.DropTimer(ChunkTimer)
	}
	ix.setDue(pos, when)
	ix.AddTimer(Timer{At: when, Number: ix.Number(Cursor{pos: pos}), Kind: ChunkTimer})
}

// setDue sets the bound of the chunk at pos.
func (ix *Index) setDue(pos int, due fsm.Instant) {
	ix.own()
	ix.entries[pos].due = due
}

// EachDue calls visit for the messages that are due in the chunk of x, which [Arena.NextTimer] has returned, in the order of time
// until another timer precedes the next message, or visit returns false because it leaves the message as it is. x may have
// been only a bound: then there are none.
func (ix *Index) EachDue(x Timer, times fsm.Times, visit func(n fsm.SequenceNumber) bool) {
	base, _ := split(x.Number)
	pos, _ := ix.find(base)
	ix.setDue(pos, 0)
	ix.PopTimer(ChunkTimer)
	until := times.Wall
	for _, others := range ix.arena.timers {
		if len(others) > 0 {
			until = min(until, others[0].heap[0].OnWall(times))
		}
	}
	rest := ix.collectDue(pos, until)
	for _, m := range ix.arena.due {
		if ix.arena.precede(ix, Timer{At: m.when, Number: x.Number, Kind: ChunkTimer}, times) || !visit(m.number) {
			rest = m.when
			break
		}
	}
	if rest == 0 {
		return
	}
	if pos, found := ix.find(base); found {
		ix.lowerDue(pos, rest)
	}
}

// collectDue collects the messages of the chunk at pos that are due until a time, earliest first,
// and returns when the rest of them are. It reads the records in order, unused ones included, and
// sorts only what it collects: chunks whose due times alternate are read once for each, some
// microseconds.
func (ix *Index) collectDue(pos int, until fsm.Instant) (rest fsm.Instant) {
	due := ix.arena.due[:0]
	c, first := ix.entries[pos].c, ix.Number(Cursor{pos: pos})
	sorted, next := true, 0
	for i, word := range c.kept {
		for ; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			rec := &c.records[next]
			next++
			when := ix.DueAt(rec)
			switch {
			case when == 0 || !c.live.has(slot):
			case when > until:
				if rest == 0 || when < rest {
					rest = when
				}
			default:
				n := len(due)
				sorted = sorted && (n == 0 || due[n-1].when <= when)
				due = append(due, dueMessage{when: when, number: first + fsm.SequenceNumber(slot)})
			}
		}
	}
	if !sorted {
		slices.SortFunc(due, func(a, b dueMessage) int {
			return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.number, b.number))
		})
	}
	ix.arena.due = due
	return rest
}
