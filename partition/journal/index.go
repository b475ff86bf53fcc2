package journal

import (
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/partition/disk"
)

// Range is the range of a group: the first and last index, both 0 when it has no entries.
type Range struct{ First, Last uint64 }

// place is where an entry is: 12 bytes of memory for each entry.
type place struct {
	segment uint32 // 0 for no entry
	offset  uint32 // of the record in the segment
	bytes   uint32 // of the data and the extensions
}

func (p place) recordBytes() int64 { return recordHeadBytes + int64(p.bytes) }

// gapMax is the most entries that may be missing between those of a group while the journal is scanned: copies
// may follow later.
const gapMax = 1 << 24

// groupIndex holds the places of the entries of a group, which have no hole once the journal is open.
type groupIndex struct {
	first   uint64
	places  []place
	damaged error // why entries of the group cannot be read
}

func (g *groupIndex) rangeOf() Range {
	if len(g.places) == 0 {
		return Range{}
	}
	return Range{g.first, g.first + uint64(len(g.places)) - 1}
}

func (g *groupIndex) get(index uint64) place {
	if index < g.first || index-g.first >= uint64(len(g.places)) {
		return place{}
	}
	return g.places[index-g.first]
}

// set records where an entry is and returns where it was.
func (g *groupIndex) set(index uint64, at place) (before place, err error) {
	n := uint64(len(g.places))
	switch {
	case n == 0:
		g.first, g.places = index, append(g.places, at)
	case index < g.first:
		missing := g.first - index
		if missing > gapMax {
			return place{}, fmt.Errorf("entries %d to %d are missing: %w", index+1, g.first-1, disk.ErrDamaged)
		}
		g.places = slices.Insert(g.places, 0, make([]place, missing)...)
		g.first, g.places[0] = index, at
	case index-g.first >= n:
		missing := index - g.first - n
		if missing > gapMax {
			return place{}, fmt.Errorf("entries %d to %d are missing: %w", g.first+n, index-1, disk.ErrDamaged)
		}
		g.places = append(g.places, make([]place, missing+1)...)
		g.places[index-g.first] = at
	default:
		before, g.places[index-g.first] = g.places[index-g.first], at
	}
	return before, nil
}

// delete removes the entries of a range at either end of the group. It returns their places, which are valid until
// the group changes.
func (g *groupIndex) delete(low, high uint64) ([]place, error) {
	held := g.rangeOf()
	if held.Last == 0 || low > held.Last || high < held.First {
		return nil, nil
	}
	low, high = max(low, held.First), min(high, held.Last)
	from, to := low-g.first, high-g.first+1
	removed := g.places[from:to]
	switch {
	case low == held.First && high == held.Last:
		g.first, g.places = 0, nil
	case low == held.First:
		g.first, g.places = high+1, g.places[to:]
	case high == held.Last:
		g.places = g.places[:from]
	default:
		return nil, fmt.Errorf("delete %d to %d of %d to %d: a range inside the log", low, high, held.First, held.Last)
	}
	return removed, nil
}

// firstGap returns the first entry that is missing, 0 for none.
func (g *groupIndex) firstGap() uint64 {
	if at := slices.Index(g.places, place{}); at >= 0 {
		return g.first + uint64(at)
	}
	return 0
}

// placed is an entry in a segment.
type placed struct {
	group uint32
	index uint64
	at    place
}
