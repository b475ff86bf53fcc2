package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// CreateQueue makes a queue on the partition with the fewest entities. When it returns,
// every member can use the queue: one whose catalog is behind asks the catalog's leader.
// Errors wrap EntityExists, InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (r *Router) CreateQueue(ctx context.Context, name string, settings fsm.QueueSettings) (fsm.Entity, error) {
	id, err := r.leastLoaded(ctx)
	if err != nil {
		return fsm.Entity{}, err
	}
	result, err := r.command(ctx, fsm.CatalogPartition, fsm.CreateEntity{Name: name, Partition: id, Settings: settings})
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("create queue %q: %w", name, err)
	}
	return r.put(ctx, result.Entity)
}

// UpdateQueue changes the settings of a queue; locks that are held stay as they are.
// Whether duplicates are detected is chosen at creation, once. Errors wrap
// EntityNotFound, InvalidArgument, ServerBusy or Timeout; after the last two it may be asked again.
func (r *Router) UpdateQueue(ctx context.Context, name string, settings fsm.QueueSettings) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, lookupQuery{Name: name})
	if err != nil {
		return fsm.Entity{}, fmt.Errorf("update queue %q: %w", name, err)
	}
	if settings.RequiresDuplicateDetection != entity.Settings.RequiresDuplicateDetection {
		return fsm.Entity{}, fmt.Errorf("update queue %q: %w: whether duplicates are detected is chosen when a queue is created and cannot be changed afterwards",
			name, fsm.InvalidArgument)
	}
	if _, err := r.command(ctx, fsm.CatalogPartition, fsm.UpdateEntity{Entity: entity.ID, Settings: settings}); err != nil {
		return fsm.Entity{}, fmt.Errorf("update queue %q: %w", name, err)
	}
	return r.put(ctx, entity.ID)
}

// DeleteQueue frees the name, then drops the messages. Once the first has happened the
// rest follows, if need be without the caller.
func (r *Router) DeleteQueue(ctx context.Context, name string) error {
	entity, err := r.lookup(ctx, lookupQuery{Name: name})
	if err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	if _, err := r.command(ctx, fsm.CatalogPartition, fsm.DeleteEntity{Entity: entity.ID}); err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	if err := r.drop(ctx, entity); err != nil {
		r.log.InfoContext(ctx, "queue is deleted, its messages will be dropped later", "entity", name, "error", err)
	}
	return nil
}

// Queue describes a queue and counts its messages.
func (r *Router) Queue(ctx context.Context, name string) (fsm.Entity, fsm.Counts, error) {
	entity, err := r.lookup(ctx, lookupQuery{Name: name})
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("queue %q: %w", name, err)
	}
	counts, err := r.Counts(ctx, []fsm.Entity{entity})
	if err != nil {
		return fsm.Entity{}, fsm.Counts{}, fmt.Errorf("queue %q: %w", name, err)
	}
	return entity, counts[0], nil
}

// Queues lists by name without regard to case, in order, from the first name after the
// one given, at most max (1000).
func (r *Router) Queues(ctx context.Context, after string, max int) ([]fsm.Entity, error) {
	reply, err := r.askLeader(ctx, fsm.CatalogPartition, queryList, listQuery{After: after, Max: max})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var entities []fsm.Entity
	return entities, reply.decode(&entities)
}

