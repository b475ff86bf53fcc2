package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	retireQueryTimeout = 5 * time.Second  // for the query whether a replica was removed
	retireTimeout      = 30 * time.Second // for a removed member to remove its replicas
)

// retire closes the replicas of this member that are retired and removes their files, in a task of its own.
// Only one such task runs at a time. It is repeated until no retired replica is left.
func (n *Node) retire(placed []fsm.Partition) {
	if len(n.retiredReplicas(placed)) == 0 {
		return
	}
	n.mu.Lock()
	running := n.retiring
	n.retiring = true
	n.mu.Unlock()
	if running {
		return
	}
	ended := func() {
		n.mu.Lock()
		n.retiring = false
		n.mu.Unlock()
	}
	if !n.startTask(func(ctx context.Context) {
		defer ended()
		n.retireAll(ctx, placed)
	}) {
		ended()
	}
}

func (n *Node) retireAll(ctx context.Context, placed []fsm.Partition) {
	for _, r := range n.retiredReplicas(placed) {
		if ctx.Err() != nil {
			return
		}
		if err := n.retireOne(ctx, r.Partition, r.Number); err != nil {
			n.log.DebugContext(ctx, "could not remove a retired replica, will retry", "partition", r.Partition, "number", r.Number, "error", err)
		}
	}
}

// retiredReplicas lists the replicas of this member that the record of their partition shows as removed. If the
// record does not contain the partition yet, or has not assigned the number yet, the record is outdated: after
// a restart, this member's replica of the catalog begins where its snapshot ends.
func (n *Node) retiredReplicas(placed []fsm.Partition) (out []datadir.Replica) {
	all, err := n.dataDir.Replicas()
	if err != nil {
		n.log.Error("failed to list replicas to retire", "error", err)
		return nil
	}
	for _, r := range all {
		if int64(r.Partition) <= int64(len(placed)) && isRetired(&placed[r.Partition-1], fsm.Replica{Member: n.self, Number: r.Number}) {
			out = append(out, r)
		}
	}
	return out
}

// retireOne removes one replica, once its group has removed it. Package partition marks the folder before it
// removes the first file, so that the next start completes a removal that a crash has interrupted.
func (n *Node) retireOne(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, open := n.replicas.Group(id), n.replicas.Number(id) == number
	if !open || group == nil || !group.Status().Removed {
		if err := n.askReplicaRemoved(ctx, id, number); err != nil {
			return err
		}
	}
	// A removal that has begun is completed even if this member closes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	path := n.dataDir.ReplicaPath(id, number)
	var err error
	if open && group != nil {
		n.replicas.Unregister(id)
		n.forwarder.LeaderChanged(id, false)
		err = group.Destroy(ctx)
	} else {
		err = partition.Drop(n.raftLog, id, raftgroup.ReplicaID(n.self, number), path)
	}
	if err != nil {
		return err
	}
	n.log.InfoContext(ctx, "retired replica was removed", "partition", id, "number", number)
	notify.WakeUp(n.catalogApplied) // another replica of the group may wait until this one is closed
	return nil
}

// askReplicaRemoved asks the leader of the group whether the replica was removed: a replica that was away at
// that time does not know it.
func (n *Node) askReplicaRemoved(ctx context.Context, id fsm.PartitionID, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, retireQueryTimeout)
	defer cancel()
	_, err := replicaRemoved.Ask(ctx, n.router.Leader(id), replicaRemovedQuery{Partition: id, Replica: fsm.Replica{Member: n.self, Number: number}})
	return err
}

// Removed returns a channel that is closed when this member learns that it was removed from its cluster. The
// process should then call Close and exit. From then on Ready returns datadir.ErrRemoved.
func (n *Node) Removed() <-chan struct{} { return n.removed }

// markRemoved is called when the catalog, or another member that has the catalog, reports that this member was
// removed.
func (n *Node) markRemoved(ctx context.Context) {
	n.mu.Lock()
	first := !n.isRemoved
	n.isRemoved = true
	n.mu.Unlock()
	if !first {
		return
	}
	err := n.dataDir.Update(func(id *datadir.Identity) { id.Removed = true })
	if err != nil {
		n.log.ErrorContext(ctx, "failed to record that this member was removed", "error", err)
	}
	n.log.ErrorContext(ctx, "this member was removed from the cluster and stopped taking part in it")
	n.mu.Lock()
	n.startError = datadir.ErrRemoved
	n.mu.Unlock()
	n.changed.Notify()
	close(n.removed)
}

// hello answers sayHello, the query for the identity and state of this member.
func (n *Node) hello(_ context.Context, request bootstrap.HelloRequest) (bootstrap.Hello, error) {
	hello := n.bootstrapper.Hello()
	hello.Removed = request.From != "" && n.hasLeft(request.From)
	hello.ReadableLevel, hello.RequiredLevel = n.readableLevel(), n.formatLevel.Load()
	return hello, nil
}

// hasLeft reports whether a member was removed and a committed configuration of the catalog is without it. Until
// then the catalog may need its vote, and its process must not end.
func (n *Node) hasLeft(id fsm.MemberID) bool {
	group := n.replicas.Group(fsm.CatalogPartition)
	if group == nil || !n.memberRecord(id).Removed {
		return false
	}
	status := group.Status()
	return status.ConfigurationCommitted && !slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), matchesMember(id))
}

// askIfRemoved asks the other members while this one knows no leader of the catalog: no leader sends entries to
// a member that was removed while it was away, so it cannot learn of its removal otherwise.
func (n *Node) askIfRemoved(ctx context.Context) {
	cluster := n.clusterID()
	group := n.replicas.Group(fsm.CatalogPartition)
	if group == nil || cluster == "" {
		return
	}
	if status := group.Status(); status.Leader != "" && !status.Removed {
		return
	}
	for _, hello := range n.bootstrapper.AskAll(ctx, n.gossip.Alive()) {
		if hello.Removed && hello.Cluster == cluster {
			if !n.isRetiring() {
				n.markRemoved(ctx)
			}
			return
		}
	}
}

// isRetiring reports whether a removed member is still removing its replicas. The catalog may have dropped the
// member before that is complete.
func (n *Node) isRetiring() bool {
	n.mu.Lock()
	if n.removalReported.IsZero() {
		n.removalReported = time.Now()
	}
	since := n.removalReported
	n.mu.Unlock()
	placed := n.partitions.Load()
	if placed == nil || time.Since(since) > retireTimeout || len(n.retiredReplicas(*placed)) == 0 {
		return false
	}
	n.retire(*placed)
	return true
}
