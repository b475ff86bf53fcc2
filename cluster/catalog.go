package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// openRetryInterval is the time between two attempts to open a replica that could not be opened.
const openRetryInterval = 5 * time.Second

// catalogLoop opens this member's replica of the catalog, after it has joined or bootstrapped a cluster if
// necessary, and from then on the replicas that the catalog places on this member.
func (n *Node) catalogLoop(ctx context.Context) {
	initial, err := n.catalogInitialMembers(ctx)
	if err == nil {
		n.openExisting(ctx)
		voters := make([]partition.Voter, len(initial))
		for i, member := range initial {
			voters[i] = partition.Voter{Replica: raftgroup.ReplicaID(member, raftgroup.CatalogReplica), Member: member}
		}
		err = n.openCatalog(ctx, voters)
	}
	if err != nil {
		if ctx.Err() == nil {
			n.failStart(err)
		}
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C: // retries what could not be opened
			timer.Reset(min(openRetryInterval, 10*n.config.Timing.Reconcile))
		case <-n.catalogApplied:
		}
		n.healCatalog(ctx)
		n.followCatalog(ctx)
		n.healReplicas()
	}
}

// catalogInitialMembers returns the members whose replicas are the initial voters of the catalog. It returns
// nil when the catalog is opened as it is on disk, or empty.
func (n *Node) catalogInitialMembers(ctx context.Context) ([]fsm.MemberID, error) {
	if !n.bootstrapper.HasData() {
		return n.bootstrapper.Run(ctx, n.config.Timing.Bootstrap)
	}
	if identity := n.dataDir.Identity(); identity.Bootstrapping {
		return identity.Pledge, nil // the bootstrap was decided, but perhaps not executed
	}
	return nil, nil
}

// followCatalog carries out the current content of the catalog.
func (n *Node) followCatalog(ctx context.Context) {
	group := (*n.groups.Load())[fsm.CatalogPartition]
	if group == nil {
		return
	}
	var cluster string
	var placed []fsm.Partition
	var members []fsm.Member
	var level uint32
	group.View(func(m partition.Machine) {
		cluster, placed, members = raftgroup.Catalog(m).ClusterID(), raftgroup.Catalog(m).Partitions(), raftgroup.Catalog(m).Members()
		level = raftgroup.Catalog(m).FormatLevel()
	})
	if cluster == "" {
		return
	}
	if ours := n.clusterID(); ours != "" && ours != cluster {
		n.failStart(fmt.Errorf("the data belongs to cluster %s and the catalog to %s", ours, cluster))
		return
	}
	if err := n.bootstrapper.RecordCluster(cluster); err != nil {
		n.log.ErrorContext(ctx, "failed to record the cluster in the data folder", "error", err)
	}
	if !n.adoptLevel(ctx, level) {
		return
	}
	n.raisePartitionLevels(ctx)
	n.gossip.SetCluster(cluster)
	known := n.members.Swap(&members)
	// This is last, because a member that is ready must know its cluster, and a member without replicas is
	// ready after this line.
	before := n.partitions.Swap(&placed)
	if before == nil {
		n.log.InfoContext(ctx, "catalog was loaded", "cluster", cluster, "partitions", len(placed))
	}
	if before == nil || !slices.EqualFunc(*before, placed, samePlacement) || !slices.Equal(*known, members) {
		notify.WakeUp(n.reconcileNow)
	}
	n.openAssigned(ctx, placed)
	n.retire(placed)
	if n.memberRecord(n.self).Removed && group.Status().Removed && len(n.retiredReplicas(placed)) == 0 {
		n.markRemoved(ctx)
	}
	n.changed.Notify()
}

// samePlacement reports whether a and b have the same replicas, the same target and the same pause.
func samePlacement(a, b fsm.Partition) bool {
	return a.Paused == b.Paused && slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Target, b.Target) && (a.Target == nil) == (b.Target == nil)
}

// memberRecord returns the record of a member in this member's replica of the catalog.
func (n *Node) memberRecord(id fsm.MemberID) fsm.Member {
	if all := n.members.Load(); all != nil {
		if at := slices.IndexFunc(*all, func(m fsm.Member) bool { return m.ID == id }); at >= 0 {
			return (*all)[at]
		}
	}
	return fsm.Member{ID: id}
}

// openAssigned opens the replicas that the catalog places on this member and that are not open yet. A group
// that has never had a leader is formed with the voters of its record. The replica of a move's target opens
// empty, and its leader fills it.
func (n *Node) openAssigned(ctx context.Context, placed []fsm.Partition) {
	var opening sync.WaitGroup
	defer opening.Wait()
	slots := make(chan struct{}, concurrentOpensMax)
	newest := func() []fsm.Partition { // called at most once
		all, err := n.placementFromLeader(ctx, 0)
		if err != nil {
			n.log.InfoContext(ctx, "could not confirm new replicas with the leader of the catalog, will retry", "error", err)
		}
		return all.Partitions
	}
	var confirmed []fsm.Partition
	for i := range placed {
		part := &placed[i]
		own, ours := placement.FindReplica(part, n.self)
		if !ours || ctx.Err() != nil || !n.mustOpen(ctx, part, own) {
			continue
		}
		if !n.dataDir.HasReplica(part.ID, own.Number) {
			// An outdated record may name a replica that has been removed since. If that replica were created
			// again, empty, it could vote against what it knew before its removal.
			if confirmed == nil {
				confirmed = newest()
			}
			if int(part.ID) > len(confirmed) {
				continue // retried
			}
			if now, still := placement.FindReplica(&confirmed[part.ID-1], n.self); !still || now != own {
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
			if err := n.openReplica(ctx, part.ID, own.Number, voters); err != nil && ctx.Err() == nil {
				n.log.ErrorContext(ctx, "failed to open a replica, will retry", "partition", part.ID, "error", err)
			}
		})
	}
}

