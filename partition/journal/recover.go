package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/peeklock/peeklock/partition/disk"
)

// recover builds the index from the segments of the catalog.
func (j *Journal) recover() error {
	value, err := j.catalog.Get(keySegments)
	if err != nil {
		return err
	}
	heads, err := decodeCatalog(j.id, value)
	if err != nil {
		return err
	}
	if err := j.removeUnknown(heads); err != nil {
		return err
	}
	for _, head := range heads {
		s, err := j.openSegment(head)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrDamaged) {
			j.lose(fmt.Errorf("segment %s was lost: %w (%w)", j.path(head.seg), err, disk.ErrDamaged))
			s, err = &segment{segmentHead: head}, nil
		}
		if err != nil {
			return err
		}
		j.segments = append(j.segments, s)
	}
	var content []byte
	for i, s := range j.segments {
		x := scan{journal: j, segment: s, position: s.base, last: -1}
		if i+1 < len(j.segments) {
			x.end, x.hasEnd = j.segments[i+1].base, true
		}
		if s.file == nil {
			j.forgotten = make(map[uint32]bool) // what was forgotten before may be here again
			j.end, j.partial, j.marked = s.base+s.capacity(), true, true
			continue
		}
		content = slices.Grow(content[:0], int(s.size))[:s.size]
		x.content = content
		if bad := disk.ReadPages(s.file, content, 0); bad != nil { // the checksums tell which entries are damaged
			j.logger.Error("failed to read a part of the journal: check the disk", "segment", j.path(s.seg), "error", bad)
		}
		if err := x.run(); err != nil {
			return fmt.Errorf("scan segment %s: %w", j.path(s.seg), err)
		}
		j.end = x.position + uint64(x.undecided)
		j.partial, j.marked = x.undecided > 0, x.undecided > 0
		if !x.hasEnd {
			if err := x.finish(); err != nil {
				return fmt.Errorf("finish segment %s: %w", j.path(s.seg), err)
			}
		}
	}
	j.synced = j.end
	return j.checkGroups()
}

// lose notes that a part of the journal cannot be read: groups have entries there, nobody knows which. None of them opens until it
// is forgotten.
func (j *Journal) lose(err error) {
	j.logger.Error("failed to read a part of the journal", "path", j.dir, "error", err)
	j.lost, j.forgotten = err, make(map[uint32]bool)
	j.hold.Store(true)
}

