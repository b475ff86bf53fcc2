package bodystore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

const (
	sparsePercent    = 20      // a closed segment with a smaller live part is rewritten
	compactStepBytes = 1 << 20 // of records moved while apply waits
)

// Sparse returns the segments worth rewriting, oldest first.
func (b *Store) Sparse() []*Segment {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*Segment
	for _, n := range slices.Sorted(maps.Keys(b.segments)) {
		s := b.segments[n]
		if s.closed && !s.compacted && s.live > 0 && s.liveBytes*100 < s.size*sparsePercent {
			list = append(list, s)
		}
	}
	return list
}

// Record is one record of a segment that is being compacted.
type Record struct {
	Owner fsm.Owner
	Body  []byte // valid during one call of move
	Ref   fsm.Ref
}

// Compact reads a segment in steps of compactStepBytes and calls move with the records of each step, live
// or not. move returns the number of records that it has moved to the active segment.
func (b *Store) Compact(ctx context.Context, s *Segment, move func([]Record) (moved int, err error)) (moved int, err error) {
	var records []Record
	buf := make([]byte, min(compactStepBytes, s.size))
	for at := int64(HeaderBytes); at < s.size; {
		if err := ctx.Err(); err != nil {
			return moved, err
		}
		chunk := buf[:min(int64(len(buf)), s.size-at)]
		switch err := disk.ReadAt(s.file, chunk, at); {
		case errors.Is(err, fs.ErrClosed):
			return moved, nil // its last message was settled meanwhile
		case err != nil:
			return moved, fmt.Errorf("read segment %s: %w", s.path, err)
		}
		var used int
		if records, used, err = s.records(records[:0], at, chunk); err != nil {
			return moved, err
		}
		if used > 0 {
			n, err := move(records)
			moved += n
			if err != nil {
				return moved, fmt.Errorf("segment %s: %w", s.path, err)
			}
			at += int64(used)
			continue
		}
		// The record is larger than the buffer, or than the file.
		size, err := recordSize(chunk)
		if err != nil || int64(size) > s.size-at {
			return moved, fmt.Errorf("segment %s at %d: %w", s.path, at, disk.ErrDamaged)
		}
		buf = make([]byte, size)
	}
	b.mu.Lock()
	s.compacted = true
	b.mu.Unlock()
	return moved, nil
}

// records appends the complete records of chunk, which starts at offset at, and returns their bytes.
func (s *Segment) records(list []Record, at int64, chunk []byte) ([]Record, int, error) {
	used := 0
	for len(chunk)-used >= RecordHeaderBytes {
		size, err := recordSize(chunk[used:])
		if err != nil {
			return nil, 0, err
		}
		if used+size > len(chunk) {
			break
		}
		length := uint32(size - RecordHeaderBytes)
		owner, body, err := recordBody(chunk[used:], length)
		if err != nil {
			return nil, 0, fmt.Errorf("segment %s at %d: %w", s.path, at+int64(used), err)
		}
		ref := fsm.Ref{Segment: s.Number, Offset: uint32(at + int64(used)), Size: length}
		list = append(list, Record{owner, body, ref})
		used += size
	}
	return list, used, nil
}
