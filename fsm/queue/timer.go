package queue

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
)

// timer is a time at which something has to be checked. It is stale when its subject was removed or
// moved: stale timers are not searched for and removed, but skipped when they are due. All timers
// but those of locks are lower bounds.
type timer struct {
	at     fsm.Instant
	number fsm.SequenceNumber // of the message, the first one of the chunk, or lastNumber
	epoch  uint32             // of the lock
	kind   timerKind
}

// timerKind is the subject of a timer.
type timerKind uint8

const (
	timerChunk timerKind = 0 // messages of a chunk that are not locked: chunkEntry.due
	timerLock  timerKind = 1 // the end of a lock
	timerSweep timerKind = 2 // remembered ids that have expired: entityState.sweepAt; main queue only
	timerIdle  timerKind = 3 // the entity may be idle: entityState.idleAt; main queue only
	// timerSession is the end of a session lock; its number is the slot. Main queue only.
	timerSession timerKind = 4
)

// timeline returns the time on which timers of this kind run.
func (k timerKind) timeline() fsm.Timeline {
	switch k {
	case timerLock, timerIdle, timerSession:
		return fsm.ServingTime
	case timerChunk, timerSweep:
	}
	return fsm.WallTime
}

// lastNumber orders timers of the whole entity after those of its messages.
const lastNumber fsm.SequenceNumber = math.MaxUint64

func (a timer) Before(b timer) bool {
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

// staleSlack is the number of stale timers that a sub-queue can always have.
const staleSlack = 64

// timers are those of a sub-queue on one timeline, ordered by (time, number). They are derived from
// the records and not part of an image; stale timers have no influence on the result.
type timers struct {
	sub       *subqueue
	heap      heap[timer]
	stale     int // number of stale timers in heap: never more than the others + staleSlack
	heapIndex int // index in Machine.timers, -1 without timers
}

// rebuild removes stale timers. The timers that became stale since the last call pay for its work.
func (a *timers) rebuild(valid func(timer) bool) {
	a.heap.rebuild(staleSlack, valid)
	a.stale = 0
}

// timerQueue orders the sub-queues that have timers on one timeline by their first one: a binary heap
// whose elements know their index. Together with the timers of each it is one total order, (time,
// entity, sub-queue, number), whatever the shape of the heaps.
type timerQueue []*timers

func (s *timerQueue) Before(i, j int) bool {
	a, b := (*s)[i], (*s)[j]
	if x, y := a.heap[0].at, b.heap[0].at; x != y {
		return x < y
	}
	return a.sub.address.Before(b.sub.address)
}

func (s *timerQueue) swap(i, j int) {
	x := *s
	x[i], x[j] = x[j], x[i]
	x[i].heapIndex, x[j].heapIndex = i, j
}

// fix restores the order after the first timer of a sub-queue changed: it adds, removes or moves
// it.
func (s *timerQueue) fix(a *timers) {
	switch {
	case len(a.heap) == 0 && a.heapIndex < 0:
		return
	case len(a.heap) == 0:
		s.remove(a)
		return
	case a.heapIndex < 0:
		a.heapIndex = len(*s)
		*s = append(*s, a)
	}
	if i := a.heapIndex; !s.up(i) {
		s.down(i)
	}
}

func (s *timerQueue) remove(a *timers) {
	if a.heapIndex < 0 {
		return
	}
	i, last := a.heapIndex, len(*s)-1
	s.swap(i, last)
	(*s)[last] = nil
	*s = (*s)[:last]
	a.heapIndex = -1
	if i < last && !s.up(i) {
		s.down(i)
	}
}

func (s *timerQueue) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.Before(i, parent) {
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
			if s.Before(child, least) {
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
