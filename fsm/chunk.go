package fsm

import (
	"math/bits"
	"slices"
)

// A chunk holds the records of chunkSlots consecutive sequence numbers. Its slots are
// numbered from 0; base<<chunkShift + slot is the sequence number.
const (
	chunkShift = 10
	chunkSlots = 1 << chunkShift
	chunkWords = chunkSlots / 64
)

// repackMin is the number of kept places below which a chunk is not repacked: moving
// less is not worth the call.
const repackMin = 4

// record is one message: 48 bytes without a pointer, so that a backlog of millions
// gives the garbage collector nothing to walk.
type record struct {
	body     Ref
	epoch    uint32  // grants so far: the epoch of the lock while Locked or Taken
	enqueued Instant // when it was accepted
	deadline Instant // Locked: end of the lock; Scheduled: when it is due; else zero
	// expires is when the life of the message ends, 0 if never. In the dead-letter queue
	// it stays for a redrive and has no effect. While the message waits to be enqueued it
	// is the time to live that the sender gave.
	expires          Instant
	deadLetterExpiry uint32 // dead-letter queues: second since the epoch when it is dropped, 0 if never
	failedDeliveries uint16 // deliveries that failed; stays at its largest value
	state            MessageState
	flags            recordFlags
}

// recordFlags are bits of a record; they are part of the image format.
type recordFlags uint8

const (
	// fromDeferred says that the lock or grant was made by number: abandoning it brings
	// the message back to Deferred and not among the ready ones.
	fromDeferred recordFlags = 1 << 0
	// delayed says of a Scheduled message that it was put off: it has been enqueued before
	// and comes back under its number.
	delayed recordFlags = 1 << 1
	// redriven says that the message was enqueued later than its number tells.
	redriven recordFlags = 1 << 2

	// shared says of a message of a subscription that its body is the topic's: body holds the
	// number of that message there (sharedRef), and the size.
	shared recordFlags = 1 << 3

	// The bits from hopsShift on say how often the message was forwarded: 0 to hopsMax.
	hopsShift             = 5
	hopsBits  recordFlags = 7 << hopsShift

	recordFlagsKnown = fromDeferred | delayed | redriven | shared | hopsBits
	// recordFlagsStay go with a message to whatever sub-queue it is moved.
	recordFlagsStay = shared | hopsBits
)

// hops is how often a message was forwarded.
func (f recordFlags) hops() uint8 { return uint8(f >> hopsShift) }

// patchRef says where the patches of the message in slot lie.
type patchRef struct {
	slot uint16
	ref  Ref
}

// chunk keeps records densely: records[i] belongs to the i-th slot set in kept. A
// message that goes clears its live bit and leaves its place empty; when fewer than
// half of the places are live, the chunk is repacked. So
//
//	ready <= live <= kept (as sets),  len(records) = |kept| < 2|live| + repackMin
//
// and a chunk with one survivor costs some hundred bytes instead of 48 KiB.
type chunk struct {
	generation generation // the chunk may be written only while this is the generation of its machine
	count      int        // |live|
	kept       bitmap
	live       bitmap
	ready      bitmap
	records    []record
	patches    []patchRef // sorted by slot; few messages have any
	// sessions are the slots of the sessions that records belong to, place by place; none
	// where there are no sessions.
	sessions []uint32
}

// bitmap is a set of slots.
type bitmap [chunkWords]uint64

func (b *bitmap) has(slot int) bool { return b[slot>>6]&(1<<(slot&63)) != 0 }
func (b *bitmap) add(slot int)      { b[slot>>6] |= 1 << (slot & 63) }
func (b *bitmap) remove(slot int)   { b[slot>>6] &^= 1 << (slot & 63) }

// rank counts the slots of the set below slot.
func (b *bitmap) rank(slot int) int {
	n := 0
	for i := range slot >> 6 {
		n += bits.OnesCount64(b[i])
	}
	return n + bits.OnesCount64(b[slot>>6]&(1<<(slot&63)-1))
}

// next returns the lowest slot of the set at or after slot, or -1.
func (b *bitmap) next(slot int) int {
	if slot >= chunkSlots {
		return -1
	}
	i := slot >> 6
	for word := b[i] >> (slot & 63) << (slot & 63); ; word = b[i] {
		if word != 0 {
			return i<<6 + bits.TrailingZeros64(word)
		}
		if i++; i == chunkWords {
			return -1
		}
	}
}

