package reconcile

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// Removed asks the leader of a partition whether a replica is out of its group for good. EntityNotFound means that there is
// no such partition, PreconditionFails that the replica is not out yet.
var Removed = rpc.Query[RemovedQuery, struct{}]{Kind: rpc.QueryReplicaRemoved}

// RemovedQuery is the argument of Removed.
type RemovedQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
	Replica   fsm.Replica     `json:"Replica"`
}

// RegisterQueries registers the handlers of Removed and replicas.Replace.
func (r *Reconciler) RegisterQueries(h rpc.Handlers) {
	Removed.Handle(h, r.confirmRemoved)
	replicas.Replace.Handle(h, r.replaceReplica)
}

// confirmRemoved answers Removed. It confirms the removal only when the group has committed
// a configuration without the replica and the catalog will never want the replica again.
func (r *Reconciler) confirmRemoved(ctx context.Context, q RemovedQuery) (struct{}, error) {
	if q.Partition == fsm.CatalogPartition {
		return struct{}{}, fsm.InvalidArgument
	}
	group := r.Replicas.Group(q.Partition)
	if group == nil || !group.Status().IsLeader {
		return struct{}{}, rpc.ErrNotLeader
	}
	record, err := r.Node.Placement(ctx, q.Partition)
	if err != nil {
		return struct{}{}, err
	}
	if part := &record.Partitions[0]; !placement.IsRetired(part, q.Replica) {
		return struct{}{}, fsm.PreconditionFails
	}
	name := raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number)
	status, isThis := group.Status(), func(v partition.Voter) bool { return v.Replica == name }
	if slices.ContainsFunc(status.Voters, isThis) || slices.ContainsFunc(status.Nonvoters, isThis) {
		r.Wake() // the replica is still to be removed
		return struct{}{}, fsm.PreconditionFails
	}
	// The replica is not in the newest configuration; RemoveReplica returns when that is committed.
	return struct{}{}, group.RemoveReplica(ctx, name)
}

// replaceReplica answers replicas.Replace, as the leader of the partition.
func (r *Reconciler) replaceReplica(ctx context.Context, q replicas.ReplaceQuery) (struct{}, error) {
	group := r.Replicas.Group(q.Partition)
	switch {
	case group == nil || !group.Status().IsLeader:
		return struct{}{}, rpc.ErrNotLeader
	case q.Replica.Member == r.Self:
		return struct{}{}, fsm.InvalidArgument
	case q.Partition == fsm.CatalogPartition:
		return struct{}{}, r.replaceCatalogReplica(ctx, group, q.Replica.Member)
	}
	status := group.Status()
	replica := partition.Voter{Replica: raftgroup.ReplicaID(q.Replica.Member, q.Replica.Number), Member: q.Replica.Member}
	if slices.Contains(status.Voters, replica) && !r.Mover.HasQuorumWithout(ctx, q.Partition, replica, &status) {
		return struct{}{}, fsm.PreconditionFails
	}
	_, err := r.Router.Command(ctx, fsm.CatalogPartition, fsm.ReplaceReplica{Partition: q.Partition, Replica: q.Replica})
	return struct{}{}, err
}

// replaceCatalogReplica confirms that the catalog has a quorum without the replica of a member, and removes the replicas
// of the member that no longer have its name.
func (r *Reconciler) replaceCatalogReplica(ctx context.Context, group *partition.Group, member fsm.MemberID) error {
	hello, err := r.askHello(ctx, member)
	if err != nil {
		return err
	}
	status := group.Status()
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if v.Member != member {
			continue
		}
		if slices.Contains(status.Voters, v) && !r.Mover.HasQuorumWithout(ctx, fsm.CatalogPartition, v, &status) {
			return fsm.PreconditionFails
		}
		if v.Replica == hello.CatalogName() {
			continue
		}
		if err := group.RemoveReplica(ctx, v.Replica); err != nil {
			return err
		}
		r.Logger.InfoContext(ctx, "damaged replica of the catalog was removed", "peer", member, "replica", v.Replica)
		r.Wake() // adds the one that takes its place
	}
	return nil
}
