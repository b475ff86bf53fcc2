package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// shardPeekMax is how long a peek waits for one shard before it skips it.
const shardPeekMax = 3 * time.Second

// peekShards is Peek for a partitioned entity: shard by shard, in the order of the client sequence
// numbers. It skips a shard that does not answer, unless none does.
func (r *Router) peekShards(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	var found []fsm.Delivery
	var failed error
	answered := false
	first, inside := shards.Split(from)
	most = max(0, min(most, peekCountMax))
	for shard := first; shard < len(at.Shards) && len(found) < most; shard++ {
		got, full, err := r.peekShardAll(ctx, at, shard, inside, most-len(found), maxBytes, len(found) == 0)
		found = append(found, got...)
		if err != nil {
			failed = err
		}
		answered = answered || err == nil
		if full || ctx.Err() != nil {
			break
		}
		for i := range got {
			maxBytes -= len(got[i].Payload) + len(got[i].Patches)
		}
		inside = 0
	}
	if !answered && len(found) == 0 && failed != nil {
		return nil, failed
	}
	return found, nil
}

// peekShardAll reads one shard to its end, or until a limit is reached (full). With giveFirst the
// first message is returned whatever its size.
func (r *Router) peekShardAll(ctx context.Context, at fsm.EntityRef, shard int, from fsm.SequenceNumber, most, maxBytes int, giveFirst bool) (found []fsm.Delivery, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shardPeekMax)
	defer cancel()
	for most > 0 {
		got, err := r.peekShard(ctx, at, shard, shards.Bits(shard)|from, most, max(0, maxBytes), nil)
		if err != nil || len(got) == 0 {
			return found, false, err
		}
		for i := range got {
			size := len(got[i].Payload) + len(got[i].Patches)
			if size > maxBytes && !giveFirst {
				return found, true, nil
			}
			giveFirst = false
			maxBytes -= size
			found = append(found, got[i])
		}
		most -= len(got)
		_, from = shards.Split(got[len(got)-1].Lock.Sequence)
		from++
	}
	return found, true, nil
}

// peekShard is Peek, or PeekSession, for one shard.
func (r *Router) peekShard(ctx context.Context, at fsm.EntityRef, shard int, from fsm.SequenceNumber, most, maxBytes int, session *string) ([]fsm.Delivery, error) {
	first, inside := shards.Split(from)
	switch {
	case first > shard:
		return nil, nil
	case first < shard:
		inside = 0
	}
	part := shards.Ref(at, shard)
	got, err := r.peek(ctx, part, peekQuery{
		Partition: part.Partition, Address: part.Address(), From: inside, Max: most, MaxBytes: maxBytes, Session: session,
	})
	return shards.ToClient(shards.Bits(shard), got), err
}

// shardSessions is Sessions for a partitioned entity, one shard after the other.
func (r *Router) shardSessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, most int) (all []fsm.Session, err error) {
	for shard := range at.Shards {
		for seen := 0; len(all) < most; {
			some, err := r.Sessions(ctx, shards.Ref(at, shard), updatedAfter, seen, sessionsListMax)
			if err != nil {
				return nil, err
			}
			seen += len(some)
			passed := min(skip, len(some))
			skip -= passed
			all = append(all, some[passed:]...)
			if len(some) < sessionsListMax {
				break
			}
		}
	}
	return all[:min(len(all), max(0, most))], nil
}

// redriveShards is redrive for a partitioned entity. It returns the count of the shards that
// answered, also with an error.
func (r *Router) redriveShards(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
	groups := positionsByShard(at, len(sequences), func(i int) fsm.SequenceNumber { return sequences[i] })
	var mu sync.Mutex
	total := 0
	err := onShards(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		positions := groups[shard]
		if len(positions) == 0 {
			return nil
		}
		n, err := r.redrive(ctx, part, toShardSequences(sequences, positions))
		mu.Lock()
		total += n
		mu.Unlock()
		return err
	})
	return total, err
}

// changeShardRules changes the rules of every shard of a subscription. Shards may differ after an
// interrupted change: a shard that refuses because it has the change already is not an error if
// another shard needed the change; repair then makes the shards that refused equal.
func (r *Router) changeShardRules(ctx context.Context, at fsm.EntityRef, refusal fsm.Code, change, repair func(fsm.EntityID) fsm.Command) error {
	refusals := make([]bool, len(at.Shards))
	err := onShards(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		err := r.changeRules(ctx, part.Entity, change(part.ID))
		if errors.Is(err, refusal) {
			refusals[shard] = true
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	left := 0
	for _, refused := range refusals {
		if refused {
			left++
		}
	}
	switch {
	case left == len(refusals):
		return refusal
	case left == 0 || repair == nil:
		return nil
	}
	return onShards(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		if !refusals[shard] {
			return nil
		}
		return r.changeRules(ctx, part.Entity, repair(part.ID))
	})
}

// countShards is Counts when some of the entities are partitioned: it counts each shard and adds up
// those of one entity.
func (r *Router) countShards(ctx context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
	var parts []fsm.Entity
	for i := range entities {
		at := fsm.EntityRef{Entity: entities[i]}
		if len(at.Shards) == 0 {
			parts = append(parts, at.Entity)
		}
		for shard := range at.Shards {
			parts = append(parts, shards.Ref(at, shard).Entity)
		}
	}
	counts, err := r.Counts(ctx, parts)
	if err != nil {
		return nil, err
	}
	sums := make([]fsm.Counts, len(entities))
	for i := range entities {
		n := max(1, len(entities[i].Shards))
		for _, c := range counts[:n] {
			sums[i] = AddCounts(sums[i], c)
		}
		counts = counts[n:]
	}
	return sums, nil
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
