package bodystore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// referrer is the part of a machine that knows which bodies it refers to.
type referrer interface {
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
}

// Pin keeps all segments until unpin. Pins are released in the order in which they were issued.
func (b *Store) Pin() {
	b.mu.Lock()
	b.pinsIssued++
	b.mu.Unlock()
}

// Unpin ends a pin.
func (b *Store) Unpin() {
	b.mu.Lock()
	b.pinsReleased++
	if len(b.deleting) > 0 {
		b.deleteCollected()
	}
	b.mu.Unlock()
}

// Freeze lists and retains the segments that the current state refers to. ReleaseSegments ends that.
func (b *Store) Freeze() ([]SegmentSize, error) {
	if err := b.flushAll(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != nil && b.active.live == 0 && b.active.size > HeaderBytes {
		// It has no live records: close it, so that its space is freed with the snapshot.
		b.active.closed = true
		b.active = nil
	}
	var list []SegmentSize
	for _, n := range slices.Sorted(maps.Keys(b.segments)) {
		if s := b.segments[n]; s.live > 0 {
			s.retained++
			list = append(list, SegmentSize{n, s.size})
		}
	}
	return list, nil
}

// Retain retains segments once more that are retained already.
func (b *Store) Retain(list []SegmentSize) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range list {
		if seg := b.segments[s.Number]; seg != nil {
			seg.retained++
		}
	}
}

// ReleaseSegments ends a freeze or a retain.
func (b *Store) ReleaseSegments(list []SegmentSize) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for _, s := range list {
		if seg := b.segments[s.Number]; seg != nil {
			seg.retained--
		}
	}
	b.collectDead()
}

// Sync makes the listed segments, up to their listed sizes, and their names durable.
func (b *Store) Sync(list []SegmentSize) error {
	for _, l := range list {
		b.mu.Lock()
		s := b.segments[l.Number]
		done := s == nil || s.synced >= l.Size
		b.mu.Unlock()
		if s == nil {
			return fmt.Errorf("sync segment %d: %w", l.Number, errSegmentDeleted)
		}
		if done {
			continue
		}
		if err := s.file.Sync(); err != nil {
			return fmt.Errorf("sync segment %s: %w", s.path, err)
		}
		b.mu.Lock()
		s.synced = max(s.synced, l.Size)
		b.mu.Unlock()
	}
	return b.syncNames()
}

// syncNames makes the names of all files durable that exist when it is called. A sync of the folder counts only when
// it has ended, because another caller may rely on it.
func (b *Store) syncNames() error {
	b.mu.Lock()
	created := b.created
	done := b.named == created
	b.mu.Unlock()
	if done {
		return nil
	}
	if err := b.files.SyncFolder(b.dir); err != nil {
		return err
	}
	b.mu.Lock()
	b.named = max(b.named, created)
	b.mu.Unlock()
	return nil
}

// Recount counts the live records again from the machine, after it was restored. Segments without live
// records are deleted as soon as no snapshot refers to them.
func (b *Store) Recount(machine referrer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newLive, b.newBytes = 0, 0
	for _, s := range b.segments {
		s.live, s.liveBytes = 0, 0
		if s != b.active {
			s.compacted = false
		}
	}
	var bad error
	machine.Refs(func(owner fsm.Owner, ref fsm.Ref) fsm.Ref {
		if ref.Segment == 0 {
			return ref
		}
		s := b.segments[ref.Segment]
		if s == nil || int64(ref.Offset)+RecordBytes(ref) > s.size {
			bad = fmt.Errorf("message %d of entity %d refers to segment %d at %d: %w",
				owner.Sequence, owner.Entity, ref.Segment, ref.Offset, disk.ErrDamaged)
			return ref
		}
		s.live++
		s.liveBytes += RecordBytes(ref)
		return ref
	})
	if bad != nil {
		return bad
	}
	b.collectDead()
	return nil
}
