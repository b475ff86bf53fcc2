package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// Limits of the memory for ids. 2^24, less one page, is what 24 bits of an index slot can
// distinguish; at 10,000 ids a second it is a window of 27 minutes.
const (
	windowIDsMax   = 1<<24 - windowPage
	windowPage     = 256    // ids of one page
	windowTables   = 64     // hash tables of one index, so that growing one takes little time
	tableSlotsMin  = 16     // slots of a table
	sweepPerSend   = 2      // expired ids that a send removes for each id it adds
	sweepPerPulse  = 16_384 // expired ids that a pulse removes from one queue
	sweepPerBudget = 64     // removed ids that count as one message of a pulse
	// sweepDelay is how long expired ids stay in memory before a pulse is due for them, and between
	// two such pulses. It only saves pulses: look-ups are exact.
	sweepDelay = fsm.Millis(5 * 1000)
)

// idKey represents a message id: the first 128 bits of its SHA-256. Two ids do not have the same
// key by chance, and finding such ids on purpose takes 2^64 hashes.
type idKey [16]byte

func keyOf(id []byte) idKey {
	sum := sha256.Sum256(id)
	return idKey(sum[:16])
}

// duplicateID is an id and when it was sent: 24 bytes.
type duplicateID struct {
	key idKey
	at  fsm.Instant
}

// duplicateWindow holds the ids of recently sent messages of a queue, oldest first, at positions
// [head, tail). Entries are immutable, so images share the pages. The index is derived from them;
// it takes at most 11 bytes an id, 35 in all.
type duplicateWindow struct {
	generation image.Generation // of the slice pages
	pages      []*[windowPage]duplicateID
	head, tail uint64
	// floor is the earliest time of sending that is still remembered: ids that were forgotten once
	// stay forgotten when the window grows.
	floor fsm.Instant
	swept fsm.Instant // when a pulse last removed ids
	index [windowTables]windowTable
}

// windowTable is an open-addressing hash table with linear probing. A slot holds the low 24 bits of
// a position below 8 bits of the key that are never 0, so that 0 is an empty slot and a look-up
// reads a page only if the id probably matches.
type windowTable struct {
	slots []uint32
	count int
}

const (
	slotBits = 24
	slotMask = 1<<slotBits - 1
)

func (k *idKey) table() int   { return int(k[0]) % windowTables }
func (k *idKey) hash() uint64 { return binary.LittleEndian.Uint64(k[1:9]) }
func (k *idKey) tag() uint32  { return uint32(k[9]|1) << slotBits }

// at returns the entry at a position.
func (w *duplicateWindow) at(pos uint64) *duplicateID {
	return &w.pages[pos/windowPage-w.head/windowPage][pos%windowPage]
}

// position returns the position that a slot refers to.
func (w *duplicateWindow) position(slot uint32) uint64 {
	return w.head + (uint64(slot)-w.head)&slotMask
}

// find returns the slot of a key in its table: where it is, or where it belongs.
func (w *duplicateWindow) find(s *windowTable, key *idKey) (at int, found bool) {
	mask := len(s.slots) - 1
	for i := int(key.hash()) & mask; ; i = (i + 1) & mask {
		slot := s.slots[i]
		if slot == 0 {
			return i, false
		}
		if slot&^slotMask == key.tag() && w.at(w.position(slot)).key == *key {
			return i, true
		}
	}
}

// contains reports whether an id is remembered at a time, exactly.
func (w *duplicateWindow) contains(key *idKey, now fsm.Instant, span fsm.Millis) bool {
	s := &w.index[key.table()]
	if s.count == 0 {
		return false
	}
	i, found := w.find(s, key)
	return found && w.isRemembered(w.at(w.position(s.slots[i])), now, span)
}

func (w *duplicateWindow) isRemembered(x *duplicateID, now fsm.Instant, span fsm.Millis) bool {
	return x.at >= w.floor && x.at.After(span) > now
}

