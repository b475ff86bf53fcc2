package index

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// chunkEntry is a chunk of an index. base and the number of ready messages are stored here, so that
// a search reads one flat slice instead of every chunk.
type chunkEntry struct {
	base  uint64 // sequence numbers base<<chunkShift and the chunkSlots-1 after it
	ready uint32 // |c.ready|
	held  uint32 // of these, the messages that are held back from forwarding
	c     *chunk
	// due is no later than the first time at which a message of the chunk that is not locked is
	// due; 0 if there is none. While it is not 0 a timer exists for it.
	due fsm.Instant
}

// Index is the ordered map from sequence number to record of one sub-queue, with the timers of its messages. No operation takes
// longer with more messages, except the search for the first ready message when chunks without
// ready messages precede it: it reads 32 bytes for every 1024 messages in those. An Index must not be copied.
type Index struct {
	arena      *Arena
	address    fsm.Address
	owner      Owner
	generation image.Generation // of the slice entries
	entries    []chunkEntry     // sorted by base; none is empty
	hint       uint64           // no chunk with a lower base has ready messages
	counts     [fsm.Pending + 1]uint64
	held       uint64    // ready messages that are held back from forwarding
	bytes      uint64    // of the bodies of messages that are not Deleting
	patches    uint64    // messages that have patches
	patchBytes uint64    // of these patches
	patchTotal *uint64   // counts the bytes of patches too, see ShareTotal; nil for none
	timers     [2]timers // by timeline
	lostTimers int       // chunks that were removed while a timer existed for them
	// sessions is notified of every message that is added, removed or changed; nil if the entity
	// has no sessions.
	sessions  Sessions
	bySession bool // its messages are delivered by session: the main queue of an entity with sessions
}

// Sessions is notified of the messages of an entity with sessions.
type Sessions interface {
	// MessageChanged is called when a message of the session in a slot changes its state; 0 means absent. main tells the main queue
	// from the others, in which a session only counts its messages.
	MessageChanged(slot uint32, n fsm.SequenceNumber, from, to fsm.MessageState, main bool, now image.Generation)
}

// Init makes the zero Index the empty one of a sub-queue. owner checks the timers that it adds.
func (ix *Index) Init(arena *Arena, address fsm.Address, owner Owner) {
	ix.arena, ix.address, ix.owner, ix.generation = arena, address, owner, arena.generation
	for line := range ix.timers {
		ix.timers[line] = timers{ix: ix, heapIndex: -1}
	}
}

// EnableSessions makes the messages of an empty index belong to sessions.
func (ix *Index) EnableSessions(s Sessions) {
	ix.sessions, ix.bySession = s, ix.address.Sub == fsm.MainQueue
}

// Address returns the address of the sub-queue.
func (ix *Index) Address() fsm.Address { return ix.address }

// DeliversBySession reports whether receivers get the messages by session.
func (ix *Index) DeliversBySession() bool { return ix.bySession }

// Count returns the number of messages in a state.
func (ix *Index) Count(state fsm.MessageState) uint64 { return ix.counts[state] }

// Bytes returns the size of the bodies of all messages that are not Deleting.
func (ix *Index) Bytes() uint64 { return ix.bytes }

// Patches returns the number of messages that have patches, and the size of all patches.
func (ix *Index) Patches() (messages, size uint64) { return ix.patches, ix.patchBytes }

// Chunks returns the number of chunks that hold the messages.
func (ix *Index) Chunks() int { return len(ix.entries) }

// ShareTotal makes total count the bytes of all patches of this index, in addition to what it counts already.
func (ix *Index) ShareTotal(total *uint64) {
	ix.patchTotal = total
	*total += ix.patchBytes
}

// countPatch adds patches to the counts, or removes them with sign -1.
func (ix *Index) countPatch(ref fsm.Ref, sign int64) {
	if ref == (fsm.Ref{}) {
		return
	}
	ix.patches += uint64(sign)
	ix.patchBytes += uint64(sign) * uint64(ref.Size)
	if ix.patchTotal != nil {
		*ix.patchTotal += uint64(sign) * uint64(ref.Size)
	}
}

// Cursor is the position of a live message: entry and slot. Adding or removing messages invalidates
// it.
type Cursor struct{ pos, slot int }

func split(n fsm.SequenceNumber) (base uint64, slot int) {
	return uint64(n) >> chunkShift, int(n & (chunkSlots - 1))
}

// find returns the position of the chunk with base, or where it belongs.
func (ix *Index) find(base uint64) (pos int, found bool) { return find(ix.entries, base) }

