package router

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// shardPeekMax is how long a peek waits for one shard before it skips it.
const shardPeekMax = 3 * time.Second

// peek reads shard by shard, in the order of the client sequence numbers. It skips a shard that does not answer, unless none
// does. A session is in one shard.
func (s *sharded) peek(ctx context.Context, at fsm.EntityRef, session *string, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	if session != nil {
		return s.peekShard(ctx, at, shards.Hash(&at.Entity, *session), from, most, maxBytes, session)
	}
	var found []fsm.Delivery
	var failed error
	answered := false
	first, inside := shards.Split(from)
	most = max(0, min(most, peekCountMax))
	for shard := first; shard < len(at.Shards) && len(found) < most; shard++ {
		got, full, err := s.peekShardAll(ctx, at, shard, inside, most-len(found), maxBytes, len(found) == 0)
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
func (s *sharded) peekShardAll(ctx context.Context, at fsm.EntityRef, shard int, from fsm.SequenceNumber, most, maxBytes int, giveFirst bool) (found []fsm.Delivery, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shardPeekMax)
	defer cancel()
	for most > 0 {
		got, err := s.peekShard(ctx, at, shard, shards.Bits(shard)|from, most, max(0, maxBytes), nil)
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

// peekShard reads one shard.
func (s *sharded) peekShard(ctx context.Context, at fsm.EntityRef, shard int, from fsm.SequenceNumber, most, maxBytes int, session *string) ([]fsm.Delivery, error) {
	first, inside := shards.Split(from)
	switch {
	case first > shard:
		return nil, nil
	case first < shard:
		inside = 0
	}
	got, err := s.single.peek(ctx, shards.Ref(at, shard), session, inside, most, maxBytes)
	return shards.ToClient(shards.Bits(shard), got), err
}

// sessions lists one shard after the other.
func (s *sharded) sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, most int) (all []fsm.Session, err error) {
	for shard := range at.Shards {
		for seen := 0; len(all) < most; {
			some, err := s.single.sessions(ctx, shards.Ref(at, shard), updatedAfter, seen, sessionsListMax)
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
