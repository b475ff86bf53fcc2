package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/peeklock/peeklock/partition/disk"
)

const (
	copyBytesMax  = 1 << 20 // copied at once: appends wait for it
	spareSegments = 4       // that the journal may have besides twice the size of its entries
)

// runCleaner frees segments until the journal is closed.
func (j *Journal) runCleaner() {
	for {
		select {
		case <-j.clean:
		case <-j.closing:
			return
		}
		for more := true; more; {
			var err error
			if more, err = j.cleanOldest(); err != nil {
				j.logger.Error("failed to free a segment of the journal", "error", err)
			}
			select {
			case <-j.closing:
				return
			default:
			}
		}
	}
}

// cleanOldest frees the oldest segment if no group needs it. If the journal has become more than twice as large as
// its entries, it copies the entries of the oldest segment first: so one byte is copied for each byte that is
// appended, at most. It reports whether it has freed a segment.
func (j *Journal) cleanOldest() (freed bool, err error) {
	j.mu.RLock()
	oldest, isLast := (*segment)(nil), len(j.segments) < 2
	var live, total int64
	for _, s := range j.segments {
		total += int64(s.size)
		live += s.liveBytes
	}
	needed := 0
	if !isLast {
		oldest = j.segments[0]
		needed = oldest.live
	}
	j.mu.RUnlock()
	switch {
	case isLast || j.hold.Load():
		return false, nil
	case needed == 0:
	case total <= 2*live+spareSegments*int64(j.segmentBytes):
		return false, nil
	case j.isDamagedIn(oldest):
		return false, nil
	default:
		if err := j.copyForward(oldest); errors.Is(err, errDamagedEntry) {
			return false, nil // it waits until the group has given up its entries
		} else if err != nil {
			return false, err
		}
	}
	return j.free(oldest)
}

// free removes the oldest segment, from the catalog first: a file that the catalog does not know is removed by the
// next open.
func (j *Journal) free(oldest *segment) (bool, error) {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if j.failed != nil || oldest.live > 0 {
		return false, nil
	}
	rest := j.segments[1:]
	if err := j.catalog.Set(keySegments, encodeCatalog(rest)); err != nil {
		if !disk.IsRetriableWrite(err) {
			j.failed = fmt.Errorf("journal %s accepts no more writes: %w", j.dir, err)
		}
		return false, err
	}
	j.mu.Lock()
	j.segments = rest
	j.mu.Unlock()
	err := j.files.Remove(j.path(oldest.seg))
	if errors.Is(err, fs.ErrNotExist) { // it was lost
		err = nil
	}
	return true, errors.Join(oldest.close(), err)
}

// copyForward appends the entries of a segment that are needed once more, as copies.
func (j *Journal) copyForward(from *segment) error {
	entries := j.entriesIn(from)
	for len(entries) > 0 {
		n, size := 0, int64(0)
		for n < len(entries) && (n == 0 || size+entries[n].at.recordBytes() <= copyBytesMax) {
			size += entries[n].at.recordBytes()
			n++
		}
		if err := j.copyPiece(from, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// errDamagedEntry ends the copying of a segment: an entry in it is damaged.
var errDamagedEntry = errors.New("an entry is damaged")

// isDamagedIn reports whether a segment has entries of a group that is known to be damaged: such entries are not copied.
func (j *Journal) isDamagedIn(s *segment) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	for _, g := range j.groups {
		if g.damaged != nil && slices.ContainsFunc(g.places, func(at place) bool { return at.segment == s.seg }) {
			return true
		}
	}
	return false
}

// entriesIn returns the entries of a segment that are needed, in the order of the file.
func (j *Journal) entriesIn(s *segment) []placed {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var found []placed
	for _, id := range groupsInOrder(j.groups) {
		g := j.groups[id]
		for i, at := range g.places {
			if at.segment == s.seg {
				found = append(found, placed{id, g.first + uint64(i), at})
			}
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return cmp.Compare(a.at.offset, b.at.offset) })
	return found
}

// copyPiece copies those of the entries that are still needed. The writers wait meanwhile.
func (j *Journal) copyPiece(from *segment, entries []placed) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	batch := beginBatch(nil)
	var copied []placed
	for _, e := range entries {
		j.mu.RLock()
		g := j.groups[e.group]
		needed := g != nil && g.get(e.index) == e.at
		j.mu.RUnlock()
		if !needed {
			continue
		}
		b := make([]byte, e.at.recordBytes())
		if err := from.readAt(b, int64(e.at.offset)); err != nil {
			if !errors.Is(err, disk.ErrDamaged) {
				return j.failCopy(&e, err)
			}
			j.noteDamage(e.group, fmt.Errorf("copy entry %d of group %d from %s: %w", e.index, e.group, j.path(from.seg), err))
			return errDamagedEntry
		}
		r, n := decodeRecord(b)
		if n != len(b) || r.damaged || r.Group != e.group || r.Index != e.index {
			j.noteDamage(e.group, fmt.Errorf("copy entry %d of group %d from %s: %w", e.index, e.group, j.path(from.seg), disk.ErrDamaged))
			return errDamagedEntry
		}
		copied = append(copied, placed{e.group, e.index, place{offset: uint32(len(batch)), bytes: e.at.bytes}})
		batch = appendRecord(batch, kindCopy, &r.Entry)
	}
	if len(copied) == 0 {
		return nil
	}
	s, offset, err := j.write(batch, len(copied))
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range copied {
		c.at.segment, c.at.offset = s.seg, c.at.offset+offset
		if err := j.setPlace(&Entry{Group: c.group, Index: c.index}, c.at); err != nil {
			return err
		}
	}
	return nil
}

// noteDamage records that entries of a group cannot be read. Called with the turn.
func (j *Journal) noteDamage(group uint32, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.groups[group].damaged = err
}

// failCopy ends writing: an entry that is needed cannot be read.
func (j *Journal) failCopy(e *placed, err error) error {
	err = fmt.Errorf("copy entry %d of group %d from %s: %w", e.index, e.group, j.path(e.at.segment), err)
	j.failed = fmt.Errorf("journal %s accepts no more writes: %w", j.dir, err)
	return err
}
