package cluster

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// members gives the parts of the node access to its replicas and to single members of the cluster, this one
// included. It implements bootstrap.Peers, compare.Members and reconcile.Node.
type members struct{ node *Node }

// Alive lists the members that gossip considers alive, this one included.
func (m members) Alive() []fsm.MemberID { return m.node.gossip.Alive() }

// Changed returns a channel that is closed when the list of members changes.
func (m members) Changed() <-chan struct{} { return m.node.gossip.Changed() }

// IsAlive reports whether gossip considers a member alive.
func (m members) IsAlive(member fsm.MemberID) bool { return m.node.isAlive(member) }

// Lookup returns what gossip knows about a member.
func (m members) Lookup(member fsm.MemberID) (gossip.Member, bool) {
	return m.node.gossip.Lookup(member)
}

// Processes lists the processes that gossip knows, dead ones included.
func (m members) Processes() []gossip.Member { return m.node.gossip.All() }

// MemberRecord returns the record of a member in this member's replica of the catalog.
func (m members) MemberRecord(member fsm.MemberID) fsm.Member { return m.node.memberRecord(member) }

// HasSpace reports whether neither the disk nor the memory of a member is nearly full.
func (m members) HasSpace(member fsm.MemberID) bool { return m.node.space.Has(member) }

// HasClock reports whether the clock of a member is not known to be wrong.
func (m members) HasClock(member fsm.MemberID) bool { return !m.node.clocks.IsOff(member) }

// Partitions returns the message partitions in this member's replica of the catalog, nil before it is loaded.
func (m members) Partitions() []fsm.Partition {
	if placed := m.node.partitions.Load(); placed != nil {
		return *placed
	}
	return nil
}

// Group returns this member's open replica of a partition, nil when there is none.
func (m members) Group(id fsm.PartitionID) *partition.Group { return m.node.replicas.Group(id) }

// ClusterID returns the id of the cluster, "" before it is known.
func (m members) ClusterID() string { return m.node.clusterID() }

// Placement asks the catalog's leader for the placement of partitions and the records of members.
func (m members) Placement(ctx context.Context, id fsm.PartitionID) (placement.Record, error) {
	return m.node.placementFromLeader(ctx, id)
}

// Go runs a task until the node closes.
func (m members) Go(task func(ctx context.Context)) bool { return m.node.startTask(task) }

// Hello asks another member for its identity and state.
func (m members) Hello(ctx context.Context, member fsm.MemberID, request bootstrap.HelloRequest) (bootstrap.Hello, error) {
	return sayHello.Ask(ctx, m.node.member(member), request)
}

// Pledge asks another member for a pledge.
func (m members) Pledge(ctx context.Context, member fsm.MemberID, request bootstrap.PledgeRequest) (bool, error) {
	return askPledge.Ask(ctx, m.node.member(member), request)
}

// others lists the other members that gossip considers alive.
func (m members) others() []fsm.MemberID {
	return slices.DeleteFunc(m.node.gossip.Alive(), func(id fsm.MemberID) bool { return id == m.node.self })
}

// holders lists the members that hold replicas of a partition; for the catalog this one, whose leader it is.
func (m members) holders(id fsm.PartitionID) (list []fsm.MemberID) {
	placed := m.node.partitions.Load()
	if id == fsm.CatalogPartition || placed == nil || int(id) > len(*placed) {
		return []fsm.MemberID{m.node.self}
	}
	for _, replica := range (*placed)[id-1].Replicas {
		list = append(list, replica.Member)
	}
	return list
}

// diskForData returns the free bytes of this member's disk above its reserve; false while the disk is not measured, or so full
// that the member refuses all growth.
func (m members) diskForData() (free uint64, known bool) {
	space := m.node.raftLog.DiskSpace()
	return space.Free - min(space.Free, space.Reserve), space.Total > 0 && !space.ReadOnly
}

// Status asks a member for the status of its replica of a partition.
func (m members) Status(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	return m.node.replicaStatus(ctx, member, id)
}

// Checkpoints asks a member for the checkpoints of its replica.
func (m members) Checkpoints(ctx context.Context, member fsm.MemberID, request compare.CheckpointsRequest) (compare.Checkpoints, error) {
	return compareCheckpoints.Ask(ctx, m.node.member(member), request)
}

// Digest asks a member for the digest of its replica at an index.
func (m members) Digest(ctx context.Context, member fsm.MemberID, request compare.DigestRequest) (uint64, error) {
	return digestOfReplica.Ask(ctx, m.node.member(member), request)
}

// member returns a function that sends queries to one member, which may be this one.
func (n *Node) member(id fsm.MemberID) rpc.Asker {
	return func(ctx context.Context, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
		if id == n.self {
			return transport{n}.AnswerQuery(ctx, kind, arguments), nil
		}
		return n.ask(ctx, id, kind, arguments)
	}
}

// replicaStatus asks a member, which may be this one, for the status of its replica.
func (n *Node) replicaStatus(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	if member == n.self {
		return n.router.ReplicaStatus(id)
	}
	return n.askStatus(ctx, member, id)
}

// isAlive reports whether gossip considers a member alive.
func (n *Node) isAlive(id fsm.MemberID) bool {
	m, ok := n.gossip.Lookup(id)
	return ok && m.Alive
}
