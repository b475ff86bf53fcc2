package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
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
		moved, err := g.bodies.compact(ctx, s, g.moveRecords)
		if err != nil {
			if ctx.Err() == nil {
				g.halt(fmt.Errorf("compact: %w", err))
			}
			return
		}
		g.cfg.Logger.DebugContext(ctx, "segment compacted", "segment", s.number, "moved", moved)
	}
}

// moveRecords moves the live records among those of a segment.
func (g *Group) moveRecords(records []record) (moved int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
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
		if !machine.Holds(r.owner, r.ref) {
			continue
		}
		to := g.bodies.Append(r.owner, r.body)
		if !machine.Move(r.owner, r.ref, to) {
			return moved, fmt.Errorf("message %d of entity %d was not moved", r.owner.Sequence, r.owner.Entity)
		}
		g.bodies.Release(r.ref)
		moved++
	}
	g.snapshotter.total.Add(uint64(moved)) // makes the next snapshot due
	return moved, g.bodies.flush()
}
