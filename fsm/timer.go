package fsm

import "math"

// timer says when to look at something. It is stale when what it stands for has gone or
// moved meanwhile: timers are not searched for and taken out, they are skipped when due.
// All but the ends of locks are lower bounds.
type timer struct {
	at     Instant
	number SequenceNumber // of the message, the first one of the chunk, or lastNumber
	epoch  uint32         // of the lock
	kind   timerKind
}

// timerKind says what an timer stands for.
type timerKind uint8

const (
	timerChunk timerKind = 0 // messages of a chunk that nobody holds: entry.due
	timerLock  timerKind = 1 // the end of a lock
	timerSweep timerKind = 2 // remembered ids that may go: queue.sweepAt; main queue only
	timerIdle  timerKind = 3 // the queue itself may go: queue.idleAt; main queue only
	// alarmSession is the end of a session lock; its number is the slot. Main queue only.
	timerSession timerKind = 4
)

// lastNumber puts what concerns the whole queue behind its messages.
const lastNumber SequenceNumber = math.MaxUint64

func (a timer) before(b timer) bool {
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

// staleSlack is the number of stale timers a queue may hold whatever is in it.
const staleSlack = 64

// timers is ordered by (moment, number). It is derived from the records and not part of
// an image; which stale timers it holds decides nothing.
type timers struct {
	heap  heap[timer]
	stale int // how many of heap are stale: never more than the others + staleSlack
}

// rebuild keeps what valid says is not stale. Its work is paid by the timers that
// became stale since the last one.
func (a *timers) rebuild(valid func(timer) bool) {
	a.heap.rebuild(staleSlack, valid)
	a.stale = 0
}

// timerQueue orders the sub-queues that have timers by the first of them: a binary heap
// whose members know their place. With the timers of each it makes one total order,
// (moment, entity, sub-queue, number), whatever the shape of the heaps.
type timerQueue []*subqueue

func (s *timerQueue) before(i, j int) bool {
	a, b := (*s)[i], (*s)[j]
	if x, y := a.timers.heap[0].at, b.timers.heap[0].at; x != y {
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

func (s *timerQueue) swap(i, j int) {
	x := *s
	x[i], x[j] = x[j], x[i]
	x[i].heapIndex, x[j].heapIndex = i, j
}

// fix puts a sub-queue where its first timer belongs: in, out, up or down.
func (s *timerQueue) fix(sub *subqueue) {
	switch {
	case len(sub.timers.heap) == 0 && sub.heapIndex < 0:
		return
	case len(sub.timers.heap) == 0:
		s.remove(sub)
		return
	case sub.heapIndex < 0:
		sub.heapIndex = len(*s)
		*s = append(*s, sub)
	}
	if i := sub.heapIndex; !s.up(i) {
		s.down(i)
	}
}

func (s *timerQueue) remove(sub *subqueue) {
	if sub.heapIndex < 0 {
		return
	}
	i, last := sub.heapIndex, len(*s)-1
	s.swap(i, last)
	(*s)[last] = nil
	*s = (*s)[:last]
	sub.heapIndex = -1
	if i < last && !s.up(i) {
		s.down(i)
	}
}

func (s *timerQueue) up(i int) (moved bool) {
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

func (s *timerQueue) down(i int) {
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