// remember adds an id that is not remembered at this time. An expired entry with the same key is
// left to the sweep; the index refers to the newest.
func (w *duplicateWindow) remember(key *idKey, now fsm.Instant) {
	if w.tail%windowPage == 0 || len(w.pages) == 0 {
		w.pages = append(w.pages, new([windowPage]duplicateID))
	}
	s := &w.index[key.table()]
	if (s.count+1)*4 > len(s.slots)*3 {
		w.resize(s, max(tableSlotsMin, 2*len(s.slots)))
	}
	i, found := w.find(s, key)
	pos := w.tail
	w.tail++
	*w.at(pos) = duplicateID{key: *key, at: now}
	s.slots[i] = key.tag() | uint32(pos&slotMask)
	if !found {
		s.count++
	}
}

func (w *duplicateWindow) resize(s *windowTable, slots int) {
	old := s.slots
	s.slots = make([]uint32, slots)
	mask := slots - 1
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		i := int(w.at(w.position(slot)).key.hash()) & mask
		for s.slots[i] != 0 {
			i = (i + 1) & mask
		}
		s.slots[i] = slot
	}
}

// sweep removes expired ids, oldest first, at most so many.
func (w *duplicateWindow) sweep(now fsm.Instant, span fsm.Millis, most int, current image.Generation) (taken int) {
	for taken < most && w.head < w.tail {
		x := w.at(w.head)
		if w.isRemembered(x, now, span) {
			break
		}
		w.removeFromIndex(&x.key)
		taken++
		w.head++
		if w.head%windowPage == 0 || w.head == w.tail {
			w.dropPage(current)
		}
	}
	return taken
}

// dropPage removes the first page, all of whose entries are removed.
func (w *duplicateWindow) dropPage(current image.Generation) {
	if w.head == w.tail {
		// Positions continue at the start of a page, so that no page is used in part.
		w.pages, w.generation = nil, current
		w.head = (w.head + windowPage - 1) / windowPage * windowPage
		w.tail = w.head
		return
	}
	if w.generation != current {
		w.pages, w.generation = slices.Clone(w.pages), current
	}
	w.pages[0] = nil
	w.pages = w.pages[1:]
}

// removeFromIndex removes the entry at head from the index, unless the index refers to a newer one.
func (w *duplicateWindow) removeFromIndex(key *idKey) {
	s := &w.index[key.table()]
	hole, found := w.find(s, key)
	if !found || w.position(s.slots[hole]) != w.head {
		return
	}
	s.count--
	mask := len(s.slots) - 1
	for i := (hole + 1) & mask; s.slots[i] != 0; i = (i + 1) & mask {
		home := int(w.at(w.position(s.slots[i])).key.hash()) & mask
		if (i-home)&mask >= (i-hole)&mask { // it may move to the hole: its home slot is not after it
			s.slots[hole] = s.slots[i]
			hole = i
		}
	}
	s.slots[hole] = 0
	if len(s.slots) > tableSlotsMin && s.count*8 < len(s.slots) {
		w.resize(s, len(s.slots)/2)
	}
}

// raiseFloor sets the floor above everything that has expired at this time; it runs before the span
// changes.
func (w *duplicateWindow) raiseFloor(now fsm.Instant, span fsm.Millis) {
	w.floor = max(w.floor, now-fsm.Instant(span)+1)
}

// seen reports whether an id is remembered at a time, and remembers it if not.
func (w *duplicateWindow) seen(id []byte, now fsm.Instant, span fsm.Millis) bool {
	key := keyOf(id)
	if w.contains(&key, now, span) {
		return true
	}
	w.remember(&key, now)
	return false
}

// uniqueBytes returns the size of the payloads that are not duplicates; without a window none is. It repeats the work of the
// look-ups, so it is called only if a queue is nearly full.
func (w *duplicateWindow) uniqueBytes(messages []sentMessage, now fsm.Instant, span fsm.Millis) uint64 {
	total := uint64(0)
	batch := make(map[idKey]struct{}, len(messages))
	for i := range messages {
		m := &messages[i]
		if w != nil && len(m.id) > 0 && m.only == 0 {
			key := keyOf(m.id)
			if _, twice := batch[key]; twice || w.contains(&key, now, span) {
				continue
			}
			batch[key] = struct{}{}
		}
		total += uint64(len(m.payload))
	}
	return total
}
