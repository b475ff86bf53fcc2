package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// CreateEntity creates a queue or topic in the partition with the fewest entities, or a subscription,
// named by its path, in the partition of its topic. rule is the first rule of a subscription, nil for
// the default. A MaxMessageBytes of 0 means the default, or the limit of the namespace if that is
// less. When it returns, every member can use the entity: one whose catalog is behind asks the
// catalog's leader; its own access rules are in force at this member, and a moment later at the
// others. Errors wrap EntityExists,
// EntityNotFound (no such topic), InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (r NamespaceView) CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	entity, err := r.create(ctx, kind, name, settings, rule, access)
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("create %s %q: %w", kind, name, err)
	}
	return entity, nil
}

func (r NamespaceView) create(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	if err := checkNew(kind, name, rule); err != nil {
		return fsm.Entity{}, err
	}
	namespace, err := r.namespaceLimits(ctx)
	if err != nil {
		return fsm.Entity{}, err
	}
	settings = withMessageSize(&namespace, settings)
	if err := checkLimits(&namespace, kind, settings, fsm.EntitySettings{}); err != nil {
		return fsm.Entity{}, err
	}
	if err := r.checkSettings(ctx, kind, name, settings, fsm.EntitySettings{}); err != nil {
		return fsm.Entity{}, err
	}
	command, err := r.withPlacement(ctx, fsm.CreateEntity{Kind: kind, Name: name, Settings: settings, Rule: rule, Access: access})
	if err != nil {
		return fsm.Entity{}, err
	}
	result, err := r.Command(ctx, fsm.CatalogPartition, command)
	if err != nil {
		return fsm.Entity{}, explainCreate(&namespace, kind, explainLimits(&namespace, kind, settings, err))
	}
	entity, err := r.PutEntity(ctx, result.Entity)
	if len(access) > 0 {
		r.awaitAccess(ctx, result.Entity, 1)
	}
	if errors.Is(err, fsm.QuotaExceeded) {
		err = errors.Join(explainRules(err), r.undoCreate(ctx, result.Entity))
	}
	return entity, err
}

// undoCreate deletes an entity that its partition refuses permanently because the topic of a
// subscription cannot hold its rule. Otherwise the entity would be listed but unusable.
func (r *Router) undoCreate(ctx context.Context, id fsm.EntityID) error {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if err == nil {
		_, err = r.Command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: id})
	}
	if err == nil {
		err = r.dropEntity(ctx, entity)
	}
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return fmt.Errorf("undo the creation of entity %d: %w", id, err)
	}
	return nil
}

// withPlacement adds the partition of a new entity to the command: the partitions with the fewest
// entities, or that of the topic of a subscription, whose spelling the path adopts.
func (r NamespaceView) withPlacement(ctx context.Context, command fsm.CreateEntity) (fsm.CreateEntity, error) {
	var err error
	command.Namespace = r.id
	if command.Kind != fsm.SubscriptionEntity {
		var partitions []fsm.PartitionID
		if partitions, err = r.leastLoaded(ctx); err != nil {
			return command, err
		}
		command.Partition = partitions[0]
		if command.Settings.EnablePartitioning {
			command.Partitions = partitions[:min(len(partitions), fsm.ShardsMax)]
		}
		return command, nil
	}
	of, name, _ := fsm.SplitSubscriptionPath(command.Name)
	topic, err := r.topicByName(ctx, of)
	command.Topic, command.Name = topic.ID, fsm.SubscriptionPath(topic.Name, name)
	return command, err
}

// topicByName finds a topic by name.
func (r NamespaceView) topicByName(ctx context.Context, name string) (fsm.Entity, error) {
	topic, err := r.entityOfKind(ctx, fsm.TopicEntity, name)
	if errors.Is(err, fsm.EntityNotFound) {
		err = fmt.Errorf("%w: topic %q does not exist", fsm.EntityNotFound, name)
	}
	return topic, err
}

// UpdateEntity changes the settings of an entity; existing locks stay as they are. Duplicate
// detection, sessions and partitioning are chosen at creation and cannot change. Errors wrap
// EntityNotFound, also when the name is that of another kind, InvalidArgument, ServerBusy or
// Timeout; after the last two it may be called again.
func (r NamespaceView) UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	entity, err := r.update(ctx, kind, name, settings)
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("update %s %q: %w", kind, name, err)
	}
	return entity, nil
}

func (r NamespaceView) update(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fsm.Entity{}, err
	}
	if err := checkUpdate(kind, entity.Settings, settings); err != nil {
		return fsm.Entity{}, err
	}
	namespace, err := r.namespaceLimits(ctx)
	if err != nil {
		return fsm.Entity{}, err
	}
	settings = withMessageSize(&namespace, settings)
	if err := checkLimits(&namespace, kind, settings, entity.Settings); err != nil {
		return fsm.Entity{}, err
	}
	if err := r.checkSettings(ctx, kind, entity.Name, settings, entity.Settings); err != nil {
		return fsm.Entity{}, err
	}
	if _, err := r.Command(ctx, fsm.CatalogPartition, fsm.UpdateEntity{Entity: entity.ID, Settings: settings}); err != nil {
		return fsm.Entity{}, explainLimits(&namespace, kind, settings, err)
	}
	return r.PutEntity(ctx, entity.ID)
}

