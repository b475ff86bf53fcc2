package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// freeChunksMax is the number of empty chunks that a state machine keeps for reuse: a queue that is
// filled and emptied message by message would allocate one each time.
const freeChunksMax = 4

// arena is shared by the indexes of a state machine.
type arena struct {
	generation image.Generation
	freeChunks []*chunk
}

// freeze begins a new generation: everything of the old one is shared from now on.
func (a *arena) freeze() {
	a.generation++
	a.freeChunks = nil
}

func (a *arena) chunk() *chunk {
	if n := len(a.freeChunks); n > 0 {
		c := a.freeChunks[n-1]
		a.freeChunks = a.freeChunks[:n-1]
		return c
	}
	return &chunk{generation: a.generation}
}

// recycle keeps an empty chunk of this generation for reuse.
func (a *arena) recycle(c *chunk) {
	if c.generation != a.generation || len(a.freeChunks) == freeChunksMax {
		return
	}
	*c = chunk{generation: a.generation, records: c.records[:0], patches: c.patches[:0]}
	a.freeChunks = append(a.freeChunks, c)
}

// chunkEntry is a chunk of an index. base and the number of ready messages are stored here, so that
// a search reads one flat slice instead of every chunk.
type chunkEntry struct {
	base  uint64 // sequence numbers base<<chunkShift and the chunkSlots-1 after it
	ready uint32 // |c.ready|
	c     *chunk
	// due is no later than the first time at which a message of the chunk that is not locked is
	// due; 0 if there is none. While it is not 0 a timer exists for it.
	due fsm.Instant
}

// index is the ordered map from sequence number to record of one sub-queue. No operation takes
// longer with more messages, except the search for the first ready message when chunks without
// ready messages precede it: it reads 32 bytes for every 1024 messages in those.
type index struct {
	arena      *arena
	generation image.Generation // of the slice entries
	entries    []chunkEntry     // sorted by base; none is empty
	hint       uint64           // no chunk with a lower base has ready messages
	counts     [fsm.Pending + 1]uint64
	bytes      uint64 // of the bodies of messages that are not Deleting
	lostTimers int    // chunks that were removed while a timer existed for them
	// sessions is notified of every message that is added, removed or changed; nil if the entity
	// has no sessions.
	sessions sessions
	main     bool // this is the main queue: in others a session only counts its messages
}

// sessions is notified of the messages of an entity with sessions.
type sessions interface {
	// messageChanged is called when a message of the session in a slot changes its state; 0 means absent. main tells the main queue
	// from the others, in which a session only counts its messages.
	messageChanged(slot uint32, n fsm.SequenceNumber, from, to fsm.MessageState, main bool, now image.Generation)
}

// cursor is the position of a live message: entry and slot. Adding or removing messages invalidates
// it.
type cursor struct{ pos, slot int }

func split(n fsm.SequenceNumber) (base uint64, slot int) {
	return uint64(n) >> chunkShift, int(n & (chunkSlots - 1))
}

// find returns the position of the chunk with base, or where it belongs.
func (ix *index) find(base uint64) (pos int, found bool) {
	if len(ix.entries) == 0 || base < ix.entries[0].base {
		return 0, false
	}
	// Most indexes have no gaps between chunks: try the position without gaps.
	if pos := base - ix.entries[0].base; pos < uint64(len(ix.entries)) && ix.entries[pos].base == base {
		return int(pos), true
	}
	if last := len(ix.entries) - 1; base >= ix.entries[last].base {
		if base == ix.entries[last].base {
			return last, true
		}
		return last + 1, false
	}
	return slices.BinarySearchFunc(ix.entries, base, func(e chunkEntry, base uint64) int {
		if e.base < base {
			return -1
		}
		if e.base > base {
			return 1
		}
		return 0
	})
}

// seek finds a message by number.
func (ix *index) seek(n fsm.SequenceNumber) (cursor, bool) {
	base, slot := split(n)
	pos, found := ix.find(base)
	if !found || !ix.entries[pos].c.live.has(slot) {
		return cursor{}, false
	}
	return cursor{pos: pos, slot: slot}, true
}

// number returns the sequence number at a cursor.
func (ix *index) number(at cursor) fsm.SequenceNumber {
	return fsm.SequenceNumber(ix.entries[at.pos].base<<chunkShift + uint64(at.slot))
}

// get returns the record at a cursor.
func (ix *index) get(at cursor) record {
	c := ix.entries[at.pos].c
	return c.records[c.recordIndex(at.slot)]
}

// patch returns the location of the patches at a cursor.
func (ix *index) patch(at cursor) fsm.Ref { return ix.entries[at.pos].c.patch(at.slot) }

// own copies the slice of entries if an image may share it.
func (ix *index) own() {
	if ix.generation != ix.arena.generation {
		ix.entries = slices.Clone(ix.entries)
		ix.generation = ix.arena.generation
	}
}

// write returns the chunk at pos for writing.
func (ix *index) write(pos int) *chunk {
	ix.own()
	e := &ix.entries[pos]
	if e.c.generation != ix.arena.generation {
		e.c = e.c.clone(ix.arena.generation)
	}
	return e.c
}

