package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
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
// crash finds them unchanged. Without space or a file descriptor for the active segment, compaction ends, and begins again after
// the next snapshot.
func (g *Group) compact(ctx context.Context) {
	if _, ok := g.machine.(bodyMover); !ok {
		return
	}
	for _, s := range g.bodies.Sparse() {
		moved, err := g.bodies.Compact(ctx, s, g.moveRecords)
		if err != nil {
			switch {
			case ctx.Err() != nil:
			case disk.IsShortage(err):
				g.cfg.Logger.WarnContext(ctx, "failed to compact segments, will retry after the next snapshot", "error", err)
			default:
				g.halt(fmt.Errorf("compact: %w", err))
			}
			return
		}
		g.cfg.Logger.DebugContext(ctx, "segment compacted", "segment", s.Number, "moved", moved)
	}
}

// moveRecords moves the live records among those of a segment.
func (g *Group) moveRecords(records []bodystore.Record) (moved int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.bodies.OpenSegment(); err != nil {
		return 0, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("move bodies: %v", r)
		}
	}()
	machine, ok := g.machine.(bodyMover)
	if !ok {
		return 0, errors.New("the machine does not move bodies")
	}
	for _, r := range records {
		if !machine.Holds(r.Owner, r.Ref) {
			continue
		}
		to := g.bodies.Append(r.Owner, r.Body)
		if !machine.Move(r.Owner, r.Ref, to) {
			return moved, fmt.Errorf("message %d of entity %d was not moved", r.Owner.Sequence, r.Owner.Entity)
		}
		g.bodies.Release(r.Ref)
		moved++
	}
	g.snapshotter.total.Add(uint64(moved)) // makes the next snapshot due
	return moved, g.bodies.WriteOut()
}
