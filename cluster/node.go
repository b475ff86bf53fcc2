package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/forwarding"
	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a node.
const (
	concurrentOpensMax = 4                // replicas opened at the same time
	closeTimeout       = 20 * time.Second // for all replicas to close
	readyPollInterval  = 20 * time.Millisecond
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

	groups         atomic.Pointer[map[fsm.PartitionID]*partition.Group] // open replicas; replaced, never written
	partitions     atomic.Pointer[[]fsm.Partition]                      // of the catalog, nil before it is loaded
	members        atomic.Pointer[[]fsm.Member]                         // of the catalog, by id; nil before it is loaded
	formatLevel    atomic.Uint32                                        // of the catalog, 0 before it is loaded
	changed        notify.Broadcast                                     // leaders, members, replicas, catalog
	catalogApplied chan struct{}                                        // buffer of one: the catalog has applied something
	reconcileNow   chan struct{}                                        // buffer of one: reconcile now
	idleShards     chan fsm.EntityID                                    // of partitions that this member leads

	health        health
	selfRecorded  bool          // zone and weight are recorded in the catalog; used by reconcileLoop only
	levelProposal levelProposal // used by reconcileLoop only
	healing       atomic.Bool   // a task has damaged replicas replaced
	outdated      chan struct{} // closed when the cluster needs a higher level than this binary can read

	mu                  sync.Mutex // guards the fields below, and the replacement of groups
	servedConns         map[fsm.MemberID]*peerServerConn
	replicaNumbers      map[fsm.PartitionID]uint32 // of the open replicas
	damaged             map[fsm.PartitionID]uint32 // numbers of the replicas whose log was found damaged
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

// checkOwner returns an error if a data folder holds a replica of the catalog of another member than the identity names:
// the identity is damaged, or was taken from another folder, and two processes would act as one member.
func checkOwner(files partition.FS, dir *datadir.Dir, path string) error {
	identity := dir.Identity()
	member := identity.Member
	replica := partition.ReplicaOf(files, dir.ReplicaPath(fsm.CatalogPartition, identity.CatalogNumber()))
	if owner := raftgroup.ReplicaMember(replica); owner != "" && owner != member {
		return fmt.Errorf("data folder %s holds replicas of member %s although its member.json names member %s: restore member.json, or start over in an empty folder",
			path, owner, member)
	}
	return nil
}

// Open starts a member. It returns as soon as other members can reach this one; Ready waits until the member
// can serve requests. ctx bounds the opening only.
func Open(ctx context.Context, config Config) (*Node, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		config:         config,
		incarnation:    newIncarnation(),
		openedAt:       time.Now(),
		catalogApplied: make(chan struct{}, 1),
		reconcileNow:   make(chan struct{}, 1),
		idleShards:     make(chan fsm.EntityID, idleShardsMax),
		servedConns:    make(map[fsm.MemberID]*peerServerConn),
		replicaNumbers: make(map[fsm.PartitionID]uint32),
		damaged:        make(map[fsm.PartitionID]uint32),
		removed:        make(chan struct{}),
		outdated:       make(chan struct{}),
	}
	n.groups.Store(&map[fsm.PartitionID]*partition.Group{})
	if n.config.Now == nil {
		n.config.Now = time.Now
	}
	if n.config.Monotonic == nil {
		n.config.Monotonic = func() time.Duration { return time.Since(n.openedAt) }
	}
	var err error
	if n.dataDir, err = datadir.Open(config.FS, config.Dir); err != nil {
		return nil, fmt.Errorf("open member: %w", err)
	}
	if err = checkOwner(config.FS, n.dataDir, config.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open member: %w", err), n.dataDir.Close())
	}
	n.self = n.dataDir.Identity().Member
	n.log = config.Logger.With(slog.String("member", shortID(n.self)))
	n.config.Logger = n.log
	lifetime, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	n.startTask = func(task func(context.Context)) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.closing {
			return false
		}
		n.tasks.Go(func() { task(lifetime) })
		return true
	}
	if err := n.open(lifetime); err != nil {
		_ = n.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("open member: %w", err)
	}
	return n, nil
}

// newIncarnation returns 64 random bits. It never returns 0, which means "no incarnation" in a Header.
func newIncarnation() uint64 {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(bits[:]))
}

// shortID returns a prefix of a member id that is long enough for people to tell members apart.
func shortID(id fsm.MemberID) string { return string(id[:min(8, len(id))]) }