// insert adds a message, with the slot of its session, or noSession if the entity has no sessions.
func (ix *index) insert(n fsm.SequenceNumber, rec record, session uint32) cursor {
	base, slot := split(n)
	pos, found := ix.find(base)
	if !found {
		ix.own()
		ix.entries = slices.Insert(ix.entries, pos, chunkEntry{base: base, c: ix.arena.chunk()})
	}
	ix.write(pos).insert(slot, &rec, session)
	at := cursor{pos: pos, slot: slot}
	ix.countIn(at, &rec)
	ix.updateSession(at, session, 0, rec.state)
	return at
}

// session returns the session slot of the message at a cursor, noSession if the entity has no
// sessions.
func (ix *index) session(at cursor) uint32 {
	if ix.sessions == nil {
		return noSession
	}
	c := ix.entries[at.pos].c
	return c.sessions[c.recordIndex(at.slot)]
}

// updateSession notifies the session of a message of a change of its state; 0 means absent.
func (ix *index) updateSession(at cursor, session uint32, from, to fsm.MessageState) {
	if ix.sessions != nil && from != to {
		ix.sessions.messageChanged(session, ix.number(at), from, to, ix.main, ix.arena.generation)
	}
}

// set replaces the record at a cursor.
func (ix *index) set(at cursor, rec record) {
	c := ix.write(at.pos)
	old := &c.records[c.recordIndex(at.slot)]
	from := old.state
	ix.countOut(at, old)
	*old = rec
	ix.countIn(at, &rec)
	if ix.sessions != nil {
		ix.updateSession(at, ix.session(at), from, rec.state)
	}
}

// setPatch sets the location of the patches at a cursor.
func (ix *index) setPatch(at cursor, ref fsm.Ref) { ix.write(at.pos).setPatch(at.slot, ref) }

// setDue sets the bound of the chunk at pos.
func (ix *index) setDue(pos int, due fsm.Instant) {
	ix.own()
	ix.entries[pos].due = due
}

// setBody sets the new location of the body at a cursor; its size is the same.
func (ix *index) setBody(at cursor, ref fsm.Ref) {
	c := ix.write(at.pos)
	c.records[c.recordIndex(at.slot)].body = ref
}

// remove removes a message.
func (ix *index) remove(at cursor) {
	c := ix.write(at.pos)
	rec := &c.records[c.recordIndex(at.slot)]
	ix.countOut(at, rec)
	if ix.sessions != nil {
		ix.updateSession(at, ix.session(at), rec.state, 0)
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
func (ix *index) countIn(at cursor, rec *record) {
	ix.counts[rec.state]++
	if rec.state != fsm.Deleting {
		ix.bytes += uint64(rec.body.Size)
	}
	if rec.state == fsm.Ready {
		e := &ix.entries[at.pos]
		e.c.ready.add(at.slot)
		e.ready++
		ix.hint = min(ix.hint, e.base)
	}
}

// countOut removes a record from the counts; the chunk is writable.
func (ix *index) countOut(at cursor, rec *record) {
	ix.counts[rec.state]--
	if rec.state != fsm.Deleting {
		ix.bytes -= uint64(rec.body.Size)
	}
	if rec.state == fsm.Ready {
		e := &ix.entries[at.pos]
		e.c.ready.remove(at.slot)
		e.ready--
	}
}

// firstReady finds the oldest ready message.
func (ix *index) firstReady() (cursor, bool) {
	if ix.counts[fsm.Ready] == 0 {
		return cursor{}, false
	}
	pos, _ := ix.find(ix.hint)
	for ix.entries[pos].ready == 0 {
		pos++
	}
	ix.hint = ix.entries[pos].base
	return cursor{pos: pos, slot: ix.entries[pos].c.ready.next(0)}, true
}

// nextReady finds the oldest ready message at or after a number.
func (ix *index) nextReady(from fsm.SequenceNumber) (cursor, bool) {
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
			return cursor{pos: pos, slot: slot}, true
		}
	}
	return cursor{}, false
}

// total returns the number of messages in all states.
func (ix *index) total() uint64 {
	n := uint64(0)
	for _, c := range ix.counts {
		n += c
	}
	return n
}

// walk calls visit for the messages of entries from a number on, in order, until visit returns
// false; session is noSession if the entity has no sessions. It reads nothing but entries, so an
// image can call it with its own.
func walk(entries []chunkEntry, from fsm.SequenceNumber, visit func(n fsm.SequenceNumber, rec *record, patch fsm.Ref, session uint32) bool) {
	for i := range entries {
		e := &entries[i]
		first := e.base << chunkShift
		if first+chunkSlots <= uint64(from) {
			continue
		}
		slot := 0
		if uint64(from) > first {
			slot = int(uint64(from) - first)
		}
		for slot = e.c.live.next(slot); slot >= 0; slot = e.c.live.next(slot + 1) {
			place, session := e.c.recordIndex(slot), noSession
			if len(e.c.sessions) > 0 {
				session = e.c.sessions[place]
			}
			if !visit(fsm.SequenceNumber(first+uint64(slot)), &e.c.records[place], e.c.patch(slot), session) {
				return
			}
		}
	}
}
