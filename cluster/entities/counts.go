package entities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// Counts returns the message counts of entities, in their order. It asks the leader of each partition
// once per 4096 entities, all concurrently. Errors wrap ServerBusy or Timeout.
func (r *Manager) Counts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
	var parts []fsm.Entity
	for i := range entities {
		for shard := range shards.Count(fsm.EntityRef{Entity: entities[i]}) {
			parts = append(parts, shards.Ref(fsm.EntityRef{Entity: entities[i]}, shard).Entity)
		}
	}
	counts, err := r.countParts(ctx, parts)
	if err != nil {
		return nil, err
	}
	sums := make([]fsm.Counts, len(entities))
	for i := range entities {
		n := shards.Count(fsm.EntityRef{Entity: entities[i]})
		for _, c := range counts[:n] {
			sums[i] = AddCounts(sums[i], c)
		}
		counts = counts[n:]
	}
	return sums, nil
}

// countParts is Counts of entities that are not partitioned, and of shards.
func (r *Manager) countParts(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
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
func (r *Manager) countSome(ctx context.Context, id fsm.PartitionID, entities []fsm.Entity, positions []int, counts []fsm.Counts) error {
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

// AddCounts adds the counts of two shards. Every shard of a topic has the same subscriptions and rules.
func AddCounts(a, b fsm.Counts) fsm.Counts {
	a.Active += b.Active
	a.Locked += b.Locked
	a.Deferred += b.Deferred
	a.Scheduled += b.Scheduled
	a.DeadLetter += b.DeadLetter
	a.Bytes += b.Bytes
	a.Transfer += b.Transfer
	a.TransferDeadLetter += b.TransferDeadLetter
	a.Subscriptions = max(a.Subscriptions, b.Subscriptions)
	a.Sessions += b.Sessions
	a.SQLFilters = max(a.SQLFilters, b.SQLFilters)
	a.CorrelationFilters = max(a.CorrelationFilters, b.CorrelationFilters)
	a.LastUse = max(a.LastUse, b.LastUse)
	return a
}
