package cluster

import (
	"context"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// members gives the parts of the node access to single members of the cluster, this one included. It implements
// bootstrap.Peers and compare.Members.
type members struct{ node *Node }

// Alive lists the members that gossip considers alive, this one included.
func (m members) Alive() []fsm.MemberID { return m.node.gossip.Alive() }

// IsAlive reports whether gossip considers a member alive.
func (m members) IsAlive(member fsm.MemberID) bool { return m.node.isAlive(member) }

// Hello asks another member for its identity and state.
func (m members) Hello(ctx context.Context, member fsm.MemberID, request bootstrap.HelloRequest) (bootstrap.Hello, error) {
	return sayHello.Ask(ctx, m.node.member(member), request)
}

// Pledge asks another member for a pledge.
func (m members) Pledge(ctx context.Context, member fsm.MemberID, request bootstrap.PledgeRequest) (bool, error) {
	return askPledge.Ask(ctx, m.node.member(member), request)
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