// open starts the parts, each before the parts that use it.
func (n *Node) open(ctx context.Context) error {
	if required := n.dataDir.Identity().Level; required > n.readableLevel() {
		return bootstrap.OutdatedError(required, n.readableLevel())
	}
	var err error
	if n.raftLog, err = openLog(n.dataDir, partition.LogConfig{
		Path: n.dataDir.LogPath(), Kind: n.config.LogStore, SegmentBytes: n.config.Sizes.LogSegment,
		FS: n.config.FS, OpenStore: n.config.OpenLogStore, Logger: n.log,
	}); err != nil {
		return err
	}
	listener := n.config.PeerListener
	if listener == nil {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", n.config.PeerAddr); err != nil {
			return fmt.Errorf("open peer port: %w", err)
		}
	}
	n.backups = &backup.Server{Group: n.group, Go: n.startTask, Logger: n.log}
	n.peers = peer.New(&peer.Config{
		Self: n.self, Listener: listener, DialTimeout: n.config.Timing.Dial, Dial: n.config.Dial, TLS: n.config.PeerTLS,
		Cluster: n.clusterID, Address: n.address, Raft: n.acceptRaft,
		Forward: func(from fsm.MemberID, conn net.Conn) { n.acceptPeer(ctx, from, conn) },
		Backup:  n.backups.Serve, Logger: n.log,
	})
	n.peerClient = rpc.NewClient(n.log, n.config.Timing.Ping, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
		return n.peers.Dial(ctx, peer.ForwardStream, to, fsm.CatalogPartition)
	})
	n.processes = partition.NewLiveness(n.peers.Probe, func(ctx context.Context, member fsm.MemberID, q partition.Question) (partition.Verdict, error) {
		return askCampaign.Ask(ctx, n.member(member), q)
	})
	n.clocks = clocks.New(n.self, n.config.Now, n.config.Monotonic)
	n.peerClient.OnClock(n.clocks.Observe)
	reach := transport{n}
	n.router = router.New(&router.Config{Config: client.Config{
		Transport: reach, Incarnation: n.incarnation, Self: n.self, Timing: client.Timing{Retry: n.config.Timing.Retry, Suspect: n.config.Timing.Suspect},
		AnswerLocal: reach.AnswerQuery, Now: n.config.Now,
		Slow: n.config.Slow, SlowAfter: n.config.SlowAfter, Logger: n.log,
	}, ReplicaName: n.replicaName})
	n.openParts()
	n.registerQueries()
	n.forwarder = forwarding.New(reach, n.router, n.config.Reread, n.config.Timing.Reconcile, n.log)
	if n.gossip, err = gossip.Open(n.gossipConfig(), n.metadata(listener)); err != nil {
		return err
	}
	n.peers.Start()
	n.log.InfoContext(ctx, "member was started", "member_id", n.self, "peer_address", listener.Addr().String(), "gossip", n.gossip.Address())
	n.startTask(n.router.Run)
	n.startTask(n.pingLoop)
	n.startTask(n.gossipLoop)
	n.startTask(n.healthLoop)
	n.startTask(n.catalogLoop)
	n.startTask(n.reconcileLoop)
	n.startTask(n.idleShardsLoop)
	n.startTask(n.spaceLoop)
	n.startTask(n.clockLoop)
	n.startTask(n.comparer.Run)
	n.startTask(n.forwarder.Run)
	return nil
}

// openParts creates the parts that reach other members through the node.
func (n *Node) openParts() {
	identity := n.dataDir.Identity()
	n.bootstrapper = bootstrap.New(bootstrap.Config{
		Self: n.self, Expect: n.config.Expect, ReadableLevel: n.readableLevel(), Dir: n.dataDir, Peers: members{n}, Logger: n.log,
		HasData: identity.Bootstrapping || identity.Cluster != "" || n.dataDir.HasReplica(fsm.CatalogPartition, raftgroup.CatalogReplica),
	})
	n.comparer = compare.New(compare.Config{
		Self: n.self, Interval: n.config.Timing.Compare, ReplicaName: n.replicaName, Members: members{n}, Logger: n.log,
		Groups: func() map[fsm.PartitionID]*partition.Group { return *n.groups.Load() },
	})
	moving := move.Config{
		Self: n.self, Node: members{n}, Router: n.router, Replication: n.config.Replication,
		Settle: n.config.Timing.Settle, Opened: n.openedAt, Logger: n.log,
	}
	operator := &move.Operator{Config: moving}
	n.operator = &Operator{Operator: operator, node: n, router: n.router}
	n.mover = move.NewMover(moving)
	n.balancer = &move.Balancer{Operator: operator, Rebalance: n.config.Rebalance, ReplaceAfter: n.config.ReplaceAfter, Interval: n.config.Timing.Policy}
}