// DeleteEntity frees the name, then drops the messages; a topic is deleted with its subscriptions.
// After the first step the cluster completes the rest, also when the caller fails. Errors wrap
// EntityNotFound, ServerBusy or Timeout.
func (r NamespaceView) DeleteEntity(ctx context.Context, kind fsm.EntityKind, name string) error {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fmt.Errorf("delete %s %q: %w", kind, name, err)
	}
	if _, err := r.Command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: entity.ID}); err != nil {
		return fmt.Errorf("delete %s %q: %w", kind, name, err)
	}
	if err := r.dropEntity(ctx, entity); err != nil {
		r.log.InfoContext(ctx, "failed to drop the messages of a deleted entity, will retry", "entity", name, "error", err)
	}
	return nil
}

// entityOfKind finds an entity by name; EntityNotFound when it is of another kind.
func (r NamespaceView) entityOfKind(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
	if err == nil && entity.Kind != kind {
		err = fsm.EntityNotFound
	}
	return entity, err
}

// Entity returns an entity and the counts of its messages. Errors wrap EntityNotFound, ServerBusy or
// Timeout.
func (r NamespaceView) Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	entity, err := r.entityOfKind(ctx, kind, name)
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("%s %q: %w", kind, name, err)
	}
	counts, err := r.Counts(ctx, []fsm.Entity{entity})
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("%s %q: %w", kind, name, err)
	}
	return entity, counts[0], nil
}

// Entities lists entities of a kind by name, regardless of case, from the first after the given
// name, at most max (1000). Subscriptions are listed under the
// path of their topic; under is "" for the other kinds. Errors wrap EntityNotFound (no such
// topic), InvalidArgument, ServerBusy or Timeout.
func (r NamespaceView) Entities(ctx context.Context, kind fsm.EntityKind, under, after string, max int) ([]fsm.Entity, error) {
	q := listQuery{Namespace: r.id, Kind: kind, After: after, Max: max}
	if (kind == fsm.SubscriptionEntity) != (under != "") {
		return nil, fmt.Errorf("list entities: %w: subscriptions, and only they, are listed under the name of a topic", fsm.InvalidArgument)
	}
	if under != "" {
		topic, err := r.topicByName(ctx, under)
		if err != nil {
			return nil, fmt.Errorf("list subscriptions: %w", err)
		}
		q.Topic = topic.ID
		if _, _, isPath := fsm.SplitSubscriptionPath(after); after != "" && !isPath {
			q.After = fsm.SubscriptionPath(topic.Name, after)
		}
	}
	entities, err := listEntities.At(ctx, r.Router, q)
	if err != nil {
		return nil, fmt.Errorf("list entities: %w", err)
	}
	return entities, nil
}

// FindSubscriptions returns the paths of the subscriptions of all topics whose names begin and end with given texts,
// regardless of case, at most listMax. Errors wrap ServerBusy or Timeout.
func (r NamespaceView) FindSubscriptions(ctx context.Context, prefix, suffix string) ([]string, error) {
	paths, err := findSubscriptions.At(ctx, r.Router, subscriptionsQuery{Namespace: r.id, Prefix: prefix, Suffix: suffix})
	if err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	return paths, nil
}

// Counts returns the message counts of entities, in their order. It asks the leader of each partition
// once per 4096 entities, all concurrently. Errors wrap ServerBusy or Timeout.
func (r *Router) Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
	if slices.ContainsFunc(entities, func(e fsm.Entity) bool { return len(e.Shards) > 0 }) {
		return r.countShards(ctx, entities)
	}
	counts := make([]fsm.Counts, len(entities))
	positions := make(map[fsm.PartitionID][]int)
	for i := range entities {
		positions[entities[i].Partition] = append(positions[entities[i].Partition], i)
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for id, all := range positions {
		for some := range slices.Chunk(all, countsMax) {
			asking.Go(func() {
				if err := r.countSome(ctx, id, entities, some, counts); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			})
		}
	}
	asking.Wait()
	if failed != nil {
		return nil, fmt.Errorf("count messages: %w", failed)
	}
	return counts, nil
}

// countSome fills the counts at the given positions, all of one partition.
func (r *Router) countSome(ctx context.Context, id fsm.PartitionID, entities []fsm.Entity, positions []int, counts []fsm.Counts) error {
	q := countsQuery{Partition: id, Entities: make([]fsm.EntityID, len(positions))}
	for i, position := range positions {
		q.Entities[i] = entities[position].ID
	}
	some, err := countsOf.At(ctx, r, q)
	if err != nil {
		return err
	}
	if len(some) != len(positions) {
		return rpc.ErrFrame
	}
	for i, position := range positions {
		counts[position] = some[i]
	}
	return nil
}

