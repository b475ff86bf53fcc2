package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/heap"
	"github.com/peeklock/peeklock/fsm/image"
	"github.com/peeklock/peeklock/fsm/index"
)

// Limits of sessions.
const (
	sessionsMax      = 1 << 21 // sessions of one entity that have messages or state, or are locked
	sessionPageSlots = 256     // sessions of one page, which is copied when one of them is written after an image
	availableSlack   = 64      // stale entries that the heap of available sessions may always have
)

// sessionTable is the set of sessions of an entity. A session has a slot as long as it has
// messages, is locked, or has a state; the lowest free slot is assigned next, on every replica. An
// image contains the values of sessionRecord, in pages that images share; the rest is derived from the
// records of the messages.
type sessionTable struct {
	generation image.Generation // of the slice pages
	pages      []*sessionPage
	top        uint32              // slots at or above it were never used
	free       heap.Heap[freeSlot] // free slots below top
	count      int                 // sessions

	slots    map[string]uint32 // by id; for look-ups only: never ranged over
	messages []sessionMessages // by slot

	heap         heap.Heap[availableSession] // by number; with stale entries
	available    int                         // unlocked sessions that have ready messages
	bytes        uint64                      // of the states
	readyChanged []uint32                    // whose number of ready messages rose since the last Effects
	expiredLocks []string                    // whose lock expired or was taken over since the last Effects
}

type sessionPage struct {
	generation image.Generation
	slots      [sessionPageSlots]sessionRecord
}

// sessionRecord is the part of a session that images contain: 72 bytes.
type sessionRecord struct {
	id      string
	epoch   uint64            // of the lock, 0 if it is not locked
	until   fsm.Instant       // end of the lock, in serving time
	token   *fsm.SessionToken // of a lock that is not exclusive; never changed
	updated fsm.Instant       // when the state was set, in wall time; 0 if there is none
	state   fsm.Ref
	used    bool
}

// sessionMessages is the part of a session that is derived from its messages.
type sessionMessages struct {
	all          numberList // in the main queue, in all states
	ready        numberList
	locked       numberList         // locked under the session
	otherCount   uint64             // messages in other sub-queues: they may come back
	readyChanged bool               // is in sessionTable.readyChanged
	heapNumber   fsm.SequenceNumber // number of its current entry in the heap, 0 for none
}

// availableSession is a session that can be accepted, ordered by its first ready message.
type availableSession struct {
	number fsm.SequenceNumber
	slot   uint32
}

func (c availableSession) Before(other availableSession) bool { return c.number < other.number }

// freeSlot is an unused slot; the lowest is assigned next.
type freeSlot uint32

func (f freeSlot) Before(other freeSlot) bool { return f < other }

func newSessionTable(now image.Generation) *sessionTable {
	return &sessionTable{generation: now, slots: make(map[string]uint32)}
}

// at returns a session for reading.
func (s *sessionTable) at(slot uint32) *sessionRecord {
	return &s.pages[slot/sessionPageSlots].slots[slot%sessionPageSlots]
}

// write returns a session for writing.
func (s *sessionTable) write(slot uint32, now image.Generation) *sessionRecord {
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

// find looks up a session.
func (s *sessionTable) find(id string) (slot uint32, found bool) {
	slot, found = s.slots[id]
	return slot, found
}

// findOrAdd finds or adds a session; false if there are too many. A new session must be given a
// message, a lock or a state, or be removed.
func (s *sessionTable) findOrAdd(id string, now image.Generation) (slot uint32, ok bool) {
	if slot, found := s.slots[id]; found {
		return slot, true
	}
	if s.count >= sessionsMax {
		return 0, false
	}
	if len(s.free) > 0 {
		slot = uint32(s.free.Pop())
	} else {
		slot = s.top
		s.top++
	}
	s.fillSlot(slot, sessionRecord{id: id, used: true}, now)
	return slot, true
}

// fillSlot stores a session in a free slot.
func (s *sessionTable) fillSlot(slot uint32, h sessionRecord, now image.Generation) {
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

// MessageChanged updates a session when one of its messages is added (from 0), removed (to 0) or
// changed.
func (s *sessionTable) MessageChanged(slot uint32, n fsm.SequenceNumber, from, to fsm.MessageState, main bool, now image.Generation) {
	if slot == index.Sessionless {
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
		case fsm.Ready:
			line.ready.remove(n)
		case fsm.Locked:
			line.locked.remove(n)
		case fsm.Deferred, fsm.Deleting, fsm.Scheduled, fsm.Shared, fsm.Forwarding, fsm.Pending:
		}
		switch to {
		case fsm.Ready:
			line.ready.add(n)
			s.notifyReady(slot)
		case fsm.Locked:
			line.locked.add(n)
		case fsm.Deferred, fsm.Deleting, fsm.Scheduled, fsm.Shared, fsm.Forwarding, fsm.Pending:
		}
	}
	s.update(slot, now)
}

// pin keeps a session while its message, which may be its last, is moved. s may be nil.
func (s *sessionTable) pin(slot uint32) {
	if s != nil && slot != index.Sessionless {
		s.messages[slot].otherCount++
	}
}

func (s *sessionTable) unpin(slot uint32, now image.Generation) {
	if s != nil && slot != index.Sessionless {
		s.messages[slot].otherCount--
		s.update(slot, now)
	}
}

// notifyReady records that a session has more ready messages than before.
func (s *sessionTable) notifyReady(slot uint32) {
	if line := &s.messages[slot]; !line.readyChanged {
		line.readyChanged = true
		s.readyChanged = append(s.readyChanged, slot)
	}
}

// update updates what is derived of a session after a change, and removes the session if it is
// empty.
func (s *sessionTable) update(slot uint32, now image.Generation) {
	line, h := &s.messages[slot], s.at(slot)
	first := fsm.SequenceNumber(0)
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
			s.heap.Push(availableSession{first, slot})
		}
		s.removeStale()
	}
	if line.all.count() == 0 && line.otherCount == 0 && h.epoch == 0 && h.updated == 0 {
		delete(s.slots, h.id)
		*s.write(slot, now) = sessionRecord{}
		*line = sessionMessages{}
		s.free.Push(freeSlot(slot))
		s.count--
	}
}

