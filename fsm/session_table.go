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

// sessionTable are the sessions of an entity. A session has a slot for as long as it has
// messages, is held, or has a state; the lowest free slot is given next, on every replica.
// What an image must tell of a session is its holding, in pages that images share; the
// rest is derived from the records of the messages.
type sessionTable struct {
	generation generation // of the slice pages
	pages      []*sessionPage
	top        uint32         // slots at or above it were never used
	free       heap[freeSlot] // free slots below top
	count      int            // sessions

	slots    map[string]uint32 // by id; for look-ups only: never ranged over
	messages []sessionMessages // by slot

	heap         heap[availableSession] // by number; stale ones among them
	available    int                    // sessions that nobody holds and that have ready messages
	bytes        uint64                 // of the states
	readyChanged []uint32               // whose ready messages grew since the last Effects
	expiredLocks []string               // whose lock ran out since then
}

type sessionPage struct {
	generation generation
	slots      [sessionPageSlots]sessionRecord
}

// sessionRecord is the part of a session that is kept in images: 64 bytes.
type sessionRecord struct {
	id      string
	epoch   uint64  // of the lock, 0 when nobody holds it
	until   Instant // end of the lock
	updated Instant // when the state was set, 0 when there is none
	state   Ref
	used    bool
}

// sessionMessages is what the messages of a session say of it.
type sessionMessages struct {
	all          numberList // in the main queue, in whatever state
	ready        numberList
	locked       numberList     // locked under the session
	otherCount   uint64         // in the other sub-queues: they may come back
	readyChanged bool           // is in raised
	heapNumber   SequenceNumber // of its entry in the heap that is not stale, 0 for none
}

// availableSession is a session that may be accepted, by its first ready message.
type availableSession struct {
	number SequenceNumber
	slot   uint32
}

func (c availableSession) before(other availableSession) bool { return c.number < other.number }

// freeSlot is a slot that is given to the next session if it is the lowest.
type freeSlot uint32

func (f freeSlot) before(other freeSlot) bool { return f < other }

func newSessionTable(now generation) *sessionTable {
	return &sessionTable{generation: now, slots: make(map[string]uint32)}
}

// at reads a session.
func (s *sessionTable) at(slot uint32) *sessionRecord {
	return &s.pages[slot/sessionPageSlots].slots[slot%sessionPageSlots]
}

// write gives a session for writing.
func (s *sessionTable) write(slot uint32, now generation) *sessionRecord {
	if s.generation != now {
		s.pages, s.generation = slices.Clone(s.pages), now
	}
	page := &s.pages[slot/sessionPageSlots]
	if (*page).generation != now {
		copied := **page
		copied.generation = now
		*page = &copied
	}
	return &(*page).slots[slot%sessionPageSlots]
}

// find looks a session up.
func (s *sessionTable) find(id string) (slot uint32, found bool) {
	slot, found = s.slots[id]
	return slot, found
}

// findOrAdd finds or makes a session; false when there are too many. One that was made must be
// given a message, a holder or a state, or be let go.
func (s *sessionTable) findOrAdd(id string, now generation) (slot uint32, ok bool) {
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
	s.fillSlot(slot, sessionRecord{id: id, used: true}, now)
	return slot, true
}

// fillSlot puts a session into a slot that is free.
func (s *sessionTable) fillSlot(slot uint32, h sessionRecord, now generation) {
	for int(slot/sessionPageSlots) >= len(s.pages) {
		if s.generation != now {
			s.pages, s.generation = slices.Clone(s.pages), now
		}
		s.pages = append(s.pages, &sessionPage{generation: now})
	}
	for int(slot) >= len(s.messages) {
		s.messages = append(s.messages, sessionMessages{})
	}
	*s.write(slot, now) = h
	s.slots[h.id] = slot
	s.count++
}

