package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// This file connects a node with other members.

// onMemberLost closes the connection to a member that gossip has marked dead: requests without an answer are
// sent to another member at once.
func (n *Node) onMemberLost(member fsm.MemberID) { n.peerClient.Drop(member) }

func (n *Node) clusterID() string {
	if n.gossip == nil {
		return n.dataDir.Identity().Cluster
	}
	return n.gossip.ClusterID()
}

// address returns the peer address of a member, as gossip knows it.
func (n *Node) address(id fsm.MemberID) (string, error) {
	m, ok := n.gossip.Lookup(id)
	if !ok {
		return "", fmt.Errorf("member %s is unknown to gossip", id)
	}
	return m.PeerAddress(), nil
}

// knowsAddress reports whether gossip knows a member whose peer port has this address.
func (n *Node) knowsAddress(address netip.Addr) bool {
	for _, m := range n.gossip.All() {
		if of, err := netip.ParseAddrPort(m.PeerAddress()); err == nil && of.Addr().Unmap() == address {
			return true
		}
	}
	return false
}

// The queries between nodes about members, placement and replicas.
var (
	sayHello           = rpc.Query[bootstrap.HelloRequest, bootstrap.Hello]{Kind: rpc.QueryHello}
	askPledge          = rpc.Query[bootstrap.PledgeRequest, bool]{Kind: rpc.QueryPledge}
	digestOfReplica    = rpc.Query[compare.DigestRequest, uint64]{Kind: rpc.QueryDigest}
	verifyReplicas     = rpc.Query[compare.VerifyRequest, topology.Verification]{Kind: rpc.QueryVerify}
	compareCheckpoints = rpc.Query[compare.CheckpointsRequest, compare.Checkpoints]{Kind: rpc.QueryCheckpoints}
	askCampaign        = rpc.Query[partition.Question, partition.Verdict]{Kind: rpc.QueryCampaign}
	askUsage           = rpc.Query[struct{}, quota.Report]{Kind: rpc.QueryUsage}
)

// hello answers sayHello, the query for the identity and state of this member.
func (n *Node) hello(_ context.Context, request bootstrap.HelloRequest) (bootstrap.Hello, error) {
	hello := n.bootstrapper.Hello()
	hello.Removed = request.From != "" && n.removal.hasLeft(request.From)
	hello.ReadableLevel, hello.RequiredLevel = n.levels.Readable, n.levels.Adopted()
	return hello, nil
}

// ask sends a query to another member.
func (n *Node) ask(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	conn := n.peerClient.Conn(member) //nolint:contextcheck // the connection outlives the question
	if conn == nil {
		return rpc.Reply{}, rpc.ErrClosed
	}
	return conn.Query(ctx, kind, arguments)
}

// askStatus asks another member for the status of its replica.
func (n *Node) askStatus(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	return query.StatusOfReplica.Ask(ctx, n.member(member), query.StatusQuery{Partition: id})
}

// transport gives the router and the forwarder of a node access to replicas, and serves the requests of other
// members.
type transport struct{ node *Node }

// LocalReplica returns this member's replica of a partition, nil when none is open.
func (t transport) LocalReplica(id fsm.PartitionID) rpc.Group { return t.node.replicas.Local(id) }

// Clocks returns the clocks of this member, for the comparison with others.
func (t transport) Clocks() clocks.Reading { return t.node.clocks.Reading() }

// Conn returns the connection to another member, nil while closing.
func (t transport) Conn(member fsm.MemberID) *rpc.Conn { return t.node.peerClient.Conn(member) }

// LeaderCandidates returns the other living members that may lead a partition.
func (t transport) LeaderCandidates(id fsm.PartitionID) []fsm.MemberID {
	others := slices.DeleteFunc(t.node.gossip.Alive(), func(m fsm.MemberID) bool { return m == t.node.self })
	placed := t.node.partitions.Load()
	if id == fsm.CatalogPartition || placed == nil || int(id) > len(*placed) {
		return others
	}
	part := &(*placed)[id-1]
	return slices.DeleteFunc(others, func(m fsm.MemberID) bool {
		return !placement.HoldsReplica(part, m) && !slices.ContainsFunc(part.Target, func(r fsm.Replica) bool { return r.Member == m })
	})
}

// Changes returns a channel that is closed when leaders, members, replicas or the catalog have changed.
func (t transport) Changes() <-chan struct{} { return t.node.changed.Wait() }

// Go runs a task that Close waits for. It returns false when the node is closing.
func (t transport) Go(task func(ctx context.Context)) bool { return t.node.startTask(task) }

// AnswerQuery answers a query of another member.
func (t transport) AnswerQuery(ctx context.Context, kind rpc.QueryKind, arguments []byte) rpc.Reply {
	return t.node.queries.Answer(ctx, kind, arguments)
}
