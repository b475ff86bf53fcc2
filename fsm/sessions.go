package fsm

import (
	"slices"
)

// The limits of sessions.
const (
	sessionsMax       = 1 << 21 // sessions of one entity that hold messages or state, or are held
	sessionIDBytesMax = 128 * 4 // 128 characters
	sessionPageSlots  = 256     // sessions of one page: what is copied when one of them is written after an image
	availableSlack    = 64      // stale entries of the heap of available sessions, whatever is in it
)

// sessions are the sessions of an entity. A session has a slot for as long as it has
// messages, is held, or has a state; the lowest free slot is given next, on every replica.
// What an image must tell of a session is its holding, in pages that images share; the
// rest is derived from the records of the messages.
type sessions struct {
	era   era // of the slice pages
	pages []*sessionPage
	top   uint32         // slots at or above it were never used
	free  heap[freeSlot] // free slots below top
	count int            // sessions

	slots map[string]uint32 // by id; for look-ups only: never ranged over
	lines []sessionLine     // by slot

	heap      heap[candidate] // by number; stale ones among them
	available int             // sessions that nobody holds and that have ready messages
	bytes     uint64          // of the states
	raised    []uint32        // whose ready messages grew since the last Effects
	lost      []string        // whose lock ran out since then
}

type sessionPage struct {
	era   era
	slots [sessionPageSlots]holding
}

// holding is the part of a session that is kept in images: 64 bytes.
type holding struct {
	id      string
	epoch   uint64  // of the lock, 0 when nobody holds it
	until   Instant // end of the lock
	updated Instant // when the state was set, 0 when there is none
	state   Ref
	used    bool
}

// sessionLine is what the messages of a session say of it.
type sessionLine struct {
	all    numbers // in the main queue, in whatever state
	ready  numbers
	held   numbers        // locked under the session
	dead   uint64         // in the other sub-queues: they may come back
	raised bool           // is in raised
	queued SequenceNumber // of its entry in the heap that is not stale, 0 for none
}

// candidate is a session that may be accepted, by its first ready message.
type candidate struct {
	number SequenceNumber
	slot   uint32
}

func (c candidate) before(other candidate) bool { return c.number < other.number }

// freeSlot is a slot that is given to the next session if it is the lowest.
type freeSlot uint32

func (f freeSlot) before(other freeSlot) bool { return f < other }

func newSessions(now era) *sessions {
	return &sessions{era: now, slots: make(map[string]uint32)}
}

// at reads a session.
func (s *sessions) at(slot uint32) *holding {
	return &s.pages[slot/sessionPageSlots].slots[slot%sessionPageSlots]
}

// write gives a session for writing.
func (s *sessions) write(slot uint32, now era) *holding {
	if s.era != now {
		s.pages, s.era = slices.Clone(s.pages), now
	}
	page := &s.pages[slot/sessionPageSlots]
	if (*page).era != now {
		copied := **page
		copied.era = now
		*page = &copied
	}
	return &(*page).slots[slot%sessionPageSlots]
}

// find looks a session up.
func (s *sessions) find(id string) (slot uint32, found bool) {
	slot, found = s.slots[id]
	return slot, found
}

// open finds or makes a session; false when there are too many. One that was made must be
// given a message, a holder or a state, or be let go.
func (s *sessions) open(id string, now era) (slot uint32, ok bool) {
	if slot, found := s.slots[id]; found {
		return slot, true
	}
	if s.count >= sessionsMax {
		return 0, false
	}
	if len(s.free) > 0 {
		slot = uint32(s.free.pop())
	} else {
		slot = s.top
		s.top++
	}
	s.place(slot, holding{id: id, used: true}, now)
	return slot, true
}

// place puts a session into a slot that is free.
func (s *sessions) place(slot uint32, h holding, now era) {
	for int(slot/sessionPageSlots) >= len(s.pages) {
		if s.era != now {
			s.pages, s.era = slices.Clone(s.pages), now
		}
		s.pages = append(s.pages, &sessionPage{era: now})
	}
	for int(slot) >= len(s.lines) {
		s.lines = append(s.lines, sessionLine{})
	}
	*s.write(slot, now) = h
	s.slots[h.id] = slot
	s.count++
}

// moved notes that a message of a session comes (from 0), goes (to 0) or changes.
func (s *sessions) moved(slot uint32, n SequenceNumber, from, to MessageState, main bool, now era) {
	if slot == sessionless {
		return
	}
	line := &s.lines[slot]
	switch {
	case !main && from == 0:
		line.dead++
	case !main && to == 0:
		line.dead--
	case !main:
		return
	case from == 0:
		line.all.add(n)
	case to == 0:
		line.all.remove(n)
	}
	if main {
		switch from {
		case Ready:
			line.ready.remove(n)
		case Locked:
			line.held.remove(n)
		case Deferred, Taken, Scheduled, Shared, Leaving, Pending:
		}
		switch to {
		case Ready:
			line.ready.add(n)
			s.raise(slot)
		case Locked:
			line.held.add(n)
		case Deferred, Taken, Scheduled, Shared, Leaving, Pending:
		}
	}
	s.settle(slot, now)
}

