package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/confirm"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/forwarding"
	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/health"
	"github.com/peeklock/peeklock/cluster/levels"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/cluster/rates"
	"github.com/peeklock/peeklock/cluster/reconcile"
	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/slowdisk"
	"github.com/peeklock/peeklock/cluster/space"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
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
	retirer      *replicas.Retirer
	levels       *levels.Levels
	reconciler   *reconcile.Reconciler
	idleShards   *reconcile.IdleShards
	gossip       *gossip.Membership
	peers        *peer.Transport
	peerClient   *rpc.Client
	space        *space.Monitor
	slowDisk     *slowdisk.Monitor
	quotas       *quota.Monitor
	rates        *rates.Recorder
	health       *health.Monitor
	queries      rpc.Handlers // of other members; complete before the peer port is open
	router       *router.Router
	confirmed    *confirm.Catalog
	operator     *Operator
	mover        *move.Mover
	forwarder    *forwarding.Forwarder
	bootstrapper *bootstrap.Bootstrapper
	comparer     *compare.Comparer
	backups      *backup.Server
	backedUp     backedUp
	clocks       *clocks.Monitor
	processes    *partition.Liveness

	audit          atomic.Pointer[AuditEvents]     // nil until ServeAudit
	clients        atomic.Pointer[Clients]         // nil until ServeClients
	partitions     atomic.Pointer[[]fsm.Partition] // of the catalog, nil before it is loaded
	members        atomic.Pointer[[]fsm.Member]    // of the catalog, by id; nil before it is loaded
	shown          atomic.Pointer[shownEntities]   // of Stats
	changed        notify.Broadcast                // leaders, members, replicas, catalog
	catalogApplied chan struct{}                   // buffer of one: the catalog has applied something

	seen    *datadir.Seen
	twin    twin
	removal removal
	served  peerServer

	mu         sync.Mutex // guards the fields below
	startError error      // why this member will never be ready
	closing    bool
	tasks      sync.WaitGroup
	// startTask runs a task that close waits for. It returns false when the node is closing.
	startTask  func(task func(ctx context.Context)) bool
	stop       context.CancelFunc
	closeOnce  sync.Once
	closeError error
}

// Router returns the router, which sends requests to the leaders of their partitions.
func (n *Node) Router() *router.Router { return n.router }

// Forwarding returns the statistics of what this member has forwarded between entities.
func (n *Node) Forwarding() forwarding.Stats { return n.forwarder.Stats() }

// ID returns the id of the member.
func (n *Node) ID() fsm.MemberID { return n.self }

// SetGossipKeys replaces the keys of gossip (Config.GossipKeys). After an error they have not changed. It may be called concurrently.
func (n *Node) SetGossipKeys(keys [][]byte) error { return n.gossip.SetKeys(keys) }

// GossipAddr returns the ip:port that other members can join.
func (n *Node) GossipAddr() string { return n.gossip.Address() }

// PeerAddr returns the host:port of the peer port.
func (n *Node) PeerAddr() string { return n.peers.Addr().String() }

// SetLowMemory sets whether queued data has nearly used up the memory of the process. While it is set, this
// member behaves as when its disk is nearly full: it accepts no new messages and entities, and transfers
// leaderships to members that have free space.
func (n *Node) SetLowMemory(on bool) { n.raftLog.SetLowMemory(on) }

// BusyReason returns, for clients, why this member accepts no new messages now and what to do, and "" when it
// accepts them.
func (n *Node) BusyReason() string {
	switch space := n.raftLog.DiskSpace(); {
	case space.LowMemory:
		return "The member has no memory for more messages. Receive, purge or delete some that wait, or give it more memory."
	case space.Exhausted:
		return "The disk of the member is full. Delete queues, topics or subscriptions, purge messages, or make its volume larger."
	case space.ReadOnly:
		return "The disk of the member is nearly full. Receive, purge or delete messages that wait, or make its volume larger."
	}
	return ""
}

// QuotaReason returns, for clients, why leaders refuse to store more for a namespace and what to do, and "" when they do not.
func (n *Node) QuotaReason(id fsm.NamespaceID) string { return n.quotas.Reason(id) }

// NamespaceUsage returns what a namespace stores, as the leaders of its partitions have added it up within two seconds, and the
// number of its queues and topics.
func (n *Node) NamespaceUsage(id fsm.NamespaceID) (stored fsm.Usage, queuesAndTopics int) {
	return n.quotas.Usage(id)
}

// NamespaceHoldings returns what a namespace holds of the memory and the disk of this member, with its shares.
func (n *Node) NamespaceHoldings(id fsm.NamespaceID) []topology.Holding { return n.quotas.Holdings(id) }

// SetMemory sets how much memory the index of this member may take, and how much it takes, in bytes. It reports whether
// several namespaces hold data at this member: then those that hold more than their share are refused first.
func (n *Node) SetMemory(most, used int64) (isShared bool) { return n.quotas.SetMemory(most, used) }

// Readiness reports, check by check, whether clients should be sent to this member now. See package health.
func (n *Node) Readiness() []health.Check { return n.health.Readiness() }

// Liveness reports, check by check, whether a restart would help. See package health.
func (n *Node) Liveness() []health.Check { return n.health.Liveness() }

// healthState returns what the checks of package health need to know.
func (n *Node) healthState() health.State {
	n.mu.Lock()
	state := health.State{Failed: n.startError != nil, Closing: n.closing}
	n.mu.Unlock()
	state.Removed, state.Loaded = n.removal.is(), n.partitions.Load() != nil
	state.Drained = state.Loaded && n.memberRecord(n.self).Drained
	return state
}

// Removed returns a channel that is closed when this member learns that it was removed from its cluster. The
// process should then call Close and exit. From then on Ready returns datadir.ErrRemoved.
func (n *Node) Removed() <-chan struct{} { return n.removal.done }

// Copied returns a channel that is closed when this member learns that another process has its identity, or a later one
// had it. The process should then call Close and exit. From then on Ready returns datadir.ErrCopied.
func (n *Node) Copied() <-chan struct{} { return n.twin.found }

// FormatLevel is the level of the cluster: formats and commands up to it may be written, because every member
// can read them (see fsm.FormatLevel). It only rises, and may rise a moment before this member learns it. At
// least 1.
func (n *Node) FormatLevel() uint32 { return n.levels.Current() }

// Outdated returns a channel that is closed when this member learns that its binary is too old for the cluster.
// The process should then call Close and exit. From then on Ready returns bootstrap.ErrOutdated.
func (n *Node) Outdated() <-chan struct{} { return n.levels.Outdated() }

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
	n.fail(err)
}

// fail makes Ready return an error.
func (n *Node) fail(err error) {
	n.mu.Lock()
	n.startError = err
	n.mu.Unlock()
	n.changed.Notify()
}
