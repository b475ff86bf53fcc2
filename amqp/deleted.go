package amqp

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/fsm"
)

// entityWatcher detaches the links of entities that are deleted. A link never reaches another entity that has got the
// name since. Management links stay: their requests find the entity that has the name when they come.
type entityWatcher struct {
	broker      Broker
	connections func() []*conn
}

// watch watches until ctx ends.
func (w *entityWatcher) watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select { // several changes are handled together
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		changed := w.broker.Changes()
		w.detachDeleted(ctx)
		select {
		case <-changed:
			pause.Reset(deletedCheckEvery)
		case <-ctx.Done():
			return
		}
	}
}

// detachDeleted detaches the links of deleted entities.
func (w *entityWatcher) detachDeleted(ctx context.Context) {
	conns := w.connections()
	used := make(map[fsm.EntityID]bool)
	for _, c := range conns {
		c.mu.Lock()
		for _, s := range c.sessions {
			s.addEntities(used)
		}
		c.mu.Unlock()
	}
	deleted := w.broker.Deleted(slices.Collect(maps.Keys(used)))
	if len(deleted) == 0 {
		return
	}
	for _, c := range conns {
		c.mu.Lock()
		for _, s := range c.sessions {
			s.detachFrom(ctx, deleted)
		}
		c.unlock()
	}
}

// addEntities adds the entities to which links of the session are attached, or are being attached. mu is held.
func (s *session) addEntities(used map[fsm.EntityID]bool) {
	for _, e := range s.links {
		if l := e.base(); l.kind == entityNode && l.entity.ID != 0 {
			used[l.entity.ID] = true
		}
	}
}

// detachFrom detaches the links of some entities, which have been deleted. mu is held.
func (s *session) detachFrom(ctx context.Context, deleted []fsm.EntityID) {
	for _, e := range s.links {
		l := e.base()
		if l.kind != entityNode || !slices.Contains(deleted, l.entity.ID) {
			continue
		}
		cause := refusal.ReplyOf(fsm.EntityNotFound).WithEntity(s.conn.urlOf(l.path)).Cause
		if in, ok := e.(*incomingLink); ok {
			in.closeWith(ctx, cause)
		} else {
			l.detach(ctx, e, cause)
		}
	}
}

// closeWith refuses further deliveries on a link, and detaches it when those in flight are answered.
func (l *incomingLink) closeWith(ctx context.Context, cause refusal.Cause) {
	l.closeReason = cause
	l.endClosed(ctx)
}

// endClosed detaches a link that is to be closed and has no delivery in flight.
func (l *incomingLink) endClosed(ctx context.Context) {
	if l.closeReason.Condition != "" && l.credit.unstored == 0 {
		l.detachWithError(ctx, l, l.closeReason.ForReattach())
	}
}
