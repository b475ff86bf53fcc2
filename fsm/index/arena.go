package index

import (
	"github.com/peeklock/peeklock/fsm"
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