// Counts says what each entity holds, in the order given. The leaders are asked once
// per partition (and 4096 entities), all at the same time.
func (r *Router) Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
	counts := make([]fsm.Counts, len(entities))
	places := make(map[fsm.PartitionID][]int)
	for i := range entities {
		places[entities[i].Partition] = append(places[entities[i].Partition], i)
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for id, all := range places {
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

// countSome fills the counts at the given places, all of one partition.
func (r *Router) countSome(ctx context.Context, id fsm.PartitionID, entities []fsm.Entity, places []int, counts []fsm.Counts) error {
	q := countsQuery{Partition: id, Entities: make([]fsm.EntityID, len(places))}
	for i, place := range places {
		q.Entities[i] = entities[place].ID
	}
	reply, err := r.askLeader(ctx, id, queryCounts, q)
	if err != nil {
		return err
	}
	var some []fsm.Counts
	if err := reply.decode(&some); err != nil {
		return err
	}
	if len(some) != len(places) {
		return errFrame
	}
	for i, place := range places {
		counts[place] = some[i]
	}
	return nil
}

// command submits and waits. An error wraps the Code.
func (r *Router) command(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error) {
	results := make(chan fsm.Result, 1)
	r.line(id).submit(command, func(result fsm.Result) { results <- result })
	select {
	case result := <-results:
		if result.Code != fsm.OK {
			return result, result.Code
		}
		return result, nil
	case <-ctx.Done():
		return fsm.Result{}, fmt.Errorf("%w (%w)", fsm.Timeout, ctx.Err())
	}
}

// leastLoaded is the message partition with the fewest entities, the first of equals.
// Queues made at the same time may end up together.
func (r *Router) leastLoaded(ctx context.Context) (fsm.PartitionID, error) {
	if !r.loaded() {
		return 0, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	reply, err := r.askLeader(ctx, fsm.CatalogPartition, queryLoad, struct{}{})
	if err != nil {
		return 0, err
	}
	var load []int
	if err := reply.decode(&load); err != nil {
		return 0, err
	}
	if len(load) == 0 {
		return 0, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	best := 0
	for i := range load {
		if load[i] < load[best] {
			best = i
		}
	}
	return fsm.PartitionID(best + 1), nil
}

// loaded says whether our replica of the catalog knows the cluster.
func (r *Router) loaded() (loaded bool) {
	if group := r.ways.local(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) { loaded = catalogOf(m).ClusterID() != "" })
	}
	return loaded
}

// put tells the partition about an entity as the catalog's leader knows it now. Should
// the entity be deleted meanwhile, what was put is dropped again: its partition would
// keep it for ever.
func (r *Router) put(ctx context.Context, id fsm.EntityID) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, lookupQuery{ID: id})
	if err == nil && entity.Dropping {
		err = fsm.EntityNotFound
	}
	if err != nil {
		return fsm.Entity{}, err
	}
	put := fsm.PutQueue{Entity: id, Version: entity.Version, Settings: entity.Settings}
	if _, err := r.command(ctx, entity.Partition, put); err != nil {
		return fsm.Entity{}, fmt.Errorf("tell partition %d about %q: %w", entity.Partition, entity.Name, err)
	}
	now, err := r.lookup(ctx, lookupQuery{ID: id})
	if errors.Is(err, fsm.EntityNotFound) || (err == nil && now.Dropping) {
		_, dropErr := r.command(ctx, entity.Partition, fsm.DropQueue{Entity: id})
		return fsm.Entity{}, errors.Join(fsm.EntityNotFound, dropErr)
	}
	return entity, err
}

// drop drops the messages of a deleted entity and then forgets it.
func (r *Router) drop(ctx context.Context, entity fsm.Entity) error {
	if _, err := r.command(ctx, entity.Partition, fsm.DropQueue{Entity: entity.ID}); err != nil {
		return fmt.Errorf("drop messages of %q: %w", entity.Name, err)
	}
	_, err := r.command(ctx, fsm.CatalogPartition, fsm.ForgetEntity{Entity: entity.ID})
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		return fmt.Errorf("forget %q: %w", entity.Name, err)
	}
	return nil
}

// heal is called when a partition does not know an entity: if the catalog does, its
// making was interrupted half way and is finished now. then hears whether asking
// again may help. It does not block.
func (r *Router) heal(entity fsm.Entity, then func(healed bool)) {
	r.mu.Lock()
	waiters, running := r.heals[entity.ID]
	if r.closed || (!running && len(r.heals) >= healsMax) || len(waiters) >= healWaitersMax {
		r.mu.Unlock()
		then(false)
		return
	}
	r.heals[entity.ID] = append(waiters, then)
	r.mu.Unlock()
	if running {
		return
	}
	if !r.ways.work(func(ctx context.Context) { r.healed(entity.ID, r.healOne(ctx, entity)) }) {
		r.healed(entity.ID, false)
	}
}

func (r *Router) healed(id fsm.EntityID, ok bool) {
	r.mu.Lock()
	waiters := r.heals[id]
	delete(r.heals, id)
	r.mu.Unlock()
	for _, then := range waiters {
		then(ok)
	}
}

func (r *Router) healOne(ctx context.Context, entity fsm.Entity) bool {
	_, err := r.put(ctx, entity.ID)
	if err == nil {
		r.log.InfoContext(ctx, "the making of a queue was finished", "entity", entity.Name, "partition", entity.Partition)
	} else if !errors.Is(err, fsm.EntityNotFound) {
		r.log.WarnContext(ctx, "finish the making of a queue", "entity", entity.Name, "partition", entity.Partition, "error", err)
	}
	return err == nil
}

// sweep finishes deletions that were interrupted. Only the catalog's leader does it.
func (r *Router) sweep(ctx context.Context, group replica) {
	var dropping []fsm.Entity
	group.View(func(m partition.Machine) { dropping = catalogOf(m).Dropping() })
	now := fsm.Instant(r.now().UnixMilli())
	for _, entity := range dropping {
		if entity.Updated.After(sweepAfter) > now {
			continue // whoever deletes it is most likely still at it
		}
		if err := r.drop(ctx, entity); err != nil {
			r.log.WarnContext(ctx, "drop a deleted queue", "entity", entity.Name, "error", err)
			return
		}
		r.log.InfoContext(ctx, "the deletion of a queue was finished", "entity", entity.Name)
	}
}

// sweepAfter is how long a deletion is left to its asker.
const sweepAfter = fsm.Millis(2000)