// pin keeps a session while its message moves: it may be the last. s may be nil.
func (s *sessions) pin(slot uint32) {
	if s != nil && slot != sessionless {
		s.lines[slot].dead++
	}
}

func (s *sessions) unpin(slot uint32, now era) {
	if s != nil && slot != sessionless {
		s.lines[slot].dead--
		s.settle(slot, now)
	}
}

// raise notes that a session has more ready messages than before.
func (s *sessions) raise(slot uint32) {
	if line := &s.lines[slot]; !line.raised {
		line.raised = true
		s.raised = append(s.raised, slot)
	}
}

// settle brings what is derived of a session up to date after a change of it, and lets it go
// when nothing is left of it.
func (s *sessions) settle(slot uint32, now era) {
	line, h := &s.lines[slot], s.at(slot)
	first := SequenceNumber(0)
	if h.epoch == 0 {
		first = line.ready.first()
	}
	if first != line.queued {
		if line.queued == 0 {
			s.available++
		} else if first == 0 {
			s.available--
		}
		line.queued = first
		if first != 0 {
			s.heap.push(candidate{first, slot})
		}
		s.tidy()
	}
	if line.all.count() == 0 && line.dead == 0 && h.epoch == 0 && h.updated == 0 {
		delete(s.slots, h.id)
		*s.write(slot, now) = holding{}
		*line = sessionLine{}
		s.free.push(freeSlot(slot))
		s.count--
	}
}

// next is the session with the oldest ready message that nobody holds.
func (s *sessions) next() (slot uint32, found bool) {
	for len(s.heap) > 0 {
		if c := s.heap[0]; s.lines[c.slot].queued == c.number {
			return c.slot, true
		}
		s.heap.pop()
	}
	return 0, false
}

// tidy takes stale entries out of the heap when they are more than the others. Its work is
// paid by the changes that made them stale.
func (s *sessions) tidy() {
	if len(s.heap) <= 2*s.available+availableSlack {
		return
	}
	s.heap.rebuild(availableSlack, func(c candidate) bool {
		line := &s.lines[c.slot]
		valid := line.queued == c.number
		if valid {
			line.queued = 0 // a second entry that says the same goes
		}
		return valid
	})
	for _, c := range s.heap {
		s.lines[c.slot].queued = c.number
	}
}

// numbers is a sorted list of sequence numbers that mostly grows at its end and shrinks at
// its front.
type numbers struct {
	list []SequenceNumber
	head int
}

func (l *numbers) live() []SequenceNumber { return l.list[l.head:] }
func (l *numbers) count() int             { return len(l.list) - l.head }

// first is the lowest number, 0 when there is none.
func (l *numbers) first() SequenceNumber {
	if l.head == len(l.list) {
		return 0
	}
	return l.list[l.head]
}

// add puts a number in that is not there.
func (l *numbers) add(n SequenceNumber) {
	switch {
	case l.head == len(l.list):
		l.list, l.head = append(l.list[:0], n), 0
	case n > l.list[len(l.list)-1]:
		l.list = append(l.list, n)
	default:
		i, _ := slices.BinarySearch(l.live(), n)
		if l.head == 0 || i > l.count()/2 {
			l.list = slices.Insert(l.list, l.head+i, n)
			return
		}
		// Given back near the front: those before it make room, not the many behind it.
		l.head--
		copy(l.list[l.head:], l.list[l.head+1:l.head+1+i])
		l.list[l.head+i] = n
	}
}

// remove takes a number out; it says whether it was there.
func (l *numbers) remove(n SequenceNumber) bool {
	if l.first() == n && n != 0 {
		l.head++
		l.shrink()
		return true
	}
	i, found := slices.BinarySearch(l.live(), n)
	switch {
	case !found:
		return false
	case i <= l.count()/2:
		copy(l.list[l.head+1:], l.list[l.head:l.head+i])
		l.head++
	default:
		l.list = slices.Delete(l.list, l.head+i, l.head+i+1)
	}
	l.shrink()
	return true
}

// numbersKept is the room that a list keeps whatever is in it.
const numbersKept = 16

// shrink gives room back that is used by less than a quarter.
func (l *numbers) shrink() {
	n := l.count()
	switch {
	case n == 0 && cap(l.list) <= numbersKept:
		l.list, l.head = l.list[:0], 0
	case cap(l.list) > numbersKept && n*4 < cap(l.list):
		l.list, l.head = append(make([]SequenceNumber, 0, 2*n), l.live()...), 0
	case l.head*2 > len(l.list) && l.head > numbersKept:
		l.list, l.head = append(l.list[:0], l.live()...), 0
	}
}