// leastLoaded returns the message partitions by their number of entities, the fewest first, equal ones
// by id. Queues that are created at the same time may be placed together.
func (r *Router) leastLoaded(ctx context.Context) ([]fsm.PartitionID, error) {
	if !r.replicas.CatalogLoaded() {
		return nil, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	load, err := loadOfPartition.At(ctx, r, struct{}{})
	if err != nil {
		return nil, err
	}
	if len(load) == 0 {
		return nil, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	partitions := make([]fsm.PartitionID, len(load))
	for i := range load {
		partitions[i] = fsm.PartitionID(i + 1)
	}
	slices.SortStableFunc(partitions, func(a, b fsm.PartitionID) int { return cmp.Compare(load[a-1], load[b-1]) })
	return partitions, nil
}

// PutEntity puts an entity, in its current state at the catalog's leader, in its partitions. If the entity
// is deleted meanwhile, PutEntity drops it there again: otherwise its partition would keep it forever.
func (r *Router) PutEntity(ctx context.Context, id fsm.EntityID) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{ID: id})
	if err != nil {
		return fsm.Entity{}, err
	}
	return r.putParts(ctx, entity, func(at fsm.EntityRef) fsm.EntityRef { return at })
}

// putShard is PutEntity for the one shard of a partitioned entity that has the id.
func (r *Router) putShard(ctx context.Context, id fsm.EntityID) error {
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

func (r *Router) putParts(ctx context.Context, entity fsm.Entity, part func(fsm.EntityRef) fsm.EntityRef) (fsm.Entity, error) {
	if entity.Dropping {
		return fsm.Entity{}, fsm.EntityNotFound
	}
	at := part(fsm.EntityRef{Entity: entity})
	if err := onShards(ctx, at, func(ctx context.Context, at fsm.EntityRef, _ int) error { return r.putInPartition(ctx, at.Entity) }); err != nil {
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
func (r *Router) putInPartition(ctx context.Context, entity fsm.Entity) error {
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
func (r *Router) dropEntity(ctx context.Context, entity fsm.Entity) error {
	if err := r.dropParts(ctx, fsm.EntityRef{Entity: entity}); err != nil {
		return fmt.Errorf("drop messages of %q: %w", entity.Name, err)
	}
	_, err := r.Command(ctx, fsm.CatalogPartition, fsm.ForgetEntity{Entity: entity.ID})
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return fmt.Errorf("forget %q: %w", entity.Name, err)
	}
	return nil
}

func (r *Router) dropParts(ctx context.Context, at fsm.EntityRef) error {
	return onShards(ctx, at, func(ctx context.Context, at fsm.EntityRef, _ int) error {
		_, err := r.Command(ctx, at.Partition, fsm.DropEntity{Entity: at.ID})
		return err
	})
}

// recreate is called when a partition does not know an entity: if the catalog does, its creation was
// interrupted and is completed now. done is called with whether another attempt may succeed. It does
// not block.
func (r *Router) recreate(entity fsm.Entity, done func(recreated bool)) {
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

func (r *Router) recreated(id fsm.EntityID, recreated bool) {
	r.mu.Lock()
	waiters := r.recreating[id]
	delete(r.recreating, id)
	r.mu.Unlock()
	for _, done := range waiters {
		done(recreated)
	}
}

func (r *Router) recreateOne(ctx context.Context, entity fsm.Entity) bool {
	err := r.putShard(ctx, entity.ID)
	if err == nil {
		r.log.InfoContext(ctx, "completed the interrupted creation of an entity", "entity", entity.Name, "partition", entity.Partition)
	} else if !errors.Is(err, fsm.EntityNotFound) {
		r.log.WarnContext(ctx, "failed to complete the interrupted creation of an entity", "entity", entity.Name, "partition", entity.Partition, "error", err)
	}
	return err == nil
}

// DeleteDropped completes interrupted deletions. Only the catalog's leader calls it.
func (r *Router) DeleteDropped(ctx context.Context, group rpc.Group) {
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
func (r *Router) wasIdle(entity *fsm.Entity, margin fsm.Millis) bool {
	s := entity.Settings.WithDefaults()
	if len(entity.Shards) > 0 || s.AutoDeleteOnIdle >= fsm.Forever || s.ForwardTo != "" || s.ForwardDeadLettersTo != "" {
		return false
	}
	return entity.Updated.After(s.AutoDeleteOnIdle+margin) <= fsm.Instant(r.now().UnixMilli())
}

// deleteDroppedAfter is how long the caller of a deletion has to complete it.
const deleteDroppedAfter = fsm.Millis(2000)

// RemoveIdleEntity removes one entity that deleted itself from the catalog.
func (r *Router) RemoveIdleEntity(ctx context.Context, at fsm.PartitionID, id fsm.EntityID) error {
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
