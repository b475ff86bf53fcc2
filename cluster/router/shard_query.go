package router

import (
	"context"
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
