package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

const (
	sparsePercent    = 20      // a closed segment with a smaller live part is rewritten
	compactStepBytes = 1 << 20 // of records moved while apply waits
)

// bodyMover is implemented by machines whose bodies can be moved.
type bodyMover interface {
	// Holds reports whether owner still refers to the body at ref.
	Holds(owner fsm.Owner, ref fsm.Ref) bool
	// Move replaces the reference from by to.
	Move(owner fsm.Owner, from, to fsm.Ref) bool
}

// compact moves the live records of sparse segments to the active one, in small steps between which apply
// continues. The emptied segments are deleted when the next snapshot no longer refers to them; until then a
// crash finds them unchanged.
func (g *Group) compact(ctx context.Context) {
	if _, ok := g.machine.(bodyMover); !ok {
		return
	}
	for _, s := range g.bodies.sparse() {
		if err := g.compactSegment(ctx, s); err != nil {
			if ctx.Err() == nil {
				g.halt(fmt.Errorf("compact: %w", err))
			}
			return
		}
	}
}

// sparse returns the segments worth rewriting, oldest first.
func (b *bodyStore) sparse() []*segment {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*segment
	for _, n := range slices.Sorted(maps.Keys(b.segments)) {
		s := b.segments[n]
		if s.closed && !s.compacted && s.live > 0 && s.liveBytes*100 < s.size*sparsePercent {
			list = append(list, s)
		}
	}
	return list
}

// compactSegment rewrites one segment.
func (g *Group) compactSegment(ctx context.Context, s *segment) error {
	moved := 0
	buf := make([]byte, compactStepBytes)
	for at := int64(segmentHeaderBytes); at < s.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := s.file.ReadAt(buf, at)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil // its last message was settled meanwhile
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("read segment %s at %d: %w", s.path, at, err)
		}
		chunk := buf[:min(int64(n), s.size-at)]
		used, m, err := g.moveRecords(s, at, chunk)
		if err != nil {
			return err
		}
		moved += m
		at += int64(used)
		if used > 0 {
			continue
		}
		// The record is larger than the buffer, or than the file.
		size, err := recordSize(chunk)
		if err != nil || int64(size) > s.size-at {
			return fmt.Errorf("segment %s at %d: %w", s.path, at, disk.ErrDamaged)
		}
		buf = make([]byte, size)
	}
	g.bodies.mu.Lock()
	s.compacted = true
	g.bodies.mu.Unlock()
	g.cfg.Logger.DebugContext(ctx, "segment compacted", "segment", s.number, "moved", moved)
	return nil
}

// moveRecords moves the live records among the complete ones of chunk, which starts at offset at.
func (g *Group) moveRecords(s *segment, at int64, chunk []byte) (used, moved int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("move bodies of segment %s: %v", s.path, r)
		}
	}()
	machine, ok := g.machine.(bodyMover)
	if !ok {
		return 0, 0, errors.New("the machine does not move bodies")
	}
	for len(chunk)-used >= recordHeaderBytes {
		size, err := recordSize(chunk[used:])
		if err != nil || used+size > len(chunk) {
			break
		}
		length := uint32(size - recordHeaderBytes)
		owner, body, err := recordBody(chunk[used:], length)
		if err != nil {
			return used, moved, fmt.Errorf("segment %s at %d: %w", s.path, at+int64(used), err)
		}
		from := fsm.Ref{Segment: s.number, Offset: uint32(at + int64(used)), Size: length}
		if machine.Holds(owner, from) {
			to := g.bodies.Append(owner, body)
			if !machine.Move(owner, from, to) {
				return used, moved, fmt.Errorf("message %d of entity %d was not moved", owner.Sequence, owner.Entity)
			}
			g.bodies.Release(from)
			moved++
		}
		used += size
	}
	g.snapshotter.total.Add(uint64(moved)) // makes the next snapshot due
	return used, moved, g.bodies.flush()
}
