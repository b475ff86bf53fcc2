package index

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/heap"
)

// Timer is a time at which something has to be checked. It is stale when its subject was removed or
// moved: stale timers are not searched for and removed, but skipped when they are due. All timers
// but those of locks are lower bounds.
type Timer struct {
	At     fsm.Instant        // on the timeline of the kind
	Number fsm.SequenceNumber // of the message, the first one of the chunk, the slot of the session, or LastNumber
	Epoch  uint32             // of the lock
	Kind   TimerKind
}

// TimerKind is the subject of a timer.
type TimerKind uint8

// Kinds of timers. The index checks those of its messages, its [Owner] the others.
const (
	ChunkTimer   TimerKind = 0 // messages of a chunk that are not locked
	LockTimer    TimerKind = 1 // the end of a lock
	SweepTimer   TimerKind = 2 // remembered ids of messages that have expired
	IdleTimer    TimerKind = 3 // the entity may be idle
	SessionTimer TimerKind = 4 // the end of a session lock
)

// timeline returns the time on which timers of this kind run.
func (k TimerKind) timeline() fsm.Timeline {
	switch k {
	case LockTimer, IdleTimer, SessionTimer:
		return fsm.ServingTime
	case ChunkTimer, SweepTimer:
	}
	return fsm.WallTime
}

// LastNumber orders timers of the whole entity after those of its messages.
const LastNumber fsm.SequenceNumber = math.MaxUint64

// Before implements [heap.Ordered].
func (a Timer) Before(b Timer) bool {
	if a.At != b.At {
		return a.At < b.At
	}
	if a.Number != b.Number {
		return a.Number < b.Number
	}
	if a.Kind != b.Kind {
		return a.Kind < b.Kind
	}
	return a.Epoch < b.Epoch
}

// OnWall returns the wall time that corresponds to the timer.
func (a Timer) OnWall(times fsm.Times) fsm.Instant {
	if a.Kind.timeline() == fsm.ServingTime {
		return times.OnWall(a.At)
	}
	return a.At
}

// Owner is the entity to which an index belongs.
type Owner interface {
	// IsCurrent reports whether a timer that the owner added is not stale.
	IsCurrent(a Timer) bool
}

// staleSlack is the number of stale timers that a sub-queue can always have.
const staleSlack = 64

// timers are those of a sub-queue on one timeline, ordered by (time, number). They are derived from
// the records and not part of an image; stale timers have no influence on the result.
type timers struct {
	ix        *Index
	heap      heap.Heap[Timer]
	stale     int // number of stale timers in heap: never more than the others + staleSlack
	heapIndex int // index in Arena.timers, -1 without timers
}

// rebuild removes stale timers. The timers that became stale since the last call pay for its work.
func (a *timers) rebuild() {
	a.heap.Rebuild(staleSlack, a.ix.isCurrent)
	a.stale = 0
}

// precedes reports whether the first of these timers comes before the timer x of an index. Serving times are compared as
// the wall times that correspond to them at this entry: so there is one order over both timelines.
func (a *timers) precedes(ix *Index, x Timer, times fsm.Times) bool {
	y := a.heap[0]
	y.At, x.At = y.OnWall(times), x.OnWall(times)
	switch {
	case y.At != x.At:
		return y.At < x.At
	case a.ix != ix:
		return a.ix.address.Before(ix.address)
	}
	return y.Before(x)
}

// timerQueue orders the sub-queues that have timers on one timeline by their first one: a binary heap
// whose elements know their index. Together with the timers of each it is one total order, (time,
// entity, sub-queue, number), whatever the shape of the heaps.
type timerQueue []*timers

func (s *timerQueue) Before(i, j int) bool {
	a, b := (*s)[i], (*s)[j]
	if x, y := a.heap[0].At, b.heap[0].At; x != y {
		return x < y
	}
	return a.ix.address.Before(b.ix.address)
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
