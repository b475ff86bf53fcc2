package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// This file connects a node with other members: it makes the node the transport of its router and
// the host of requests of other members.

// onMemberLost breaks the connection to a member that gossip has marked dead: what is outstanding
// there is sent to another member at once.
func (n *Node) onMemberLost(member fsm.MemberID) { n.peerClient.Drop(member) }

func (n *Node) clusterID() string {
	if n.gossip == nil {
		return n.dataDir.identity.Cluster
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

// acceptRaft passes a stream to a group; with a nil conn it only reports whether the group is open.
func (n *Node) acceptRaft(id fsm.PartitionID, conn net.Conn) bool {
	group := (*n.groups.Load())[id]
	if group != nil && conn != nil {
		group.Accept(conn)
	}
	return group != nil
}

// acceptPeer serves the requests of another member. A second connection of the same member replaces
// the first, and is served only when nothing waits in the name of the first any more: what waits
// there could lock messages that no receiver gets.
func (n *Node) acceptPeer(ctx context.Context, from fsm.MemberID, conn net.Conn) {
	now := &peerServerConn{conn: conn, done: make(chan struct{})}
	defer close(now.done)
	n.mu.Lock()
	before := n.servedConns[from]
	n.servedConns[from] = now
	n.mu.Unlock()
	if before != nil {
		_ = before.conn.Close()
		<-before.done
	}
	rpc.Serve(ctx, n, n.log, from, conn)
	n.mu.Lock()
	if n.servedConns[from] == now {
		delete(n.servedConns, from)
	}
	n.mu.Unlock()
}

// AnswerQuery answers a query of another member.
func (n *Node) AnswerQuery(ctx context.Context, kind rpc.QueryKind, arguments []byte) rpc.Reply {
	switch kind {
	case rpc.QueryHello:
		return n.hello(arguments)
	case rpc.QueryPledge:
		return rpc.AnswerTyped(arguments, n.bootstrapper.handlePledge)
	case rpc.QueryReplicaRemoved:
		return n.confirmReplicaRemoved(ctx, arguments)
	case rpc.QueryDigest:
		return rpc.AnswerTyped(arguments, func(q digestQuery) (uint64, error) { return n.digest(ctx, q) })
	case rpc.QueryVerify:
		return rpc.AnswerTyped(arguments, func(q verifyQuery) (Verification, error) { return n.verify(ctx, q) })
	case rpc.QueryCheckpoints:
		return rpc.AnswerTyped(arguments, n.answerCheckpoints)
	case rpc.QueryPlacement, rpc.QueryNamespace, rpc.QueryNamespaces:
	case rpc.QueryStatus, rpc.QueryEntity, rpc.QueryEntities, rpc.QueryCounts, rpc.QueryPeek, rpc.QueryLoad, rpc.QueryRules, rpc.QuerySessionState, rpc.QuerySessions, rpc.QueryPurgeable:
	}
	return n.router.queries.answer(ctx, kind, arguments)
}

// ask sends a query to another member.
func (n *Node) ask(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	conn := n.peerClient.Conn(member) //nolint:contextcheck // the connection outlives the question
	if conn == nil {
		return rpc.Reply{}, rpc.ErrClosed
	}
	return conn.Query(ctx, kind, arguments)
}

// askStatus asks another member about its replica.
func (n *Node) askStatus(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	return askStatus(ctx, n, member, id)
}

// LocalReplica is this member's replica of a partition, nil when it has none open.
func (n *Node) LocalReplica(id fsm.PartitionID) rpc.Group {
	if group := (*n.groups.Load())[id]; group != nil {
		return group
	}
	return nil
}

func (n *Node) Conn(member fsm.MemberID) *rpc.Conn { return n.peerClient.Conn(member) }

// LeaderCandidates returns the other living members that may lead a partition.
func (n *Node) LeaderCandidates(id fsm.PartitionID) []fsm.MemberID {
	others := slices.DeleteFunc(n.gossip.Alive(), func(m fsm.MemberID) bool { return m == n.self })
	placed := n.partitions.Load()
	if id == fsm.CatalogPartition || placed == nil || int(id) > len(*placed) {
		return others
	}
	part := &(*placed)[id-1]
	return slices.DeleteFunc(others, func(m fsm.MemberID) bool {
		return !placement.HoldsReplica(part, m) && !slices.ContainsFunc(part.Target, func(r fsm.Replica) bool { return r.Member == m })
	})
}

func (n *Node) Changes() <-chan struct{} { return n.changed.Wait() }

func (n *Node) Go(task func(ctx context.Context)) bool { return n.startTask(task) }
