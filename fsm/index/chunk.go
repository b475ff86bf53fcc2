package index

import (
	"math/bits"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// A chunk holds the records of chunkSlots consecutive sequence numbers. Its slots are numbered from
// 0; base<<chunkShift + slot is the sequence number.
const (
	chunkShift = 10
	chunkSlots = 1 << chunkShift
	chunkWords = chunkSlots / 64
)

// repackMin is the number of kept records below which a chunk is not repacked: the gain would be
// too small.
const repackMin = 4

// patchRef is the location of the patches of the message in slot.
type patchRef struct {
	slot uint16
	ref  fsm.Ref
}

// chunk stores records densely: records[i] belongs to the i-th slot set in kept. Removing a message
// clears its live bit and leaves its record unused; when fewer than half of the records are live,
// the chunk is repacked. So
//
//	ready <= live <= kept (as sets),  len(records) = |kept| < 2|live| + repackMin
//
// and a chunk with one survivor takes some hundred bytes instead of 48 KiB.
type chunk struct {
	generation image.Generation // the chunk is copied before it is written in a later generation
	count      int              // |live|
	kept       bitmap
	live       bitmap
	ready      bitmap
	records    []Record
	patches    []patchRef // sorted by slot; few messages have any
	// sessions[i] is the session slot of records[i]; empty if the entity has no sessions.
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

// recordIndex returns the index in records of a live slot.
func (c *chunk) recordIndex(slot int) int {
	// A chunk that was filled at the tail and never repacked holds slot i at index i.
	if slot < len(c.records) && c.kept[slot>>6] == ^uint64(0) && len(c.records) == chunkSlots {
		return slot
	}
	return c.kept.rank(slot)
}

// NoSession is the session slot of records of entities without sessions.
const NoSession uint32 = 1<<32 - 1

// Sessionless is the session slot of a dead letter without a session in an entity with sessions.
const Sessionless = NoSession - 1

// insert adds a record at slot, which is not live. Either all records of a chunk belong to a
// session or none does.
func (c *chunk) insert(slot int, rec *Record, session uint32) {
	i := c.kept.rank(slot)
	reused := c.kept.has(slot) // an unused record is there
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
	case session == NoSession:
	case reused:
		c.sessions[i] = session
	default:
		c.sessions = slices.Insert(c.sessions, i, session)
	}
	c.live.add(slot)
	c.count++
}

// grow reserves capacity for one more record: 4, 16, 64, 256, 1024. A full chunk wastes nothing;
// the growth of append would waste a quarter.
func (c *chunk) grow() {
	if len(c.records) < cap(c.records) {
		return
	}
	capacity := min(max(4, 4*cap(c.records)), chunkSlots)
	c.records = append(make([]Record, 0, capacity), c.records...)
}

// remove removes the record of a live slot.
func (c *chunk) remove(slot int) {
	c.live.remove(slot)
	c.ready.remove(slot)
	c.setPatch(slot, fsm.Ref{})
	c.count--
	if len(c.records) >= repackMin && c.count*2 < len(c.records) {
		c.repack()
	}
}

// repack removes unused records. It touches twice as many records as are live, after as many
// removals: constant work per removal.
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
		c.records = append(make([]Record, 0, to), c.records...)
		c.sessions = slices.Clone(c.sessions)
	}
	c.kept = c.live
}

// patch returns the location of the patches of slot, zero if there are none.
func (c *chunk) patch(slot int) fsm.Ref {
	if len(c.patches) == 0 {
		return fsm.Ref{}
	}
	if i, found := c.findPatch(slot); found {
		return c.patches[i].ref
	}
	return fsm.Ref{}
}

// setPatch sets the location of the patches of slot; the zero Ref removes it.
func (c *chunk) setPatch(slot int, ref fsm.Ref) {
	if len(c.patches) == 0 && ref == (fsm.Ref{}) {
		return
	}
	i, found := c.findPatch(slot)
	switch {
	case found && ref == fsm.Ref{}:
		c.patches = slices.Delete(c.patches, i, i+1)
	case found:
		c.patches[i].ref = ref
	case ref != fsm.Ref{}:
		c.patches = slices.Insert(c.patches, i, patchRef{slot: uint16(slot), ref: ref})
	}
}

func (c *chunk) findPatch(slot int) (int, bool) {
	return slices.BinarySearchFunc(c.patches, slot, func(p patchRef, slot int) int { return int(p.slot) - slot })
}

// clone copies a chunk that an image may share.
func (c *chunk) clone(now image.Generation) *chunk {
	d := *c
	d.generation = now
	d.records = append(make([]Record, 0, cap(c.records)), c.records...)
	d.patches = slices.Clone(c.patches)
	d.sessions = slices.Clone(c.sessions)
	return &d
}
