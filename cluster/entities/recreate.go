package entities

import (
	"context"
	"errors"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of Recreate.
const (
	recreatingMax      = 1024 // entities being recreated concurrently
	recreateWaitersMax = 4096 // requests that wait for one of them
)

// Recreate is called when a partition does not know an entity: if the catalog does, its creation was
// interrupted and is completed now. done is called with whether another attempt may succeed. It does
// not block.
func (r *Manager) Recreate(entity fsm.Entity, done func(recreated bool)) {
	r.mu.Lock()
	waiters, running := r.recreating[entity.ID]
	if r.closed || (!running && len(r.recreating) >= recreatingMax) || len(waiters) >= recreateWaitersMax {
		r.mu.Unlock()
		done(false)
		return
	}
	r.recreating[entity.ID] = append(waiters, done)
	r.mu.Unlock()
	if running {
		return
	}
	if !r.transport.Go(func(ctx context.Context) { r.recreated(entity.ID, r.recreateOne(ctx, entity)) }) {
		r.recreated(entity.ID, false)
	}
}

func (r *Manager) recreated(id fsm.EntityID, recreated bool) {
	r.mu.Lock()
	waiters := r.recreating[id]
	delete(r.recreating, id)
	r.mu.Unlock()
	for _, done := range waiters {
		done(recreated)
	}
}

func (r *Manager) recreateOne(ctx context.Context, entity fsm.Entity) bool {
	err := r.putShard(ctx, entity.ID)
	if err == nil {
		r.log.InfoContext(ctx, "completed the interrupted creation of an entity", "entity", entity.Name, "partition", entity.Partition)
	} else if !errors.Is(err, fsm.EntityNotFound) {
		r.log.WarnContext(ctx, "failed to complete the interrupted creation of an entity", "entity", entity.Name, "partition", entity.Partition, "error", err)
	}
	return err == nil
}