// oldestAvailable returns the unlocked session with the oldest ready message.
func (s *sessionTable) oldestAvailable() (slot uint32, found bool) {
	for len(s.heap) > 0 {
		if c := s.heap[0]; s.messages[c.slot].heapNumber == c.number {
			return c.slot, true
		}
		s.heap.Pop()
	}
	return 0, false
}

// removeStale removes stale entries from the heap when they outnumber the others. The changes that
// made them stale pay for its work.
func (s *sessionTable) removeStale() {
	if len(s.heap) <= 2*s.available+availableSlack {
		return
	}
	s.heap.Rebuild(availableSlack, func(c availableSession) bool {
		line := &s.messages[c.slot]
		valid := line.heapNumber == c.number
		if valid {
			line.heapNumber = 0 // a duplicate entry is removed
		}
		return valid
	})
	for _, c := range s.heap {
		s.messages[c.slot].heapNumber = c.number
	}
}

// numberList is a sorted list of sequence numbers that mostly grows at its end and shrinks at its
// front.
type numberList struct {
	list []fsm.SequenceNumber
	head int
}

func (l *numberList) live() []fsm.SequenceNumber { return l.list[l.head:] }
func (l *numberList) count() int                 { return len(l.list) - l.head }

// first returns the lowest number, 0 if there is none.
func (l *numberList) first() fsm.SequenceNumber {
	if l.head == len(l.list) {
		return 0
	}
	return l.list[l.head]
}

// add inserts a number that is not in the list.
func (l *numberList) add(n fsm.SequenceNumber) {
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
		// Returned near the front: move the few before it, not the many after it.
		l.head--
		copy(l.list[l.head:], l.list[l.head+1:l.head+1+i])
		l.list[l.head+i] = n
	}
}

// remove removes a number and reports whether it was in the list.
func (l *numberList) remove(n fsm.SequenceNumber) bool {
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

// numbersKept is the capacity that a list always keeps.
const numbersKept = 16

// shrink releases capacity of which less than a quarter is used.
func (l *numberList) shrink() {
	n := l.count()
	switch {
	case n == 0 && cap(l.list) <= numbersKept:
		l.list, l.head = l.list[:0], 0
	case cap(l.list) > numbersKept && n*4 < cap(l.list):
		l.list, l.head = append(make([]fsm.SequenceNumber, 0, 2*n), l.live()...), 0
	case l.head*2 > len(l.list) && l.head > numbersKept:
		l.list, l.head = append(l.list[:0], l.live()...), 0
	}
}

// isCurrent reports whether a timer is that of a current session lock.
func (s *sessionTable) isCurrent(a index.Timer) bool {
	if s == nil || a.Number >= fsm.SequenceNumber(s.top) {
		return false
	}
	h := s.at(uint32(a.Number))
	return h.epoch != 0 && uint32(h.epoch) == a.Epoch && h.until == a.At
}

func stateOwner(id fsm.EntityID, slot uint32) fsm.Owner {
	return fsm.Owner{Address: fsm.Address{Entity: id, Sub: sessionStates}, Sequence: fsm.SequenceNumber(slot)}
}

// sessionStates is the sub-queue in the owner of a session state: (entity, sessionStates, slot). It
// is not addressable.
const sessionStates fsm.SubQueue = 255
