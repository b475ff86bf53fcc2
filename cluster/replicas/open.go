package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// concurrentOpensMax is how many replicas are opened at the same time.
const concurrentOpensMax = 4

// OpenPlaced opens the replicas that a record of the catalog places on this member and that are not open yet. A group
// that has never had a leader is formed with the voters of its record. The replica of a move's target opens
// empty, and its leader fills it. newest returns the record of the catalog's leader, nil when no leader answers; it is
// called only if a replica is new. Calls must not overlap.
func (s *Set) OpenPlaced(ctx context.Context, placed []fsm.Partition, newest func(context.Context) []fsm.Partition) {
	var opening sync.WaitGroup
	defer opening.Wait()
	slots := make(chan struct{}, concurrentOpensMax)
	var confirmed []fsm.Partition
	for i := range placed {
		part := &placed[i]
		own, ours := placement.FindReplica(part, s.Self)
		if !ours || ctx.Err() != nil || !s.mustOpen(ctx, part, own) {
			continue
		}
		if !s.Dir.HasReplica(part.ID, own.Number) {
			// An outdated record may name a replica that has been removed since. If that replica were created
			// again, empty, it could vote against what it knew before its removal.
			if confirmed == nil {
				confirmed = newest(ctx)
			}
			if int(part.ID) > len(confirmed) {
				continue // retried
			}
			if now, still := placement.FindReplica(&confirmed[part.ID-1], s.Self); !still || now != own {
				continue
			}
			part = &confirmed[part.ID-1]
		}
		var voters []partition.Voter
		if !part.Formed {
			for _, r := range part.Replicas {
				voters = append(voters, partition.Voter{Replica: raftgroup.ReplicaID(r.Member, r.Number), Member: r.Member})
			}
		}
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			if err := s.Open(ctx, part.ID, own.Number, voters); err != nil && ctx.Err() == nil {
				s.Logger.ErrorContext(ctx, "failed to open a replica, will retry", "partition", part.ID, "error", err)
			}
		})
	}
}

// mustOpen reports whether a replica must be opened. A replica that was opened before the catalog was known,
// and that turns out to be empty in a group that was never formed, is closed, so that it can be opened again
// with its voters. While a former replica of the group is open, the new one waits.
func (s *Set) mustOpen(ctx context.Context, part *fsm.Partition, own fsm.Replica) bool {
	group := s.Group(part.ID)
	if group == nil {
		return true
	}
	if part.Formed || len(group.Status().Voters) > 0 || s.Number(part.ID) != own.Number {
		return false
	}
	s.unregister(part.ID)
	if err := group.Close(ctx); err != nil {
		s.Logger.ErrorContext(ctx, "failed to close an empty replica, will retry", "partition", part.ID, "error", err)
		return false
	}
	return true
}

// OpenExisting opens the replicas whose folders exist, without waiting for the catalog: after a restart of all
// members, the groups then elect their leaders at the same time as the catalog.
func (s *Set) OpenExisting(ctx context.Context) {
	all, err := s.Dir.Replicas()
	if err != nil {
		s.Logger.ErrorContext(ctx, "failed to list the replicas in the data folder", "error", err)
		return
	}
	var opening sync.WaitGroup
	slots := make(chan struct{}, concurrentOpensMax)
	for len(all) > 0 {
		same := 1 // replicas of one partition: opened in turn, because a former one may have to be removed first
		for same < len(all) && all[same].Partition == all[0].Partition {
			same++
		}
		some := all[:same]
		all = all[same:]
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			for _, r := range some {
				err := s.Open(ctx, r.Partition, r.Number, nil)
				if err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrDropped) {
					s.Logger.ErrorContext(ctx, "failed to open a replica found in the data folder, will retry", "partition", r.Partition, "number", r.Number, "error", err)
				}
			}
		})
	}
	opening.Wait()
}

// Open opens one replica. voters are those of a group that has never been formed, nil for others.
func (s *Set) Open(ctx context.Context, id fsm.PartitionID, number uint32, voters []partition.Voter) error {
	path := s.Dir.ReplicaPath(id, number)
	if s.Group(id) != nil {
		return fmt.Errorf("open replica %d.%d: another replica of the group is open", id, number)
	}
	if err := s.Log.FS().MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("create replica folder: %w", err)
	}
	config := s.Configure(id)
	config.ID, config.Replica, config.Member, config.Dir = id, raftgroup.ReplicaID(s.Self, number), s.Self, path
	config.Log, config.Machine, config.Bootstrap = s.Log, raftgroup.NewMachine(id), voters
	group, err := partition.Open(ctx, config)
	if err != nil {
		if errors.Is(err, partition.ErrLogDamaged) {
			s.mu.Lock()
			s.damaged[id] = number
			s.mu.Unlock()
		}
		return err
	}
	s.register(id, number, group)
	s.Opened(id)
	return nil
}
