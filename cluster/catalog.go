package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

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
		n.replicas.OpenExisting(ctx)
		voters := make([]partition.Voter, len(initial))
		for i, member := range initial {
			voters[i] = partition.Voter{Replica: raftgroup.ReplicaID(member, raftgroup.CatalogReplica), Member: member}
		}
		err = n.healer.OpenCatalog(ctx, voters)
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
		if err := n.healer.HealCatalog(ctx); err != nil {
			n.failStart(err)
		}
		n.followCatalog(ctx)
		n.healer.Heal()
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
	group := n.replicas.Group(fsm.CatalogPartition)
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
	if !n.levels.Adopt(ctx, level) {
		return
	}
	n.levels.RaisePartitions(ctx)
	n.gossip.SetCluster(cluster)
	known := n.members.Swap(&members)
	// This is last, because a member that is ready must know its cluster, and a member without replicas is
	// ready after this line.
	before := n.partitions.Swap(&placed)
	if before == nil {
		n.log.InfoContext(ctx, "catalog was loaded", "cluster", cluster, "partitions", len(placed))
	}
	if before == nil || !slices.EqualFunc(*before, placed, samePlacement) || !slices.Equal(*known, members) {
		n.reconciler.Wake()
	}
	n.replicas.OpenPlaced(ctx, placed, n.newestPlacement)
	n.retirer.Retire(placed)
	if n.memberRecord(n.self).Removed && group.Status().Removed && len(n.retirer.Retired(placed)) == 0 {
		n.removal.mark(ctx)
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

// newestPlacement returns the partitions as the catalog's leader knows them, nil when no leader answers.
func (n *Node) newestPlacement(ctx context.Context) []fsm.Partition {
	all, err := n.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		n.log.InfoContext(ctx, "could not confirm new replicas with the leader of the catalog, will retry", "error", err)
	}
	return all.Partitions
}
