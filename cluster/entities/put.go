package entities

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// PutEntity puts an entity, in its current state at the catalog's leader, in its partitions. If the entity
// is deleted meanwhile, PutEntity drops it there again: otherwise its partition would keep it forever.
func (r *Manager) PutEntity(ctx context.Context, id fsm.EntityID) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if err != nil {
		return fsm.Entity{}, err
	}
	return r.putParts(ctx, entity, func(at fsm.EntityRef) fsm.EntityRef { return at })
}

// putShard is PutEntity for the one shard of a partitioned entity that has the id.
func (r *Manager) putShard(ctx context.Context, id fsm.EntityID) error {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if err != nil {
		return err
	}
	if r.wasIdle(&entity, -idleMargin) {
		if r.wasIdle(&entity, idleMargin) { // nobody can be about to put it there
			err = r.RemoveIdleEntity(ctx, entity.Partition, entity.ID)
		}
		return errors.Join(fsm.EntityNotFound, err)
	}
	_, err = r.putParts(ctx, entity, func(at fsm.EntityRef) fsm.EntityRef {
		if shard, found := at.ShardOf(id); found {
			return shards.Ref(at, shard)
		}
		return at
	})
	return err
}

func (r *Manager) putParts(ctx context.Context, entity fsm.Entity, part func(fsm.EntityRef) fsm.EntityRef) (fsm.Entity, error) {
	if entity.Dropping {
		return fsm.Entity{}, fsm.EntityNotFound
	}
	at := part(fsm.EntityRef{Entity: entity})
	if err := shards.Each(ctx, at, func(ctx context.Context, at fsm.EntityRef, _ int) error { return r.putInPartition(ctx, at.Entity) }); err != nil {
		return fsm.Entity{}, err
	}
	now, err := r.lookup(ctx, EntityQuery{ID: entity.ID})
	if errors.Is(err, fsm.EntityNotFound) || (err == nil && now.Dropping) {
		return fsm.Entity{}, errors.Join(fsm.EntityNotFound, r.dropParts(ctx, at))
	}
	return entity, err
}

// putInPartition puts an entity, or a shard, in its partition, and first the topic of a
// subscription if that is not known there.
func (r *Manager) putInPartition(ctx context.Context, entity fsm.Entity) error {
	put := fsm.PutEntity{
		Entity: entity.ID, Version: entity.Version, Settings: entity.Settings,
		Kind: entity.Kind, Topic: entity.Topic, Rule: entity.Rule,
	}
	_, err := r.Command(ctx, entity.Partition, put)
	if errors.Is(err, fsm.EntityNotFound) && entity.Kind == fsm.SubscriptionEntity {
		// The creation of its topic was interrupted, too. A topic has no topic, so this does not recurse
		// further.
		if err = r.putShard(ctx, entity.Topic); err == nil {
			_, err = r.Command(ctx, entity.Partition, put)
		}
	}
	if err != nil {
		return fmt.Errorf("put %q in partition %d: %w", entity.Name, entity.Partition, err)
	}
	return nil
}

// dropEntity drops the messages of a deleted entity and then removes it from the catalog. With a topic
// its partition drops the subscriptions, which the catalog has removed already.
func (r *Manager) dropEntity(ctx context.Context, entity fsm.Entity) error {
	if err := r.dropParts(ctx, fsm.EntityRef{Entity: entity}); err != nil {
		return fmt.Errorf("drop messages of %q: %w", entity.Name, err)
	}
	_, err := r.Command(ctx, fsm.CatalogPartition, fsm.ForgetEntity{Entity: entity.ID})
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return fmt.Errorf("forget %q: %w", entity.Name, err)
	}
	return nil
}

func (r *Manager) dropParts(ctx context.Context, at fsm.EntityRef) error {
	return shards.Each(ctx, at, func(ctx context.Context, at fsm.EntityRef, _ int) error {
		_, err := r.Command(ctx, at.Partition, fsm.DropEntity{Entity: at.ID})
		return err
	})
}

// DeleteDropped completes interrupted deletions. Only the catalog's leader calls it.
func (r *Manager) DeleteDropped(ctx context.Context, group rpc.Group) {
	var dropping []fsm.Entity
	group.View(func(m partition.Machine) { dropping = raftgroup.Catalog(m).Dropping() })
	now := fsm.Instant(r.now().UnixMilli())
	for _, entity := range dropping {
		if entity.Updated.After(deleteDroppedAfter) > now {
			continue // the caller that deletes it is most likely still working
		}
		if err := r.dropEntity(ctx, entity); err != nil {
			r.log.WarnContext(ctx, "failed to complete the deletion of an entity, will retry", "entity", entity.Name, "error", err)
			return
		}
		r.log.InfoContext(ctx, "completed the interrupted deletion of an entity", "entity", entity.Name)
	}
}

// idleMargin is more than a request takes, and than clocks differ.
const idleMargin = fsm.Millis(60_000)

// wasIdle reports whether an entity that its partition does not know may have been there and deleted itself: it is as old as
// that takes. It must not be put there again. A Put that is under way while the name is removed from the catalog would arrive
// when the tombstone is gone, and what other clients send then would be confirmed, and dropped with the entity. If its creation was
// interrupted instead, it was idle ever since. Of a partitioned entity the other shards may be in use.
func (r *Manager) wasIdle(entity *fsm.Entity, margin fsm.Millis) bool {
	s := entity.Settings.WithDefaults()
	if len(entity.Shards) > 0 || s.AutoDeleteOnIdle >= fsm.Forever || s.ForwardTo != "" || s.ForwardDeadLettersTo != "" {
		return false
	}
	return entity.Updated.After(s.AutoDeleteOnIdle+margin) <= fsm.Instant(r.now().UnixMilli())
}

// deleteDroppedAfter is how long the caller of a deletion has to complete it.
const deleteDroppedAfter = fsm.Millis(2000)

// RemoveIdleEntity removes one entity that deleted itself from the catalog.
func (r *Manager) RemoveIdleEntity(ctx context.Context, at fsm.PartitionID, id fsm.EntityID) error {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if errors.Is(err, fsm.EntityNotFound) {
		// Removed already, and ids are never reused: only the tombstone is left.
		_, err = r.Command(ctx, at, fsm.DropEntity{Entity: id})
		return err
	}
	if err != nil {
		return err
	}
	if !entity.Dropping {
		_, err = r.Command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: entity.ID})
		if err != nil && !errors.Is(err, fsm.EntityNotFound) { // deleted meanwhile
			return err
		}
	}
	if err := r.dropEntity(ctx, entity); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "deleted an idle entity", "kind", entity.Kind.String(), "entity", entity.Name, "partition", at)
	return nil
}

// withRecreate calls a function, and once more when the partition does not know the entity and the
// catalog does, because its creation was interrupted.
func (r *Manager) withRecreate(ctx context.Context, id fsm.EntityID, ask func() error) error {
	err := ask()
	if errors.Is(err, fsm.EntityNotFound) {
		if err = r.putShard(ctx, id); err == nil {
			err = ask()
		}
	}
	return err
}