// removeUnknown removes segments that are not in the catalog: their creation was interrupted, or they were freed.
func (j *Journal) removeUnknown(known []segmentHead) error {
	names, err := j.listSegments()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(known, func(h segmentHead) bool { return segmentName(h.seg) == name }) {
			if err := j.files.Remove(filepath.Join(j.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGroups checks that no group has a hole, and notes which have entries that cannot be read.
func (j *Journal) checkGroups() error {
	for _, e := range j.damaged {
		if g := j.groups[e.group]; g != nil && g.get(e.index) == e.at {
			g.damaged = fmt.Errorf("entry %d of group %d in %s: %w", e.index, e.group, j.path(e.at.segment), disk.ErrDamaged)
		}
	}
	j.damaged = nil
	for _, id := range groupsInOrder(j.groups) {
		if j.isLost(id) {
			continue
		}
		if index := j.groups[id].firstGap(); index != 0 {
			return fmt.Errorf("entry %d of group %d is missing: %w", index, id, disk.ErrDamaged)
		}
	}
	return nil
}

// scan reads the batches of one segment into the index.
type scan struct {
	journal  *Journal
	segment  *segment
	content  []byte // of the segment
	position uint64 // of the next batch
	end      uint64 // where the batches end, if hasEnd: the next segment begins there
	hasEnd   bool
	last     int // offset of the newest batch, -1 for none

	undecided int // bytes behind position that are kept, see keepUndecided
}

// run reads all batches. In the newest segment it ends at the first that was not written whole. It goes on behind a batch
// that cannot be read although it was synced.
func (x *scan) run() error {
	for !x.hasEnd || x.position < x.end {
		offset := int(x.segment.offsetOf(x.position))
		if offset+sectorBytes > len(x.content) {
			break
		}
		head, ok := x.headAt(offset)
		if !ok || checksum(x.records(&head, offset)) != head.crc {
			switch x.judge(offset, &head, ok) {
			case batchTorn:
				return nil
			case batchUndecided:
				x.keepUndecided(offset)
				return nil
			case batchLost:
				x.journal.lose(fmt.Errorf("the batch at %d of segment %s: %w", x.position, x.journal.path(x.segment.seg), disk.ErrDamaged))
				if !x.skip(offset) {
					return nil
				}
				continue
			case batchReadable:
			}
		}
		if err := x.apply(&head, offset); err != nil {
			return err
		}
		x.last = offset
		x.position += uint64(head.length())
	}
	if x.hasEnd && x.position != x.end {
		x.journal.lose(fmt.Errorf("the batches of segment %s end at %d and the next segment begins at %d: %w", x.journal.path(x.segment.seg), x.position, x.end, disk.ErrDamaged))
		x.position = x.end
	}
	return nil
}

// skip goes on at the next batch with a whole head. It returns false if there is none.
func (x *scan) skip(offset int) bool {
	for at := offset + sectorBytes; at+sectorBytes <= len(x.content); at += sectorBytes {
		if h, ok := x.headAt(at); ok && (!x.hasEnd || h.position < x.end) {
			x.position = h.position
			return true
		}
	}
	if x.hasEnd {
		x.position = x.end
	}
	return false
}

// keepUndecided leaves a batch as it is that may have been confirmed: the next one begins a new segment.
func (x *scan) keepUndecided(offset int) {
	x.journal.lose(fmt.Errorf("the batch at %d of segment %s: %w", x.position, x.journal.path(x.segment.seg), ErrUndecided))
	x.undecided = len(x.tail(offset))
}

// headAt returns the head of the batch at an offset, if there is one that was written there.
func (x *scan) headAt(offset int) (batchHead, bool) {
	h, ok := decodeBatchHead(x.content[offset : offset+batchHeadBytes])
	ok = ok && h.id == x.segment.id && x.segment.offsetOf(h.position) == int64(offset) && h.length() <= len(x.content)-offset
	return h, ok
}

func (x *scan) records(h *batchHead, offset int) []byte {
	return x.content[offset+batchHeadBytes : offset+batchHeadBytes+int(h.bytes)]
}

// batchState is what a batch is that is not as it was written.
type batchState uint8

const (
	batchTorn      batchState = iota // the end of the journal
	batchUndecided                   // written whole, and may have been confirmed
	batchLost                        // confirmed, and it is not known what it held
	batchReadable                    // the heads of its records are whole
)

// judge decides what a batch is that cannot be read: below the position up to which the journal was synced it is
// damaged. Behind that it is the end of the journal if any sector of it was never written: a write that was under
// way when the power failed, and was not confirmed. Otherwise it was written whole and may have been confirmed, and is kept.
func (x *scan) judge(offset int, head *batchHead, isWhole bool) batchState {
	synced := x.hasEnd
	if isWhole && head.synced > x.position {
		synced = true
	}
	for at := offset + sectorBytes; !synced && at < len(x.content); at += sectorBytes {
		if h, ok := x.headAt(at); ok && h.synced > x.position {
			synced = true
		}
	}
	readable := isWhole && x.canRead(head, offset)
	switch {
	case synced && readable:
		return batchReadable
	case synced:
		return batchLost
	case isZero(x.content[offset : offset+sectorBytes]):
		return batchTorn
	case isWhole && zeroSectors(x.content[offset+sectorBytes:offset+head.length()]) > head.zeroSectors:
		return batchTorn
	case readable:
		return batchReadable
	case x.journal.cutUndecided:
		x.journal.hasCut = true
		return batchTorn
	}
	return batchUndecided
}

// canRead reports whether the heads of all records of a batch are whole: they tell which groups have damaged entries.
func (x *scan) canRead(head *batchHead, offset int) bool {
	b := x.records(head, offset)
	for range head.records {
		_, n := decodeRecord(b)
		if n == 0 {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

// apply reads the records of a batch into the index. Damaged entries are noted.
func (x *scan) apply(head *batchHead, offset int) error {
	b, at := x.records(head, offset), offset+batchHeadBytes
	for range head.records {
		r, n := decodeRecord(b)
		if n == 0 {
			return fmt.Errorf("a record of the batch at %d: %w", x.position, disk.ErrDamaged)
		}
		place := place{segment: x.segment.seg, offset: uint32(at), bytes: uint32(n - recordHeadBytes)}
		if err := x.applyRecord(&r, place); err != nil {
			return err
		}
		b, at = b[n:], at+n
	}
	if len(b) > 0 {
		return fmt.Errorf("the batch at %d has bytes behind its records: %w", x.position, disk.ErrDamaged)
	}
	return nil
}

// applyRecord reads one record into the index. Records of a group that has lost others may not go together.
func (x *scan) applyRecord(r *record, at place) (err error) {
	j := x.journal
	switch r.kind {
	case kindForget:
		j.dropPlaces(r.Group)
		j.forgotten[r.Group] = true
		return nil
	case kindDelete:
		if err = j.deletePlaces(r.Group, r.Index, r.Term); err != nil && j.isLost(r.Group) {
			j.dropPlaces(r.Group)
			err = nil
		}
		return err
	}
	if err = j.setPlace(&r.Entry, at); err != nil && j.isLost(r.Group) {
		j.dropPlaces(r.Group)
		err = j.setPlace(&r.Entry, at)
	}
	if r.damaged {
		j.damaged = append(j.damaged, placed{r.Group, r.Index, at})
	}
	return err
}

// tail returns what is written behind an offset, up to the last sector that is not zero.
func (x *scan) tail(offset int) []byte {
	tail := x.content[offset:]
	for len(tail) > 0 && isZero(tail[len(tail)-sectorBytes:]) {
		tail = tail[:len(tail)-sectorBytes]
	}
	return tail
}

// finish makes the end of the newest segment durable. The newest batch was found in memory of the operating system,
// perhaps after a sync that failed: it is written again, because a sync alone might do nothing. What is left of a
// batch that was cut is overwritten with zeros, so that it is not mistaken for a part of the next one.
func (x *scan) finish() error {
	file, offset := x.segment.file, int(x.segment.offsetOf(x.position))
	if x.last >= 0 {
		if _, err := file.WriteAt(x.content[x.last:offset], int64(x.last)); err != nil {
			return err
		}
	}
	if tail := x.tail(offset); len(tail) > 0 && x.undecided == 0 {
		if _, err := file.WriteAt(make([]byte, len(tail)), int64(offset)); err != nil {
			return err
		}
		x.journal.logger.Info("journal cut a batch that was not confirmed", "segment", x.journal.path(x.segment.seg), "position", x.position, "bytes", len(tail))
	}
	if err := file.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync %s", x.journal.path(x.segment.seg)), err)
	}
	return nil
}
