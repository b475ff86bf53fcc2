package cluster

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	retireQueryTimeout = 5 * time.Second  // for the question whether a replica is out
	retireTimeout      = 30 * time.Second // for a removed member to remove what it held
)

// retire closes the replicas of this member that are none any more and removes their files.
// It runs beside everything else, once at a time, and is repeated until nothing is left.
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

// retiredReplicas lists the replicas here that the record of their partition knows to be out. A
// partition that the record does not know yet, or a number that it has not given yet, means
// that the record is old: after a restart our replica of the catalog begins where its
// snapshot ends.
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

// retireOne removes one replica, once its group has removed it. partition leaves a mark
// before the first file goes, so that a crash in between is finished at the next start.
func (n *Node) retireOne(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, open := (*n.groups.Load())[id], n.replicaNumber(id) == number
	if !open || group == nil || !group.Status().Removed {
		if err := n.askReplicaRemoved(ctx, id, number); err != nil {
			return err
		}
	}
	// What was begun is not left half done because this member closes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	path := n.dataDir.ReplicaPath(id, number)
	var err error
	if open && group != nil {
		n.setGroup(id, 0, nil)
		n.forwarder.LeaderChanged(id, false)
		err = group.Destroy(ctx)
	} else {
		err = partition.Drop(n.raftLog, id, raftgroup.ReplicaID(n.self, number), path)
	}
	if err != nil {
		return err
	}
	n.log.InfoContext(ctx, "retired replica was removed", "partition", id, "number", number)
	notify.WakeUp(n.catalogApplied) // another one of the group may wait for its place
	return nil
}

// askReplicaRemoved asks the leader of the group: a replica that was away when it was removed does
// not know it.
func (n *Node) askReplicaRemoved(ctx context.Context, id fsm.PartitionID, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, retireQueryTimeout)
	defer cancel()
	_, err := replicaRemoved.Ask(ctx, n.router.Leader(id), replicaRemovedQuery{Partition: id, Replica: fsm.Replica{Member: n.self, Number: number}})
	return err
}

// Removed is closed when this member learns that it was removed from its cluster; the
// process should then close it and end. Ready returns datadir.ErrRemoved from then on.
func (n *Node) Removed() <-chan struct{} { return n.removed }

// markRemoved is called when the catalog, or somebody who knows it, says that we are removed.
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

// hello answers sayHello.
func (n *Node) hello(_ context.Context, request bootstrap.HelloRequest) (bootstrap.Hello, error) {
	hello := n.bootstrapper.Hello()
	hello.Removed = request.From != "" && n.memberRecord(request.From).Removed
	hello.ReadableLevel, hello.RequiredLevel = n.readableLevel(), n.featureLevel.Load()
	return hello, nil
}

// askIfRemoved asks the others while nobody leads the catalog here: a member that was
// removed while it was away hears of nobody else, for no leader sends to it.
func (n *Node) askIfRemoved(ctx context.Context) {
	cluster := n.clusterID()
	group := (*n.groups.Load())[fsm.CatalogPartition]
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

// isRetiring says whether a member that was removed is still removing what it held: the catalog can
// let it go before it is done.
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