func find(entries []chunkEntry, base uint64) (pos int, found bool) {
	if len(entries) == 0 || base < entries[0].base {
		return 0, false
	}
	// Most indexes have no gaps between chunks: try the position without gaps.
	if pos := base - entries[0].base; pos < uint64(len(entries)) && entries[pos].base == base {
		return int(pos), true
	}
	if last := len(entries) - 1; base >= entries[last].base {
		if base == entries[last].base {
			return last, true
		}
		return last + 1, false
	}
	return slices.BinarySearchFunc(entries, base, func(e chunkEntry, base uint64) int {
		if e.base < base {
			return -1
		}
		if e.base > base {
			return 1
		}
		return 0
	})
}

// Seek finds a message by number.
func (ix *Index) Seek(n fsm.SequenceNumber) (Cursor, bool) {
	base, slot := split(n)
	pos, found := ix.find(base)
	if !found || !ix.entries[pos].c.live.has(slot) {
		return Cursor{}, false
	}
	return Cursor{pos: pos, slot: slot}, true
}

// FindLocked finds a message by its lock. Only the epoch decides whether a lock is still held; a
// clock never does.
func (ix *Index) FindLocked(l fsm.LockID) (at Cursor, rec Record, ok bool) {
	at, found := ix.Seek(l.Sequence)
	if !found {
		return at, rec, false
	}
	rec = ix.Get(at)
	return at, rec, rec.state == fsm.Locked && rec.epoch == l.Epoch
}

// Number returns the sequence number at a cursor.
func (ix *Index) Number(at Cursor) fsm.SequenceNumber {
	return fsm.SequenceNumber(ix.entries[at.pos].base<<chunkShift + uint64(at.slot))
}

// Get returns the record at a cursor.
func (ix *Index) Get(at Cursor) Record {
	c := ix.entries[at.pos].c
	return c.records[c.recordIndex(at.slot)]
}

// Patch returns the location of the patches at a cursor.
func (ix *Index) Patch(at Cursor) fsm.Ref { return ix.entries[at.pos].c.patch(at.slot) }

// own copies the slice of entries if an image may share it.
func (ix *Index) own() {
	if ix.generation != ix.arena.generation {
		ix.entries = slices.Clone(ix.entries)
		ix.generation = ix.arena.generation
	}
}

// write returns the chunk at pos for writing.
func (ix *Index) write(pos int) *chunk {
	ix.own()
	e := &ix.entries[pos]
	if e.c.generation != ix.arena.generation {
		e.c = e.c.clone(ix.arena.generation)
	}
	return e.c
}

// Insert adds a message, with the slot of its session, or NoSession if the entity has no sessions, and its timer.
func (ix *Index) Insert(n fsm.SequenceNumber, rec Record, session uint32) Cursor {
	base, slot := split(n)
	pos, found := ix.find(base)
	if !found {
		ix.own()
		ix.entries = slices.Insert(ix.entries, pos, chunkEntry{base: base, c: ix.arena.chunk()})
	}
	ix.write(pos).insert(slot, &rec, session)
	at := Cursor{pos: pos, slot: slot}
	ix.countIn(at, &rec)
	ix.updateSession(at, session, 0, rec.state)
	ix.scheduleDue(at, &rec)
	return at
}

// scheduleDue makes sure that the message at a cursor is processed when it is due.
func (ix *Index) scheduleDue(at Cursor, rec *Record) {
	if when := ix.DueAt(rec); when != 0 {
		ix.lowerDue(at.pos, when)
	}
}

// Session returns the session slot of the message at a cursor, NoSession if the entity has no
// sessions.
func (ix *Index) Session(at Cursor) uint32 {
	if ix.sessions == nil {
		return NoSession
	}
	c := ix.entries[at.pos].c
	return c.sessions[c.recordIndex(at.slot)]
}

// updateSession notifies the session of a message of a change of its state; 0 means absent.
func (ix *Index) updateSession(at Cursor, session uint32, from, to fsm.MessageState) {
	if ix.sessions != nil && from != to {
		ix.sessions.MessageChanged(session, ix.Number(at), from, to, ix.bySession, ix.arena.generation)
	}
}

// Set replaces the record at a cursor, and adds a timer for what is due earlier now. That of a lock is the caller's.
func (ix *Index) Set(at Cursor, rec Record) {
	c := ix.write(at.pos)
	old := &c.records[c.recordIndex(at.slot)]
	from := old.state
	ix.countOut(at, old)
	*old = rec
	ix.countIn(at, &rec)
	if ix.sessions != nil {
		ix.updateSession(at, ix.Session(at), from, rec.state)
	}
	ix.scheduleDue(at, &rec)
}

