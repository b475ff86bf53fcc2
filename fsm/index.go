package fsm

import "slices"

// generation counts the images of a machine. What carries an older generation than the machine may
// be shared with an image and is copied before it is written.
type generation uint64

// freeChunksMax is the number of emptied chunks kept for reuse by a machine: a queue that
// is emptied and filled message by message would else allocate one each time.
const freeChunksMax = 4

// arena is what the indexes of a machine share.
type arena struct {
	generation generation
	freeChunks []*chunk
}

// freeze starts a new generation: everything of the old one is shared from now on.
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

// recycle takes back an empty chunk of this generation.
func (a *arena) recycle(c *chunk) {
	if c.generation != a.generation || len(a.freeChunks) == freeChunksMax {
		return
	}
	*c = chunk{generation: a.generation, records: c.records[:0], patches: c.patches[:0]}
	a.freeChunks = append(a.freeChunks, c)
}

// chunkEntry is a chunk of an index. Base and the number of ready messages stand here, so
// that a search reads one flat slice and not a chunk after the other.
type chunkEntry struct {
	base  uint64 // sequence numbers base<<chunkShift and the chunkSlots-1 after it
	ready uint32 // |c.ready|
	c     *chunk
	// due is no later than the first moment at which time does something with a message
	// of the chunk that nobody holds; 0 says that there is none. While it is not 0 an
	// timer stands for it.
	due Instant
}

// index is the ordered map from sequence number to record of one sub-queue. Nothing
// in it costs more when more is stored, except the search for the first ready message
// when chunks full of messages that are not ready lie before it: 32 bytes are read
// for every 1024 of those.
type index struct {
	arena      *arena
	generation generation   // of the slice entries itself
	entries    []chunkEntry // sorted by base; none is empty
	hint       uint64       // no chunk with a lower base holds ready messages
	counts     [Pending + 1]uint64
	bytes      uint64 // of the bodies that are not Taken
	lostTimers int    // chunks that went while an timer stood for them
	// sessions are told of every message that comes, goes or changes; nil where there are none.
	sessions *sessionTable
	main     bool // of the main queue: elsewhere a session only counts its messages
}

// cursor is a live message: entry and slot. Any change that adds or removes messages
// makes it invalid.
type cursor struct{ pos, slot int }

func split(n SequenceNumber) (base uint64, slot int) {
	return uint64(n) >> chunkShift, int(n & (chunkSlots - 1))
}

// find returns the position of the chunk with base, or where it belongs.
func (ix *index) find(base uint64) (pos int, found bool) {
	if len(ix.entries) == 0 || base < ix.entries[0].base {
		return 0, false
	}
	// Most indexes have no gaps between chunks: try where base lies then.
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
func (ix *index) seek(n SequenceNumber) (cursor, bool) {
	base, slot := split(n)
	pos, found := ix.find(base)
	if !found || !ix.entries[pos].c.live.has(slot) {
		return cursor{}, false
	}
	return cursor{pos: pos, slot: slot}, true
}

// number is the sequence number at a cursor.
func (ix *index) number(at cursor) SequenceNumber {
	return SequenceNumber(ix.entries[at.pos].base<<chunkShift + uint64(at.slot))
}

// get returns the record at a cursor.
func (ix *index) get(at cursor) record {
	c := ix.entries[at.pos].c
	return c.records[c.recordIndex(at.slot)]
}

// patch returns where the patches at a cursor lie.
func (ix *index) patch(at cursor) Ref { return ix.entries[at.pos].c.patch(at.slot) }

// own makes the slice of entries writable.
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

// insert adds a message that is not there, to a session where there are sessions and else
// with noSession.
func (ix *index) insert(n SequenceNumber, rec record, session uint32) cursor {
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

// session is that of the message at a cursor, noSession where there are none.
func (ix *index) session(at cursor) uint32 {
	if ix.sessions == nil {
		return noSession
	}
	c := ix.entries[at.pos].c
	return c.sessions[c.recordIndex(at.slot)]
}

// updateSession tells the session of a message how its state has changed; 0 is not there.
func (ix *index) updateSession(at cursor, session uint32, from, to MessageState) {
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

// setPatch notes where the patches at a cursor lie.
func (ix *index) setPatch(at cursor, ref Ref) { ix.write(at.pos).setPatch(at.slot, ref) }

// setDue sets the bound of the chunk at pos.
func (ix *index) setDue(pos int, due Instant) {
	ix.own()
	ix.entries[pos].due = due
}

// setBody notes that the body at a cursor lies elsewhere; its size is the same.
func (ix *index) setBody(at cursor, ref Ref) {
	c := ix.write(at.pos)
	c.records[c.recordIndex(at.slot)].body = ref
}

// remove takes a message out.
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
	if at.pos == 0 && len(ix.entries) > 1 { // the usual end of a chunk
		ix.entries[0] = chunkEntry{}
		ix.entries = ix.entries[1:]
		return
	}
	ix.entries = slices.Delete(ix.entries, at.pos, at.pos+1)
}

// countIn counts a record in; the chunk is writable.
func (ix *index) countIn(at cursor, rec *record) {
	ix.counts[rec.state]++
	if rec.state != Deleting {
		ix.bytes += uint64(rec.body.Size)
	}
	if rec.state == Ready {
		e := &ix.entries[at.pos]
		e.c.ready.add(at.slot)
		e.ready++
		ix.hint = min(ix.hint, e.base)
	}
}

// countOut counts a record out; the chunk is writable.
func (ix *index) countOut(at cursor, rec *record) {
	ix.counts[rec.state]--
	if rec.state != Deleting {
		ix.bytes -= uint64(rec.body.Size)
	}
	if rec.state == Ready {
		e := &ix.entries[at.pos]
		e.c.ready.remove(at.slot)
		e.ready--
	}
}

// firstReady finds the oldest ready message.
func (ix *index) firstReady() (cursor, bool) {
	if ix.counts[Ready] == 0 {
		return cursor{}, false
	}
	pos, _ := ix.find(ix.hint)
	for ix.entries[pos].ready == 0 {
		pos++
	}
	ix.hint = ix.entries[pos].base
	return cursor{pos: pos, slot: ix.entries[pos].c.ready.next(0)}, true
}

// nextReady finds the oldest ready message from a number on.
func (ix *index) nextReady(from SequenceNumber) (cursor, bool) {
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

// total is the number of messages in whatever state.
func (ix *index) total() uint64 {
	n := uint64(0)
	for _, c := range ix.counts {
		n += c
	}
	return n
}

// walk visits the messages of entries from a number on, in order, until visit says
// false; session is noSession where there are none. It reads nothing but entries, so an
// image may walk its own.
func walk(entries []chunkEntry, from SequenceNumber, visit func(n SequenceNumber, rec *record, patch Ref, session uint32) bool) {
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
			if !visit(SequenceNumber(first+uint64(slot)), &e.c.records[place], e.c.patch(slot), session) {
				return
			}
		}
	}
}
