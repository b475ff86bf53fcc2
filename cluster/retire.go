package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

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
		if err := n.retireOne(ctx, r.id, r.number); err != nil {
			n.log.DebugContext(ctx, "a replica that is none any more stays for now", "partition", r.id, "number", r.number, "error", err)
		}
	}
}

// localReplica is one folder of ours.
type localReplica struct {
	id     fsm.PartitionID
	number uint32
}

// localReplicas lists the replicas of messages whose folders are here, by partition and number.
func (n *Node) localReplicas() ([]localReplica, error) {
	entries, err := os.ReadDir(filepath.Join(n.config.Dir, "groups"))
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	var all []localReplica
	for _, entry := range entries {
		if id, number, ok := parseReplicaFolder(entry.Name()); ok && id != fsm.CatalogPartition {
			all = append(all, localReplica{id, number})
		}
	}
	slices.SortFunc(all, func(a, b localReplica) int {
		if a.id != b.id {
			return int(a.id) - int(b.id)
		}
		return int(a.number) - int(b.number)
	})
	return all, nil
}

// retiredReplicas lists the replicas here that the record of their partition knows to be out. A
// partition that the record does not know yet, or a number that it has not given yet, means
// that the record is old: after a restart our replica of the catalog begins where its
// snapshot ends.
func (n *Node) retiredReplicas(placed []fsm.Partition) (out []localReplica) {
	all, err := n.localReplicas()
	if err != nil {
		n.log.Error("look for replicas", "error", err)
		return nil
	}
	for _, r := range all {
		if int64(r.id) <= int64(len(placed)) && isRetired(&placed[r.id-1], fsm.Replica{Member: n.self, Number: r.number}) {
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
	path := n.dataDir.replicaPath(id, number)
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
	n.log.InfoContext(ctx, "a replica that is none any more was removed", "partition", id, "number", number)
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

// ErrRemoved says that this member was removed from its cluster: it holds nothing and takes
// part in nothing. Its folder can be emptied to start over as a new member.
var ErrRemoved = errors.New("this member was removed from its cluster for good: empty its data folder to start over as a new one")

// Removed is closed when this member learns that it was removed from its cluster; the
// process should then close it and end. Ready returns ErrRemoved from then on.
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
	n.bootstrapper.mu.Lock()
	err := n.dataDir.update(func(id *identity) { id.Removed = true })
	n.bootstrapper.mu.Unlock()
	if err != nil {
		n.log.ErrorContext(ctx, "record that this member was removed", "error", err)
	}
	n.log.ErrorContext(ctx, "this member was removed from the cluster and takes part in nothing any more")
	n.mu.Lock()
	n.startError = ErrRemoved
	n.mu.Unlock()
	n.changed.Notify()
	close(n.removed)
}

// helloQuery is the argument of sayHello. Who asks hears whether it was removed.
type helloQuery struct {
	From fsm.MemberID `json:"From"`
}

// hello answers sayHello.
func (n *Node) hello(q helloQuery) helloReply {
	reply := n.bootstrapper.hello()
	reply.Removed = q.From != "" && n.memberRecord(q.From).Removed
	reply.ReadableLevel, reply.RequiredLevel = n.readableLevel(), n.featureLevel.Load()
	return reply
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
	for _, hello := range n.bootstrapper.helloAll(ctx, n.gossip.Alive()) {
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