// recordIndex finds the record of a slot that is live.
func (c *chunk) recordIndex(slot int) int {
	// A chunk that was filled at the tail and never repacked holds slot i at place i.
	if slot < len(c.records) && c.kept[slot>>6] == ^uint64(0) && len(c.records) == chunkSlots {
		return slot
	}
	return c.kept.rank(slot)
}

// noSession stands for the session of a record where there are none.
const noSession uint32 = 1<<32 - 1

// sessionless stands for the session of a dead letter that has none, where there are
// sessions.
const sessionless = noSession - 1

// insert gives slot, which is not live, a place. All records of a chunk belong to a session
// or none does.
func (c *chunk) insert(slot int, rec *record, session uint32) {
	i := c.kept.rank(slot)
	reused := c.kept.has(slot) // the place of one that left
	switch {
	case reused:
		c.records[i] = *rec
	case i == len(c.records): // the tail, nearly always
		c.grow()
		c.records = append(c.records, *rec)
		c.kept.add(slot)
	default:
		c.grow()
		c.records = slices.Insert(c.records, i, *rec)
		c.kept.add(slot)
	}
	switch {
	case session == noSession:
	case reused:
		c.sessions[i] = session
	default:
		c.sessions = slices.Insert(c.sessions, i, session)
	}
	c.live.add(slot)
	c.count++
}

// grow makes room for one more: 4, 16, 64, 256, 1024 places. A full chunk wastes
// nothing; the waste of append's own steps would be a quarter.
func (c *chunk) grow() {
	if len(c.records) < cap(c.records) {
		return
	}
	room := min(max(4, 4*cap(c.records)), chunkSlots)
	c.records = append(make([]record, 0, room), c.records...)
}

// remove takes a live slot out.
func (c *chunk) remove(slot int) {
	c.live.remove(slot)
	c.ready.remove(slot)
	c.setPatch(slot, Ref{})
	c.count--
	if len(c.records) >= repackMin && c.count*2 < len(c.records) {
		c.repack()
	}
}

// repack moves the live records together. It touches twice as many records as are
// live, and as many removals went before it: constant work per removal.
func (c *chunk) repack() {
	to, from := 0, 0
	for slot := c.kept.next(0); slot >= 0; slot = c.kept.next(slot + 1) {
		if c.live.has(slot) {
			c.records[to] = c.records[from]
			if len(c.sessions) > 0 {
				c.sessions[to] = c.sessions[from]
			}
			to++
		}
		from++
	}
	c.records = c.records[:to]
	if len(c.sessions) > 0 {
		c.sessions = c.sessions[:to]
	}
	if cap(c.records) > 2*to+repackMin {
		c.records = append(make([]record, 0, to), c.records...)
		c.sessions = slices.Clone(c.sessions)
	}
	c.kept = c.live
}

// patch returns where the patches of slot lie, zero when there are none.
func (c *chunk) patch(slot int) Ref {
	if len(c.patches) == 0 {
		return Ref{}
	}
	if i, found := c.findPatch(slot); found {
		return c.patches[i].ref
	}
	return Ref{}
}

// setPatch notes where the patches of slot lie; the zero Ref takes the note away.
func (c *chunk) setPatch(slot int, ref Ref) {
	if len(c.patches) == 0 && ref == (Ref{}) {
		return
	}
	i, found := c.findPatch(slot)
	switch {
	case found && ref == Ref{}:
		c.patches = slices.Delete(c.patches, i, i+1)
	case found:
		c.patches[i].ref = ref
	case ref != Ref{}:
		c.patches = slices.Insert(c.patches, i, patchRef{slot: uint16(slot), ref: ref})
	}
}

func (c *chunk) findPatch(slot int) (int, bool) {
	return slices.BinarySearchFunc(c.patches, slot, func(p patchRef, slot int) int { return int(p.slot) - slot })
}

// clone copies a chunk that an image shares, so that the copy may be written.
func (c *chunk) clone(now generation) *chunk {
	d := *c
	d.generation = now
	d.records = append(make([]record, 0, cap(c.records)), c.records...)
	d.patches = slices.Clone(c.patches)
	d.sessions = slices.Clone(c.sessions)
	return &d
}