// mustOpen reports whether a replica must be opened. A replica that was opened before the catalog was known,
// and that turns out to be empty in a group that was never formed, is closed, so that it can be opened again
// with its voters. While a former replica of the group is open, the new one waits.
func (n *Node) mustOpen(ctx context.Context, part *fsm.Partition, own fsm.Replica) bool {
	group := (*n.groups.Load())[part.ID]
	if group == nil {
		return true
	}
	if part.Formed || len(group.Status().Voters) > 0 || n.replicaNumber(part.ID) != own.Number {
		return false
	}
	n.setGroup(part.ID, 0, nil)
	if err := group.Close(ctx); err != nil {
		n.log.ErrorContext(ctx, "failed to close an empty replica, will retry", "partition", part.ID, "error", err)
		return false
	}
	return true
}

// openExisting opens the replicas whose folders exist, without waiting for the catalog: after a restart of all
// members, the groups then elect their leaders at the same time as the catalog.
func (n *Node) openExisting(ctx context.Context) {
	all, err := n.dataDir.Replicas()
	if err != nil {
		n.log.ErrorContext(ctx, "failed to list the replicas in the data folder", "error", err)
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
				err := n.openReplica(ctx, r.Partition, r.Number, nil)
				if err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrDropped) {
					n.log.ErrorContext(ctx, "failed to open a replica found in the data folder, will retry", "partition", r.Partition, "number", r.Number, "error", err)
				}
			}
		})
	}
	opening.Wait()
}

// openReplica opens one replica and registers it with setGroup.
func (n *Node) openReplica(ctx context.Context, id fsm.PartitionID, number uint32, voters []partition.Voter) error {
	path := n.dataDir.ReplicaPath(id, number)
	if (*n.groups.Load())[id] != nil {
		return fmt.Errorf("open replica %d.%d: another one of the group is open", id, number)
	}
	if err := n.raftLog.FS().MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("create replica folder: %w", err)
	}
	config := partition.Config{
		ID: id, Replica: raftgroup.ReplicaID(n.self, number), Member: n.self, Dir: path,
		Log: n.raftLog, Machine: raftgroup.NewMachine(id), Bootstrap: voters,
		Dial:              n.peers.DialRaft,
		Liveness:          n.processes,
		Now:               n.config.Now,
		Monotonic:         n.config.Monotonic,
		AgreedTime:        n.clocks.AgreedTime,
		IsReluctant:       func() bool { return n.clocks.IsOff(n.self) },
		LeadershipChanged: func(leads bool) { n.leadershipChanged(id, leads) },
		LeaderFound:       func() { n.router.LeaderChanged(id) },
		Effect:            func(e fsm.Effect) { n.handleEffect(id, e) },
		Logger:            n.log, SlowLogger: n.config.Slow, SlowAfter: n.config.SlowAfter,
		Timing:      n.config.Timing.Raft,
		Sizes:       n.config.Sizes,
		MeasureDisk: n.config.Free,
	}
	if id == fsm.CatalogPartition {
		config.Applied = func() { notify.WakeUp(n.catalogApplied) }
	}
	group, err := partition.Open(ctx, config)
	if err != nil {
		if errors.Is(err, partition.ErrLogDamaged) {
			n.noteDamaged(id, number)
		}
		return err
	}
	n.setGroup(id, number, group)
	if id == fsm.CatalogPartition {
		notify.WakeUp(n.catalogApplied) // its state may come from a snapshot, for which Applied is not called
	}
	return nil
}

// setGroup registers an open replica. With a nil group it unregisters the replica of the partition.
func (n *Node) setGroup(id fsm.PartitionID, number uint32, group *partition.Group) {
	n.mu.Lock()
	defer n.mu.Unlock()
	groups := make(map[fsm.PartitionID]*partition.Group)
	for other, g := range *n.groups.Load() {
		groups[other] = g
	}
	if group == nil {
		delete(groups, id)
		delete(n.replicaNumbers, id)
	} else {
		groups[id] = group
		n.replicaNumbers[id] = number
	}
	n.groups.Store(&groups)
	n.changed.Notify()
}

// replicaNumber returns the number of this member's open replica of a partition, 0 when there is none.
func (n *Node) replicaNumber(id fsm.PartitionID) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replicaNumbers[id]
}

// replicaName returns the raft name of this member's open replica of a partition, "" when there is none.
func (n *Node) replicaName(id fsm.PartitionID) string {
	if number := n.replicaNumber(id); number != 0 {
		return raftgroup.ReplicaID(n.self, number)
	}
	return ""
}

// leadershipChanged is called by a group that has gained or lost leadership.
func (n *Node) leadershipChanged(id fsm.PartitionID, leads bool) {
	n.changed.Notify()
	n.router.LeaderChanged(id)
	n.forwarder.LeaderChanged(id, leads)
	if leads {
		notify.WakeUp(n.reconcileNow)
		notify.WakeUp(n.catalogApplied) // the state machine of the group may not have the level of the cluster yet
	}
}
