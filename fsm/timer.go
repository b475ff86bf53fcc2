package fsm

import "math"

// alarm says when to look at something. It is stale when what it stands for has gone or
// moved meanwhile: alarms are not searched for and taken out, they are skipped when due.
// All but the ends of locks are lower bounds.
type alarm struct {
	at     Instant
	number SequenceNumber // of the message, the first one of the chunk, or lastNumber
	epoch  uint32         // of the lock
	kind   alarmKind
}

// alarmKind says what an alarm stands for.
type alarmKind uint8

const (
	alarmChunk alarmKind = 0 // messages of a chunk that nobody holds: entry.due
	alarmLock  alarmKind = 1 // the end of a lock
	alarmSweep alarmKind = 2 // remembered ids that may go: queue.sweepAt; main queue only
	alarmIdle  alarmKind = 3 // the queue itself may go: queue.idleAt; main queue only
	// alarmSession is the end of a session lock; its number is the slot. Main queue only.
	alarmSession alarmKind = 4
)

// lastNumber puts what concerns the whole queue behind its messages.
const lastNumber SequenceNumber = math.MaxUint64

func (a alarm) before(b alarm) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.number != b.number {
		return a.number < b.number
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.epoch < b.epoch
}

// staleSlack is the number of stale alarms a queue may hold whatever is in it.
const staleSlack = 64

// alarms is ordered by (moment, number). It is derived from the records and not part of
// an image; which stale alarms it holds decides nothing.
type alarms struct {
	heap  heap[alarm]
	stale int // how many of heap are stale: never more than the others + staleSlack
}

// rebuild keeps what valid says is not stale. Its work is paid by the alarms that
// became stale since the last one.
func (a *alarms) rebuild(valid func(alarm) bool) {
	a.heap.rebuild(staleSlack, valid)
	a.stale = 0
}

// schedule orders the sub-queues that have alarms by the first of them: a binary heap
// whose members know their place. With the alarms of each it makes one total order,
// (moment, entity, sub-queue, number), whatever the shape of the heaps.
type schedule []*subqueue

func (s *schedule) before(i, j int) bool {
	a, b := (*s)[i], (*s)[j]
	if x, y := a.alarms.heap[0].at, b.alarms.heap[0].at; x != y {
		return x < y
	}
	return a.address.before(b.address)
}

func (a Address) before(b Address) bool {
	if a.Entity != b.Entity {
		return a.Entity < b.Entity
	}
	return a.Sub < b.Sub
}

func (s *schedule) swap(i, j int) {
	x := *s
	x[i], x[j] = x[j], x[i]
	x[i].turn, x[j].turn = i, j
}

// fix puts a sub-queue where its first alarm belongs: in, out, up or down.
func (s *schedule) fix(sub *subqueue) {
	switch {
	case len(sub.alarms.heap) == 0 && sub.turn < 0:
		return
	case len(sub.alarms.heap) == 0:
		s.remove(sub)
		return
	case sub.turn < 0:
		sub.turn = len(*s)
		*s = append(*s, sub)
	}
	if i := sub.turn; !s.up(i) {
		s.down(i)
	}
}

func (s *schedule) remove(sub *subqueue) {
	if sub.turn < 0 {
		return
	}
	i, last := sub.turn, len(*s)-1
	s.swap(i, last)
	(*s)[last] = nil
	*s = (*s)[:last]
	sub.turn = -1
	if i < last && !s.up(i) {
		s.down(i)
	}
}

func (s *schedule) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(i, parent) {
			break
		}
		s.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (s *schedule) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*s); child++ {
			if s.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}
