package index

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/heap"
	"github.com/peeklock/peeklock/fsm/image"
)

// freeChunksMax is the number of empty chunks that a state machine keeps for reuse: a queue that is
// filled and emptied message by message would allocate one each time.
const freeChunksMax = 4

// Arena is what the indexes of a state machine share: the generation in which they write, empty chunks, and the
// order of their timers. It is not safe for concurrent use.
type Arena struct {
	generation image.Generation
	freeChunks []*chunk
	timers     [2]timerQueue // by timeline
	due        []dueMessage  // of the current chunk: scratch space
}

// Generation returns where the current generation is stored: what belongs to an earlier one may be shared with an image.
func (a *Arena) Generation() *image.Generation { return &a.generation }

// Freeze begins a new generation: everything of the old one is shared from now on.
func (a *Arena) Freeze() {
	a.generation++
	a.freeChunks = nil
}

func (a *Arena) chunk() *chunk {
	if n := len(a.freeChunks); n > 0 {
		c := a.freeChunks[n-1]
		a.freeChunks = a.freeChunks[:n-1]
		return c
	}
	return &chunk{generation: a.generation}
}

// recycle keeps an empty chunk of this generation for reuse.
func (a *Arena) recycle(c *chunk) {
	if c.generation != a.generation || len(a.freeChunks) == freeChunksMax {
		return
	}
	*c = chunk{generation: a.generation, records: c.records[:0], patches: c.patches[:0]}
	a.freeChunks = append(a.freeChunks, c)
}

// NextTimer returns the earliest timer of all, and its index. Serving times are compared as the wall times that
// correspond to them. It removes stale timers before it.
func (a *Arena) NextTimer(times fsm.Times) (*Index, Timer, bool) {
	wall, serving := a.first(fsm.WallTime), a.first(fsm.ServingTime)
	switch {
	case wall == nil && serving == nil:
		return nil, Timer{}, false
	case wall == nil || serving != nil && serving.precedes(wall.ix, wall.heap[0], times):
		return serving.ix, serving.heap[0], true
	}
	return wall.ix, wall.heap[0], true
}

// NextDue returns the time of the first timer on a timeline, 0 if there is none. It removes stale timers before it.
func (a *Arena) NextDue(line fsm.Timeline) fsm.Instant {
	if first := a.first(line); first != nil {
		return first.heap[0].At
	}
	return 0
}

// first finds the sub-queue with the earliest timer of a timeline, nil if there is none; it
// removes stale ones before it.
func (a *Arena) first(line fsm.Timeline) *timers {
	for len(a.timers[line]) > 0 {
		t := a.timers[line][0]
		if t.ix.isCurrent(t.heap[0]) {
			return t
		}
		t.heap.Pop()
		if t.stale > 0 {
			t.stale--
		} else if line == fsm.WallTime && t.ix.lostTimers > 0 {
			t.ix.lostTimers--
		}
		a.timers[line].fix(t)
	}
	return nil
}

// precede reports whether a timer of any index precedes this one of an index.
func (a *Arena) precede(ix *Index, x Timer, times fsm.Times) bool {
	for _, others := range a.timers {
		if len(others) > 0 && others[0].precedes(ix, x, times) {
			return true
		}
	}
	return false
}

// dueMessage is a message that is due.
type dueMessage struct {
	when   fsm.Instant
	number fsm.SequenceNumber
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

// isCurrent reports whether a timer is not stale: what it stands for exists, and is due then
// or later.
func (ix *Index) isCurrent(x Timer) bool {
	switch x.Kind {
	case LockTimer:
		_, rec, ok := ix.FindLocked(fsm.LockID{Sequence: x.Number, Epoch: x.Epoch})
		return ok && rec.deadline == x.At
	case ChunkTimer:
		base, _ := split(x.Number)
		pos, found := ix.find(base)
		return found && ix.entries[pos].due == x.At
	case SweepTimer, IdleTimer, SessionTimer:
	}
	return ix.owner.IsCurrent(x)
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