// SetPatch sets the location of the patches at a cursor.
func (ix *Index) SetPatch(at Cursor, ref fsm.Ref) {
	c := ix.write(at.pos)
	ix.countPatch(c.patch(at.slot), -1)
	ix.countPatch(ref, 1)
	c.setPatch(at.slot, ref)
}

// SetBody sets the new location of the body at a cursor; its size is the same.
func (ix *Index) SetBody(at Cursor, ref fsm.Ref) {
	c := ix.write(at.pos)
	c.records[c.recordIndex(at.slot)].body = ref
}

// Remove removes a message.
func (ix *Index) Remove(at Cursor) {
	c := ix.write(at.pos)
	rec := &c.records[c.recordIndex(at.slot)]
	ix.countOut(at, rec)
	ix.countPatch(c.patch(at.slot), -1)
	if ix.sessions != nil {
		ix.updateSession(at, ix.Session(at), rec.state, 0)
	}
	c.remove(at.slot)
	if c.count > 0 {
		return
	}
	if ix.entries[at.pos].due != 0 {
		ix.lostTimers++
	}
	ix.arena.recycle(c)
	if at.pos == 0 && len(ix.entries) > 1 { // the usual case
		ix.entries[0] = chunkEntry{}
		ix.entries = ix.entries[1:]
		return
	}
	ix.entries = slices.Delete(ix.entries, at.pos, at.pos+1)
}

// countIn adds a record to the counts; the chunk is writable.
func (ix *Index) countIn(at Cursor, rec *Record) {
	ix.counts[rec.state]++
	if rec.state != fsm.Deleting {
		ix.bytes += uint64(rec.body.Size)
	}
	if rec.state == fsm.Ready {
		e := &ix.entries[at.pos]
		e.c.ready.add(at.slot)
		e.ready++
		if rec.IsHeld() {
			e.held++
			ix.held++
		}
		ix.hint = min(ix.hint, e.base)
	}
}

// countOut removes a record from the counts; the chunk is writable.
func (ix *Index) countOut(at Cursor, rec *Record) {
	ix.counts[rec.state]--
	if rec.state != fsm.Deleting {
		ix.bytes -= uint64(rec.body.Size)
	}
	if rec.state == fsm.Ready {
		e := &ix.entries[at.pos]
		e.c.ready.remove(at.slot)
		e.ready--
		if rec.IsHeld() {
			e.held--
			ix.held--
		}
	}
}

// FirstReady finds the oldest ready message.
func (ix *Index) FirstReady() (Cursor, bool) {
	if ix.counts[fsm.Ready] == 0 {
		return Cursor{}, false
	}
	pos, _ := ix.find(ix.hint)
	for ix.entries[pos].ready == 0 {
		pos++
	}
	ix.hint = ix.entries[pos].base
	return Cursor{pos: pos, slot: ix.entries[pos].c.ready.next(0)}, true
}

// NextReady finds the oldest ready message at or after a number.
func (ix *Index) NextReady(from fsm.SequenceNumber) (Cursor, bool) {
	base, slot := split(from)
	pos, found := ix.find(max(base, ix.hint))
	if !found || ix.entries[pos].base > base {
		slot = 0
	}
	for ; pos < len(ix.entries); pos, slot = pos+1, 0 {
		if ix.entries[pos].ready == 0 {
			continue
		}
		if slot = ix.entries[pos].c.ready.next(slot); slot >= 0 {
			return Cursor{pos: pos, slot: slot}, true
		}
	}
	return Cursor{}, false
}

// Held returns the number of ready messages that are held back from forwarding.
func (ix *Index) Held() uint64 { return ix.held }

// NextHeld finds the oldest ready message at or after a number that is held back from forwarding, or with held false one that is not. It
// reads the records of one chunk, and 32 bytes for every 1024 messages before it.
func (ix *Index) NextHeld(from fsm.SequenceNumber, held bool) (Cursor, bool) {
	if _, found := ix.FirstReady(); !found { // moves the hint
		return Cursor{}, false
	}
	base, slot := split(from)
	pos, found := ix.find(max(base, ix.hint))
	if !found || ix.entries[pos].base > base {
		slot = 0
	}
	for ; pos < len(ix.entries); pos, slot = pos+1, 0 {
		e := &ix.entries[pos]
		if held && e.held == 0 || !held && e.ready == e.held {
			continue
		}
		for slot = e.c.ready.next(slot); slot >= 0; slot = e.c.ready.next(slot + 1) {
			if e.c.records[e.c.recordIndex(slot)].IsHeld() == held {
				return Cursor{pos: pos, slot: slot}, true
			}
		}
	}
	return Cursor{}, false
}

// Total returns the number of messages in all states.
func (ix *Index) Total() uint64 {
	n := uint64(0)
	for _, c := range ix.counts {
		n += c
	}
	return n
}
