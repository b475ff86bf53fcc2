package cluster

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	// idleShardsMax bounds the idle shards that wait to be looked at. Each reports itself again.
	idleShardsMax = 1024
	// fenceMax is how long a fence stays that nobody uses: the member that set it has failed, or waits for a partition
	// without a leader.
	fenceMax = 5 * time.Second
)

// idleShardsLoop deletes partitioned entities that are idle, and lifts fences that nobody uses any more, in the
// partitions that this member leads.
func (n *Node) idleShardsLoop(ctx context.Context) {
	ticker := time.NewTicker(n.config.Timing.Reconcile)
	defer ticker.Stop()
	var seen map[fsm.FencedShard]time.Time // when each fence was first seen
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-n.idleShards:
			n.deleteIdleShards(ctx, id)
		case <-ticker.C:
			seen = n.liftOldFences(ctx, seen)
		}
	}
}

func (n *Node) deleteIdleShards(ctx context.Context, id fsm.EntityID) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := n.router.DeleteIdleShards(ctx, id); err != nil {
		n.log.WarnContext(ctx, "failed to delete an idle partitioned entity, will retry", "entity_id", uint64(id), "error", err)
	}
}

// liftOldFences lifts the fences that were first seen fenceMax ago, and returns those that are there now.
func (n *Node) liftOldFences(ctx context.Context, seen map[fsm.FencedShard]time.Time) map[fsm.FencedShard]time.Time {
	now, fences := time.Now(), make(map[fsm.FencedShard]time.Time)
	for _, group := range n.replicas.All() {
		if !group.Status().IsLeader {
			continue
		}
		group.View(func(m partition.Machine) {
			if queues := raftgroup.Queues(m); queues != nil {
				for _, shard := range queues.FencedShards() {
					fences[shard] = now
				}
			}
		})
	}
	for shard := range fences {
		since, known := seen[shard]
		if !known {
			continue
		}
		fences[shard] = since
		if now.Sub(since) < fenceMax || ctx.Err() != nil {
			continue
		}
		lifting, cancel := context.WithTimeout(ctx, stepTimeout)
		if err := n.router.LiftFences(lifting, shard); err != nil {
			n.log.WarnContext(ctx, "failed to lift the fence of an idle shard, will retry", "entity_id", uint64(shard.Entity), "error", err)
		}
		cancel()
	}
	return fences
}
