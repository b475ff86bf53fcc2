package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	// idleShardsMax bounds the idle shards that wait to be looked at. Each reports itself again.
	idleShardsMax = 1024
	// FenceMax is how long a fence stays that nobody uses: the member that set it has failed, or waits for a partition
	// without a leader.
	FenceMax = 5 * time.Second
)

// IdleShards deletes partitioned entities that are idle. Its methods may be called concurrently, except Run.
type IdleShards struct {
	IdleShardsConfig

	idle chan fsm.EntityID // of partitions that this member leads
}

// IdleShardsConfig is what IdleShards need.
type IdleShardsConfig struct {
	Router   ShardRouter
	Groups   func() map[fsm.PartitionID]*partition.Group // the open replicas of this member
	Interval time.Duration                               // between two looks for fences
	Logger   *slog.Logger
}

// ShardRouter deletes partitioned entities. A *router.Router implements it.
type ShardRouter interface {
	DeleteIdleShards(ctx context.Context, id fsm.EntityID) error
	LiftFences(ctx context.Context, shard fsm.FencedShard) error
}

// NewIdleShards returns IdleShards. Run runs them.
func NewIdleShards(config *IdleShardsConfig) *IdleShards {
	return &IdleShards{IdleShardsConfig: *config, idle: make(chan fsm.EntityID, idleShardsMax)}
}

// Report has the entity of an idle shard looked at. It does not block; the shard reports itself again.
func (s *IdleShards) Report(id fsm.EntityID) {
	select {
	case s.idle <- id:
	default:
	}
}

// Run deletes partitioned entities that are idle, and lifts fences that nobody uses any more, in the
// partitions that this member leads, until ctx ends.
func (s *IdleShards) Run(ctx context.Context) {
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	var seen map[fsm.FencedShard]time.Time // when each fence was first seen
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-s.idle:
			s.deleteShards(ctx, id)
		case <-ticker.C:
			seen = s.liftOldFences(ctx, seen)
		}
	}
}

func (s *IdleShards) deleteShards(ctx context.Context, id fsm.EntityID) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	// Several members find the same entity idle: what another one has deleted is no failure.
	if err := s.Router.DeleteIdleShards(ctx, id); err != nil && !errors.Is(err, fsm.EntityNotFound) {
		s.Logger.WarnContext(ctx, "failed to delete an idle partitioned entity, will retry", "entity_id", uint64(id), "error", err)
	}
}

// liftOldFences lifts the fences that were first seen FenceMax ago, and returns those that are there now.
func (s *IdleShards) liftOldFences(ctx context.Context, seen map[fsm.FencedShard]time.Time) map[fsm.FencedShard]time.Time {
	now, fences := time.Now(), make(map[fsm.FencedShard]time.Time)
	for _, group := range s.Groups() {
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
		if now.Sub(since) < FenceMax || ctx.Err() != nil {
			continue
		}
		lifting, cancel := context.WithTimeout(ctx, stepTimeout)
		if err := s.Router.LiftFences(lifting, shard); err != nil && !errors.Is(err, fsm.EntityNotFound) {
			s.Logger.WarnContext(ctx, "failed to lift the fence of an idle shard, will retry", "entity_id", uint64(shard.Entity), "error", err)
		}
		cancel()
	}
	return fences
}