// gossipConfig returns the part of the configuration that gossip needs.
func (n *Node) gossipConfig() *gossip.Config {
	c := &n.config
	return &gossip.Config{
		Label: c.Cluster, Addr: c.GossipAddr, Advertise: c.GossipAdvertise, Transport: c.GossipTransport, Join: c.Join, Keys: c.GossipKeys,
		ProbeInterval: c.Timing.GossipProbe, GossipInterval: c.Timing.GossipInterval,
		RejoinInterval: c.Timing.Rejoin, TCPTimeout: c.Timing.Dial,
		OnLost: n.onMemberLost, Logger: c.Logger,
	}
}

// metadata returns what this member announces about itself in gossip.
func (n *Node) metadata(listener net.Listener) gossip.Metadata {
	peer := n.config.PeerAdvertise
	if peer == "" {
		peer = listener.Addr().String()
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			peer = fmt.Sprintf(":%d", tcp.Port) // on the host that gossip uses
		}
	}
	return gossip.Metadata{
		Member: n.self, Name: n.config.Name, Cluster: n.dataDir.Identity().Cluster, Peer: peer,
		AMQP: n.config.AMQPAddr, HTTP: n.config.HTTPAddr, Version: n.config.Version, Zone: n.config.Zone, Level: n.readableLevel(),
		Incarnation: n.incarnation, Started: time.Now().UnixMilli(),
	}
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
	if placed == nil {
		return false
	}
	groups := *n.groups.Load()
	for i := range *placed {
		if part := &(*placed)[i]; placement.HoldsReplica(part, n.self) && groups[part.ID] == nil {
			return false
		}
	}
	return true
}

// Close transfers the leaderships of this member (for at most Timing.Handover), announces the leave to the
// other members, and stops. It is idempotent.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() { n.closeError = n.close(ctx) })
	return n.closeError
}

func (n *Node) close(ctx context.Context) error {
	if n.gossip != nil {
		n.gossip.SetLeaving()
		transferring, cancel := context.WithTimeout(ctx, n.config.Timing.Handover)
		n.mover.TransferAll(transferring, *n.groups.Load())
		cancel()
	}
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.changed.Notify()
	n.stop()
	if n.router != nil {
		n.router.Close()
	}
	if n.gossip != nil {
		n.gossip.Close()
	}
	if n.peerClient != nil {
		n.peerClient.Close()
	}
	n.tasks.Wait() // from here on no task opens a replica
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	failed := n.closeGroups(ctx)
	if n.peers != nil {
		n.peers.Close()
	}
	if n.raftLog != nil {
		failed = errors.Join(failed, n.raftLog.Close())
	}
	return errors.Join(failed, n.dataDir.Close())
}

func (n *Node) closeGroups(ctx context.Context) error {
	var closing sync.WaitGroup
	groups := *n.groups.Load()
	n.groups.Store(&map[fsm.PartitionID]*partition.Group{})
	failures := make(chan error, len(groups))
	for _, group := range groups {
		closing.Go(func() { failures <- group.Close(ctx) })
	}
	closing.Wait()
	close(failures)
	var failed error
	for err := range failures {
		failed = errors.Join(failed, err)
	}
	return failed
}

// failStart records that this member will never be ready.
func (n *Node) failStart(err error) {
	n.log.Error("failed to start the member", "error", err)
	n.mu.Lock()
	n.startError = err
	n.mu.Unlock()
	n.changed.Notify()
}

func (n *Node) pingLoop(ctx context.Context) {
	ticker := time.NewTicker(n.config.Timing.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			n.peerClient.PingAll(now)
			n.compareClocks(ctx)
		}
	}
}

// gossipLoop forwards changes of the member list to all goroutines that wait for changes of the node.
func (n *Node) gossipLoop(ctx context.Context) {
	for {
		changed := n.gossip.Changed()
		select {
		case <-ctx.Done():
			return
		case <-changed:
			n.changed.Notify()
		}
	}
}
