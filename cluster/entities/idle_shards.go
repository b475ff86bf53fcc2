package entities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// liftTimeout bounds the end of an attempt to delete an entity. Fences that stay are lifted by the leaders of their
// partitions.
const liftTimeout = 2 * time.Second

// DeleteIdleShards deletes the partitioned entity of a shard if all of its shards are idle. The leader of a shard calls it
// when the shard becomes idle, and again from time to time; two calls at once do no harm.
//
//	look at all shards -> fence all that are still idle -> delete the first -> its tombstone has the entity removed
//	                      one is in use, or does not answer: lift the fence of the first, then the others
//
// Whoever lifts the fence of the first shard ends the attempt, so nothing is deleted after another shard was allowed
// to accept messages again, however late a command arrives.
func (r *Manager) DeleteIdleShards(ctx context.Context, id fsm.EntityID) error {
	entity, found := r.KnownEntity(id)
	if !found || len(entity.Shards) == 0 || entity.Dropping {
		return nil
	}
	at := fsm.EntityRef{Entity: entity}
	for shard := range at.Shards { // one after the other: mostly, one of the first is in use
		idle, err := r.isIdle(ctx, shards.Ref(at, shard))
		if err != nil {
			return fmt.Errorf("look whether %q is idle: %w", entity.Name, err)
		}
		if !idle {
			return nil
		}
	}
	first := shards.Ref(at, 0)
	fenced, err := r.Command(ctx, first.Partition, fsm.FenceIdle{Entity: first.ID, Step: fsm.FenceSet})
	if errors.Is(err, fsm.PreconditionFails) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fence %q: %w", entity.Name, err)
	}
	round := fenced.Serial
	err = shards.Each(ctx, at, func(ctx context.Context, at fsm.EntityRef, shard int) error {
		if shard == 0 {
			return nil
		}
		_, err := r.Command(ctx, at.Partition, fsm.FenceIdle{Entity: at.ID, Round: round, Step: fsm.FenceSet})
		return err
	})
	if err == nil {
		_, err = r.Command(ctx, first.Partition, fsm.FenceIdle{Entity: first.ID, Round: round, Step: fsm.FenceDelete})
	}
	if err == nil {
		return nil
	}
	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), liftTimeout)
	defer cancel()
	lifted := r.liftFences(lifting, at, round)
	if errors.Is(err, fsm.PreconditionFails) {
		err = nil // it is in use after all
	}
	return errors.Join(err, lifted)
}

// LiftFences ends an attempt to delete the entity of a shard that has a fence, unless it is deleted already.
func (r *Manager) LiftFences(ctx context.Context, shard fsm.FencedShard) error {
	entity, err := r.lookup(ctx, EntityQuery{ID: shard.Entity})
	if errors.Is(err, fsm.EntityNotFound) || err == nil && entity.Dropping {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the entity of shard %d: %w", shard.Entity, err)
	}
	return r.liftFences(ctx, fsm.EntityRef{Entity: entity}, shard.Round)
}

// liftFences ends a round at the first shard, and then lifts the fences of the others.
func (r *Manager) liftFences(ctx context.Context, at fsm.EntityRef, round uint64) error {
	lift := func(ctx context.Context, at fsm.EntityRef, _ int) error {
		_, err := r.Command(ctx, at.Partition, fsm.FenceIdle{Entity: at.ID, Round: round, Step: fsm.FenceLift})
		return err
	}
	first := shards.Ref(at, 0)
	err := r.withRecreate(ctx, first.ID, func() error { return lift(ctx, first, 0) })
	if errors.Is(err, fsm.EntityNotFound) {
		return nil // it is deleted, and the others are about to be dropped
	}
	if err == nil {
		err = shards.Each(ctx, at, lift)
	}
	if err != nil {
		return fmt.Errorf("lift the fences of %q: %w", at.Name, err)
	}
	return nil
}

// isIdle asks whether a shard is idle.
func (r *Manager) isIdle(ctx context.Context, at fsm.EntityRef) (idle bool, err error) {
	err = r.withRecreate(ctx, at.ID, func() (err error) {
		idle, err = isIdle.At(ctx, r, query.Entity(at))
		return err
	})
	return idle, err
}