// messageChanged notes that a message of a session comes (from 0), goes (to 0) or changes.
func (s *sessionTable) messageChanged(slot uint32, n SequenceNumber, from, to MessageState, main bool, now generation) {
	if slot == sessionless {
		return
	}
	line := &s.messages[slot]
	switch {
	case !main && from == 0:
		line.otherCount++
	case !main && to == 0:
		line.otherCount--
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
			line.locked.remove(n)
		case Deferred, Deleting, Scheduled, Shared, Forwarding, Pending:
		}
		switch to {
		case Ready:
			line.ready.add(n)
			s.notifyReady(slot)
		case Locked:
			line.locked.add(n)
		case Deferred, Deleting, Scheduled, Shared, Forwarding, Pending:
		}
	}
	s.update(slot, now)
}

// pin keeps a session while its message moves: it may be the last. s may be nil.
func (s *sessionTable) pin(slot uint32) {
	if s != nil && slot != sessionless {
		s.messages[slot].otherCount++
	}
}

func (s *sessionTable) unpin(slot uint32, now generation) {
	if s != nil && slot != sessionless {
		s.messages[slot].otherCount--
		s.update(slot, now)
	}
}

// notifyReady notes that a session has more ready messages than before.
func (s *sessionTable) notifyReady(slot uint32) {
	if line := &s.messages[slot]; !line.readyChanged {
		line.readyChanged = true
		s.readyChanged = append(s.readyChanged, slot)
	}
}

// update brings what is derived of a session up to date after a change of it, and lets it go
// when nothing is left of it.
func (s *sessionTable) update(slot uint32, now generation) {
	line, h := &s.messages[slot], s.at(slot)
	first := SequenceNumber(0)
	if h.epoch == 0 {
		first = line.ready.first()
	}
	if first != line.heapNumber {
		if line.heapNumber == 0 {
			s.available++
		} else if first == 0 {
			s.available--
		}
		line.heapNumber = first
		if first != 0 {
			s.heap.push(availableSession{first, slot})
		}
		s.removeStale()
	}
	if line.all.count() == 0 && line.otherCount == 0 && h.epoch == 0 && h.updated == 0 {
		delete(s.slots, h.id)
		*s.write(slot, now) = sessionRecord{}
		*line = sessionMessages{}
		s.free.push(freeSlot(slot))
		s.count--
	}
}

// oldestAvailable is the session with the oldest ready message that nobody holds.
func (s *sessionTable) oldestAvailable() (slot uint32, found bool) {
	for len(s.heap) > 0 {
		if c := s.heap[0]; s.messages[c.slot].heapNumber == c.number {
			return c.slot, true
		}
		s.heap.pop()
	}
	return 0, false
}

// removeStale takes stale entries out of the heap when they are more than the others. Its work is
// paid by the changes that made them stale.
func (s *sessionTable) removeStale() {
	if len(s.heap) <= 2*s.available+availableSlack {
		return
	}
	s.heap.rebuild(availableSlack, func(c availableSession) bool {
		line := &s.messages[c.slot]
		valid := line.heapNumber == c.number
		if valid {
			line.heapNumber = 0 // a second entry that says the same goes
		}
		return valid
	})
	for _, c := range s.heap {
		s.messages[c.slot].heapNumber = c.number
	}
}

// numberList is a sorted list of sequence numbers that mostly grows at its end and shrinks at
// its front.
type numberList struct {
	list []SequenceNumber
	head int
}

func (l *numberList) live() []SequenceNumber { return l.list[l.head:] }
func (l *numberList) count() int             { return len(l.list) - l.head }

// first is the lowest number, 0 when there is none.
func (l *numberList) first() SequenceNumber {
	if l.head == len(l.list) {
		return 0
	}
	return l.list[l.head]
}

// add puts a number in that is not there.
func (l *numberList) add(n SequenceNumber) {
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
func (l *numberList) remove(n SequenceNumber) bool {
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
func (l *numberList) shrink() {
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
