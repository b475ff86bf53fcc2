package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/forwarding"
	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a node.
const (
	closeTimeout      = 20 * time.Second // for all replicas to close
	readyPollInterval = 20 * time.Millisecond
)

// Node is one member: its groups, its gossip, its peer port and its router.
// Its methods may be called concurrently.
type Node struct {
	config      Config
	log         *slog.Logger
	dataDir     *datadir.Dir
	self        fsm.MemberID
	incarnation uint64
	openedAt    time.Time

	raftLog      *partition.Log
	replicas     *replicas.Set
	healer       *replicas.Healer
	gossip       *gossip.Membership
	peers        *peer.Transport
	peerClient   *rpc.Client
	queries      rpc.Handlers // of other members; complete before the peer port is open
	router       *router.Router
	operator     *Operator
	mover        *move.Mover
	balancer     *move.Balancer // used by reconcileLoop only
	forwarder    *forwarding.Forwarder
	bootstrapper *bootstrap.Bootstrapper
	comparer     *compare.Comparer
	backups      *backup.Server
	clocks       *clocks.Monitor
	processes    *partition.Liveness

	partitions     atomic.Pointer[[]fsm.Partition] // of the catalog, nil before it is loaded
	members        atomic.Pointer[[]fsm.Member]    // of the catalog, by id; nil before it is loaded
	formatLevel    atomic.Uint32                   // of the catalog, 0 before it is loaded
	changed        notify.Broadcast                // leaders, members, replicas, catalog
	catalogApplied chan struct{}                   // buffer of one: the catalog has applied something
	reconcileNow   chan struct{}                   // buffer of one: reconcile now
	idleShards     chan fsm.EntityID               // of partitions that this member leads

	health        health
	selfRecorded  bool          // zone and weight are recorded in the catalog; used by reconcileLoop only
	levelProposal levelProposal // used by reconcileLoop only
	outdated      chan struct{} // closed when the cluster needs a higher level than this binary can read

	mu                  sync.Mutex // guards the fields below
	servedConns         map[fsm.MemberID]*peerServerConn
	retiring, isRemoved bool
	removalReported     time.Time     // when another member first reported that this one was removed
	removed             chan struct{} // closed when this member learns that it was removed
	startError          error         // why this member will never be ready
	closing             bool
	tasks               sync.WaitGroup
	// startTask runs a task that close waits for. It returns false when the node is closing.
	startTask  func(task func(ctx context.Context)) bool
	stop       context.CancelFunc
	closeOnce  sync.Once
	closeError error
}

// peerServerConn is a forward connection of another member.
type peerServerConn struct {
	conn net.Conn
	done chan struct{}
}

// Router returns the router, which sends requests to the leaders of their partitions.
func (n *Node) Router() *router.Router { return n.router }

// Forwarding returns the statistics of what this member has forwarded between entities.
func (n *Node) Forwarding() forwarding.Stats { return n.forwarder.Stats() }

// ID returns the id of the member.
func (n *Node) ID() fsm.MemberID { return n.self }

// GossipAddr returns the ip:port that other members can join.
func (n *Node) GossipAddr() string { return n.gossip.Address() }

// PeerAddr returns the host:port of the peer port.
func (n *Node) PeerAddr() string { return n.peers.Addr().String() }

// Ready waits until the catalog is loaded, every replica of this member is open and every partition has a
// leader. It returns an error early when the member can never become ready.
func (n *Node) Ready(ctx context.Context) error {
	ticker := time.NewTicker(readyPollInterval)
	defer ticker.Stop()
	for {
		changed := n.changed.Wait()
		n.mu.Lock()
		failed, closing := n.startError, n.closing
		n.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case closing:
			return errors.New("member is closing")
		}
		if n.allReplicasOpen() {
			break
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the catalog and the replicas: %w", ctx.Err())
		}
	}
	for _, part := range append([]fsm.Partition{{ID: fsm.CatalogPartition}}, *n.partitions.Load()...) {
		if _, err := n.router.AwaitLeader(ctx, part.ID); err != nil {
			return fmt.Errorf("wait for a leader of partition %d: %w", part.ID, err)
		}
	}
	return nil
}

// allReplicasOpen reports whether the catalog is loaded and every replica that it places on this member is
// open.
func (n *Node) allReplicasOpen() bool {
	placed := n.partitions.Load()
	return placed != nil && n.replicas.HasAll(*placed)
}

// failStart records that this member will never be ready.
func (n *Node) failStart(err error) {
	n.log.Error("failed to start the member", "error", err)
	n.mu.Lock()
	n.startError = err
	n.mu.Unlock()
	n.changed.Notify()
}
