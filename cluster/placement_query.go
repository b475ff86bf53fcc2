package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// placementQueryTimeout bounds the query to the catalog's leader for the placement of partitions.
const placementQueryTimeout = 2 * time.Second

// The requests of queries about members and moves.
type (
	// placementQuery asks for the placement of one partition, or of all partitions if it is 0.
	placementQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
	}

	// replicaRemovedQuery asks the leader of a partition whether a replica is out of its group for good.
	// EntityNotFound means that there is no such partition, PreconditionFails that the replica is not out yet.
	replicaRemovedQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Replica   fsm.Replica     `json:"Replica"`
	}
)

// placementFromLeader asks the catalog's leader for the placement of partitions and the records of members, as
// of a moment after the call.
func (n *Node) placementFromLeader(ctx context.Context, id fsm.PartitionID) (all placement.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, placementQueryTimeout)
	defer cancel()
	all, err = findPlacement.Ask(ctx, n.router.Leader(fsm.CatalogPartition), placementQuery{Partition: id})
	if err != nil {
		return all, fmt.Errorf("query the placement of partitions: %w", err)
	}
	return all, nil
}

func (n *Node) readPlacement(ctx context.Context, q placementQuery) (all placement.Record, err error) {
	catalog := n.replicas.Local(fsm.CatalogPartition)
	if catalog == nil {
		return all, rpc.ErrNotLeader
	}
	err = catalog.Read(ctx, func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		all.Partitions, all.Members, all.Level = catalog.Partitions(), catalog.Members(), catalog.FormatLevel()
	})
	if err == nil {
		status := catalog.Status()
		for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
			all.Joined = append(all.Joined, v.Member)
		}
	}
	if err == nil && q.Partition != fsm.CatalogPartition {
		if int64(q.Partition) > int64(len(all.Partitions)) {
			return placement.Record{}, fsm.EntityNotFound
		}
		all.Partitions = all.Partitions[q.Partition-1 : q.Partition]
	}
	return all, err
}

// confirmReplicaRemoved answers replicaRemovedQuery. It confirms the removal only when the group has committed
// a configuration without the replica and the catalog will never want the replica again.
func (n *Node) confirmReplicaRemoved(ctx context.Context, q replicaRemovedQuery) (struct{}, error) {
	if q.Partition == fsm.CatalogPartition {
		return struct{}{}, fsm.InvalidArgument
	}
	group := n.replicas.Group(q.Partition)
	if group == nil || !group.Status().IsLeader {
		return struct{}{}, rpc.ErrNotLeader
	}
	placement, err := n.placementFromLeader(ctx, q.Partition)
	if err != nil {
		return struct{}{}, err
	}
	if part := &placement.Partitions[0]; !isRetired(part, q.Replica) {
		return struct{}{}, fsm.PreconditionFails
	}
	name := raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number)
	status, isThis := group.Status(), func(v partition.Voter) bool { return v.Replica == name }
	if slices.ContainsFunc(status.Voters, isThis) || slices.ContainsFunc(status.Nonvoters, isThis) {
		notify.WakeUp(n.reconcileNow) // the replica is still to be removed
		return struct{}{}, fsm.PreconditionFails
	}
	// The replica is not in the newest configuration; RemoveReplica returns when that is committed.
	return struct{}{}, group.RemoveReplica(ctx, name)
}

// isRetired reports whether a replica no longer belongs to a partition. The number distinguishes a record that
// knows of the replica's removal from a record that is older than the replica.
func isRetired(part *fsm.Partition, replica fsm.Replica) bool {
	return replica.Number <= part.Last && !slices.Contains(part.Replicas, replica) && !slices.Contains(part.Target, replica)
}

// answerReplaceReplica answers replicas.ReplaceQuery, as the leader of the partition.
func (n *Node) answerReplaceReplica(ctx context.Context, q replicas.ReplaceQuery) (struct{}, error) {
	group := n.replicas.Group(q.Partition)
	switch {
	case group == nil || !group.Status().IsLeader:
		return struct{}{}, rpc.ErrNotLeader
	case q.Replica.Member == n.self:
		return struct{}{}, fsm.InvalidArgument
	case q.Partition == fsm.CatalogPartition:
		return struct{}{}, n.replaceCatalogReplica(ctx, group, q.Replica.Member)
	}
	status := group.Status()
	replica := partition.Voter{Replica: raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number), Member: q.Replica.Member}
	if slices.Contains(status.Voters, replica) && !n.mover.HasQuorumWithout(ctx, q.Partition, replica, &status) {
		return struct{}{}, fsm.PreconditionFails
	}
	_, err := n.router.Command(ctx, fsm.CatalogPartition, fsm.ReplaceReplica{Partition: q.Partition, Replica: q.Replica})
	return struct{}{}, err
}

// replaceCatalogReplica confirms that the catalog has a quorum without the replica of a member, and removes the replicas
// of the member that no longer have its name.
func (n *Node) replaceCatalogReplica(ctx context.Context, group *partition.Group, member fsm.MemberID) error {
	hello, err := n.askHello(ctx, member)
	if err != nil {
		return err
	}
	status := group.Status()
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if v.Member != member {
			continue
		}
		if slices.Contains(status.Voters, v) && !n.mover.HasQuorumWithout(ctx, fsm.CatalogPartition, v, &status) {
			return fsm.PreconditionFails
		}
		if v.Replica == hello.CatalogName() {
			continue
		}
		if err := group.RemoveReplica(ctx, v.Replica); err != nil {
			return err
		}
		n.log.InfoContext(ctx, "damaged replica of the catalog was removed", "peer", member, "replica", v.Replica)
		notify.WakeUp(n.reconcileNow) // adds the one that takes its place
	}
	return nil
}
