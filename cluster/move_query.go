package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// What queries about members and moves ask and answer.
type (
	// placementQuery asks where partitions lie: one, or all where it is 0.
	placementQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
	}

	// departQuery asks the leader of a partition whether a replica is none of its group any
	// more, for good: EntityNotFound means that nobody asks, PreconditionFails not yet.
	replicaRemovedQuery struct {
		Partition fsm.PartitionID `json:"Partition"`
		Replica   fsm.Replica     `json:"Replica"`
	}
)

// placementFromLeader asks the catalog's leader where partitions shall lie and what is known of
// members: as of a moment after the call.
func (o *Operator) placementFromLeader(ctx context.Context, id fsm.PartitionID) (all placement.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, placementQueryTimeout)
	defer cancel()
	all, err = findPlacement.Ask(ctx, o.router.Leader(fsm.CatalogPartition), placementQuery{Partition: id})
	if err != nil {
		return all, fmt.Errorf("ask where partitions lie: %w", err)
	}
	return all, nil
}

func (n *Node) readPlacement(ctx context.Context, q placementQuery) (all placement.Record, err error) {
	catalog := n.localReplica(fsm.CatalogPartition)
	if catalog == nil {
		return all, rpc.ErrNotLeader
	}
	err = catalog.Read(ctx, func(m partition.Machine) {
		all.Partitions, all.Members = raftgroup.Catalog(m).Partitions(), raftgroup.Catalog(m).Members()
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

// confirmReplicaRemoved answers replicaRemoved. That a replica is out is said only when the group has
// committed a configuration without it and the catalog will never want it again.
func (n *Node) confirmReplicaRemoved(ctx context.Context, q replicaRemovedQuery) (struct{}, error) {
	if q.Partition == fsm.CatalogPartition {
		return struct{}{}, fsm.InvalidArgument
	}
	group := (*n.groups.Load())[q.Partition]
	if group == nil || !group.Status().IsLeader {
		return struct{}{}, rpc.ErrNotLeader
	}
	placement, err := n.operator.placementFromLeader(ctx, q.Partition)
	if err != nil {
		return struct{}{}, err
	}
	if part := &placement.Partitions[0]; !isRetired(part, q.Replica) {
		return struct{}{}, fsm.PreconditionFails
	}
	name := raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number)
	status, isThis := group.Status(), func(v partition.Voter) bool { return v.Replica == name }
	if slices.ContainsFunc(status.Voters, isThis) || slices.ContainsFunc(status.Nonvoters, isThis) {
		notify.WakeUp(n.reconcileNow) // it is on its way out
		return struct{}{}, fsm.PreconditionFails
	}
	// It is not in the newest configuration; this returns when that is committed.
	return struct{}{}, group.RemoveReplica(ctx, name)
}

// isRetired says whether a replica is none of a partition any more. The number tells a record
// that knows of its end from one that is older than its beginning.
func isRetired(part *fsm.Partition, replica fsm.Replica) bool {
	return replica.Number <= part.Last && !slices.Contains(part.Replicas, replica) && !slices.Contains(part.Target, replica)
}
