package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/peeklock/peeklock/fsm/planted"
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
		if err != nil {
			return err
		}
		j.segments = append(j.segments, s)
	}
	var content []byte
	for i, s := range j.segments {
		content = slices.Grow(content[:0], int(s.size))[:s.size]
		if err := s.readAt(content, 0); err != nil {
			return fmt.Errorf("read segment %s: %w", j.path(s.seg), err)
		}
		x := scan{journal: j, segment: s, content: content, position: s.base, last: -1}
		if i+1 < len(j.segments) {
			x.end, x.hasEnd = j.segments[i+1].base, true
		}
		if err := x.run(); err != nil {
			return fmt.Errorf("scan segment %s: %w", j.path(s.seg), err)
		}
		j.end = x.position
		if !x.hasEnd {
			if err := x.finish(); err != nil {
				return fmt.Errorf("finish segment %s: %w", j.path(s.seg), err)
			}
		}
	}
	j.synced = j.end
	return j.checkGroups()
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
}

// run reads all batches. In the newest segment it ends at the first that was not written whole.
func (x *scan) run() error {
	for !x.hasEnd || x.position < x.end {
		offset := int(x.segment.offsetOf(x.position))
		if offset+sectorBytes > len(x.content) {
			break
		}
		head, ok := x.headAt(offset)
		if !ok || checksum(x.records(&head, offset)) != head.crc {
			ended, err := x.judge(offset, &head, ok)
			if ended || err != nil {
				return err
			}
		}
		if err := x.apply(&head, offset); err != nil {
			return err
		}
		x.last = offset
		x.position += uint64(head.length())
	}
	if x.hasEnd && x.position != x.end {
		return fmt.Errorf("the batches end at %d and the next segment begins at %d: %w", x.position, x.end, disk.ErrDamaged)
	}
	return nil
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

// judge decides what a batch is that cannot be read: below the position up to which the journal was synced it is
// damaged. Behind that it is the end of the journal if any sector of it was never written: a write that was under
// way when the power failed, and was not confirmed. Otherwise it was written whole and may have been confirmed, and is kept. Damaged
// records of a batch with a whole head are left to apply.
func (x *scan) judge(offset int, head *batchHead, isWhole bool) (ended bool, err error) {
	synced := x.hasEnd
	if isWhole && head.synced > x.position {
		synced = true
	}
	for at := offset + sectorBytes; !synced && at < len(x.content); at += sectorBytes {
		if h, ok := x.headAt(at); ok && h.synced > x.position {
			synced = true
		}
	}
	switch {
	case synced && isWhole:
		return false, nil
	case synced:
		return true, fmt.Errorf("the head of the batch at %d: %w", x.position, disk.ErrDamaged)
	case isZero(x.content[offset : offset+sectorBytes]):
		return true, nil
	case isWhole && zeroSectors(x.content[offset+sectorBytes:offset+head.length()]) > head.zeroSectors:
		return true, nil
	case isWhole && x.canRead(head, offset):
		return false, nil
	case x.journal.cutUndecided:
		x.journal.hasCut = true
		return true, nil
	}
	return true, fmt.Errorf("the batch at %d: %w", x.position, ErrUndecided)
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
	j := x.journal
	b, at := x.records(head, offset), offset+batchHeadBytes
	for range head.records {
		r, n := decodeRecord(b)
		if n == 0 {
			return fmt.Errorf("a record of the batch at %d: %w", x.position, disk.ErrDamaged)
		}
		if r.kind == kindDelete {
			if err := j.deletePlaces(r.Group, r.Index, r.Term); err != nil {
				return err
			}
		} else {
			place := place{segment: x.segment.seg, offset: uint32(at), bytes: uint32(n - recordHeadBytes)}
			if err := j.setPlace(&r.Entry, place); err != nil {
				return err
			}
			if r.damaged {
				j.damaged = append(j.damaged, placed{r.Group, r.Index, place})
			}
		}
		b, at = b[n:], at+n
	}
	if len(b) > 0 {
		return fmt.Errorf("the batch at %d has bytes behind its records: %w", x.position, disk.ErrDamaged)
	}
	return nil
}

// finish makes the end of the newest segment durable. The newest batch was found in memory of the operating system,
// perhaps after a sync that failed: it is written again, because a sync alone might do nothing. What is left of a
// batch that was cut is overwritten with zeros, so that it is not mistaken for a part of the next one.
func (x *scan) finish() error {
	if planted.Active(planted.TrustUnsyncedTail) {
		return nil
	}
	file, offset := x.segment.file, int(x.segment.offsetOf(x.position))
	if x.last >= 0 {
		if _, err := file.WriteAt(x.content[x.last:offset], int64(x.last)); err != nil {
			return err
		}
	}
	tail := x.content[offset:]
	for len(tail) > 0 && isZero(tail[len(tail)-sectorBytes:]) {
		tail = tail[:len(tail)-sectorBytes]
	}
	if len(tail) > 0 {
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
