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

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a node.
const (
	openAtATime = 4                // replicas opened at the same time
	closeMax    = 20 * time.Second // for all replicas to close
	readyLook   = 20 * time.Millisecond
)

// Node is one member: its groups, its gossip, its peer port and its router.
// Its methods may be called concurrently.
type Node struct {
	config      Config
	log         *slog.Logger
	folder      *folder
	self        fsm.MemberID
	incarnation uint64
	opened      time.Time

	store   *partition.Log
	gossip  *gossip.Membership
	peers   *peer.Transport
	forward *forwarder
	router  *Router
	carrier *carrier
	founder *founder

	groups  atomic.Pointer[map[fsm.PartitionID]*partition.Group] // open replicas; replaced, never written
	placed  atomic.Pointer[[]fsm.Partition]                      // of the catalog, nil before it is loaded
	members atomic.Pointer[[]fsm.Member]                         // of the catalog, by id; nil before it is loaded
	level   atomic.Uint32                                        // of the catalog, 0 before it is loaded
	changed notify.Broadcast                                     // leaders, members, replicas, catalog
	applied chan struct{}                                        // holds one: the catalog has applied something
	wake    chan struct{}                                        // holds one: reconcile now

	health     health
	undecided  sync.Map     // of fsm.PartitionID: led here, and replicas differ of which none has a majority
	backups    atomic.Int32 // being written
	introduced bool         // zone and weight are recorded; reconcileLoop's
	raising    raising      // reconcileLoop's
	policy     policy
	outdated   chan struct{} // closed when the cluster needs more than we know

	mu                   sync.Mutex // guards what follows, and the replacing of groups
	serving              map[fsm.MemberID]*serving
	numbers              map[fsm.PartitionID]uint32 // of the open replicas
	moving               map[fsm.PartitionID]bool   // partitions that a goroutine moves
	retiring, isExpelled bool
	dismissed            time.Time     // when others first said that we were removed
	expelled             chan struct{} // closed when this member learns that it was removed
	failed               error         // why this member will never be ready
	closing              bool
	tasks                sync.WaitGroup
	// start runs a task that close waits for; false when closing.
	start func(task func(ctx context.Context)) bool
	stop  context.CancelFunc
	once  sync.Once
	ended error
}

// serving is a forward connection of another member.
type serving struct {
	conn net.Conn
	done chan struct{}
}

// Open starts a member. It returns as soon as the member can be reached by others; Ready
// waits until it is of use. ctx bounds the opening only.
func Open(ctx context.Context, config Config) (*Node, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		config:      config,
		incarnation: drawIncarnation(),
		opened:      time.Now(),
		applied:     make(chan struct{}, 1),
		wake:        make(chan struct{}, 1),
		serving:     make(map[fsm.MemberID]*serving),
		numbers:     make(map[fsm.PartitionID]uint32),
		moving:      make(map[fsm.PartitionID]bool),
		expelled:    make(chan struct{}),
		outdated:    make(chan struct{}),
	}
	n.groups.Store(&map[fsm.PartitionID]*partition.Group{})
	if n.config.Now == nil {
		n.config.Now = time.Now
	}
	var err error
	if n.folder, err = openFolder(config.Dir); err != nil {
		return nil, fmt.Errorf("open member: %w", err)
	}
	n.self = n.folder.id.Member
	n.log = config.Logger.With(slog.String("member", shortID(n.self)))
	n.config.Logger = n.log
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	n.start = func(task func(context.Context)) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.closing {
			return false
		}
		n.tasks.Go(func() { task(life) })
		return true
	}
	if err := n.open(life); err != nil {
		_ = n.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("open member: %w", err)
	}
	return n, nil
}

// drawIncarnation draws 64 random bits, not 0, which means "nobody" in a Header.
func drawIncarnation() uint64 {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(bits[:]))
}

// shortID is enough of a member id for people to tell members apart.
func shortID(id fsm.MemberID) string { return string(id[:min(8, len(id))]) }

// open starts the parts, innermost first.
func (n *Node) open(ctx context.Context) error {
	if needs := n.folder.id.Level; needs > n.knows() {
		return outdated(needs, n.knows())
	}
	var err error
	if n.store, err = partition.OpenLog(n.folder.logPath(), n.log); err != nil {
		return err
	}
	listener := n.config.PeerListener
	if listener == nil {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", n.config.PeerAddr); err != nil {
			return fmt.Errorf("open peer port: %w", err)
		}
	}
	n.peers = peer.New(&peer.Config{
		Self: n.self, Listener: listener, DialTimeout: n.config.Timing.Dial, TLS: n.config.PeerTLS,
		Cluster: n.clusterID, Address: n.address, Raft: n.acceptRaft,
		Forward: func(from fsm.MemberID, conn net.Conn) { n.acceptForward(ctx, from, conn) },
		Backup:  n.serveBackup, Logger: n.log,
	})
	n.forward = newForwarder(n.log, n.config.Timing.Ping, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
		return n.peers.Dial(ctx, peer.ForwardStream, to, fsm.CatalogPartition)
	})
	n.router = newRouter(n, n.incarnation, n.self, n.config.Timing, n.log)
	n.router.status, n.router.now, n.router.house = n.status, n.config.Now, n
	n.router.slow = slowness{n.config.Slow, n.config.SlowAfter}
	n.router.desk.name = n.replicaName
	n.carrier = newCarrier(n, n.router, n.config.Reread, n.config.Timing.Reconcile, n.log)
	n.founder = &founder{
		self: n.self, expect: n.config.Expect, folder: n.folder, log: n.log, knows: n.knows(),
		alive: func() []fsm.MemberID { return n.gossip.Alive() },
		query: n.ask,
		holds: n.folder.id.Founding || n.folder.id.Cluster != "" || n.folder.holds(fsm.CatalogPartition, catalogNumber),
	}
	if n.gossip, err = gossip.Open(n.gossipConfig(), n.metadata(listener)); err != nil {
		return err
	}
	n.peers.Start()
	n.log.InfoContext(ctx, "member is up", "member_id", n.self, "peer_address", listener.Addr().String(), "gossip", n.gossip.Address())
	n.start(n.router.tickLoop)
	n.start(n.pingLoop)
	n.start(n.gossipLoop)
	n.start(n.healthLoop)
	n.start(n.catalogLoop)
	n.start(n.reconcileLoop)
	n.start(n.roomLoop)
	n.start(n.compareLoop)
	n.start(n.carrier.run)
	return nil
}

// gossipConfig is the part of the configuration that gossip needs.
func (n *Node) gossipConfig() *gossip.Config {
	c := &n.config
	return &gossip.Config{
		Label: c.Cluster, Addr: c.GossipAddr, Advertise: c.GossipAdvertise, Join: c.Join, Keys: c.GossipKeys,
		ProbeInterval: c.Timing.GossipProbe, GossipInterval: c.Timing.GossipInterval,
		RejoinInterval: c.Timing.Rejoin, TCPTimeout: c.Timing.Dial,
		Lost: n.memberLost, Logger: c.Logger,
	}
}

// metadata is what this member says about itself.
func (n *Node) metadata(listener net.Listener) gossip.Metadata {
	peer := n.config.PeerAdvertise
	if peer == "" {
		peer = listener.Addr().String()
		if tcp, ok := listener.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			peer = fmt.Sprintf(":%d", tcp.Port) // at the address that gossip uses
		}
	}
	return gossip.Metadata{
		Member: n.self, Name: n.config.Name, Cluster: n.folder.id.Cluster, Peer: peer,
		AMQP: n.config.AMQPAddr, HTTP: n.config.HTTPAddr, Version: n.config.Version, Zone: n.config.Zone, Level: n.knows(),
		Incarnation: n.incarnation, Started: time.Now().UnixMilli(),
	}
}

// Router brings requests to where they are done.
func (n *Node) Router() *Router { return n.router }

// Forwarding says what this member has forwarded between entities.
func (n *Node) Forwarding() ForwardFigures { return n.carrier.figures() }

// ID is the member's id.
func (n *Node) ID() fsm.MemberID { return n.self }

// GossipAddr is the ip:port that others can join.
func (n *Node) GossipAddr() string { return n.gossip.Address() }

// PeerAddr is the host:port of the peer port.
func (n *Node) PeerAddr() string { return n.peers.Addr().String() }

// Status is the cluster as this member sees it.
func (n *Node) Status(ctx context.Context) (Status, error) { return n.status(ctx) }

// Ready waits until the catalog is loaded, every replica of this member is open and
// every partition has a leader. It returns early when that can never be.
func (n *Node) Ready(ctx context.Context) error {
	ticker := time.NewTicker(readyLook)
	defer ticker.Stop()
	for {
		changed := n.changed.Wait()
		n.mu.Lock()
		failed, closing := n.failed, n.closing
		n.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case closing:
			return errors.New("member is closing")
		}
		if n.replicasOpen() {
			break
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the catalog and the replicas: %w", ctx.Err())
		}
	}
	for _, part := range append([]fsm.Partition{{ID: fsm.CatalogPartition}}, *n.placed.Load()...) {
		if _, err := n.router.line(part.ID).awaitLeader(ctx); err != nil {
			return fmt.Errorf("wait for a leader of partition %d: %w", part.ID, err)
		}
	}
	return nil
}

// replicasOpen says whether the catalog is loaded and every replica it gives us is open.
func (n *Node) replicasOpen() bool {
	placed := n.placed.Load()
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

// Close gives the leaderships away (for at most Timing.Handover), tells the others, and
// stops. It is idempotent.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() { n.ended = n.close(ctx) })
	return n.ended
}

func (n *Node) close(ctx context.Context) error {
	if n.gossip != nil {
		n.gossip.SetLeaving()
		n.handOver(ctx)
	}
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.changed.Notify()
	n.stop()
	if n.router != nil {
		n.router.close()
	}
	if n.gossip != nil {
		n.gossip.Close()
	}
	if n.forward != nil {
		n.forward.close()
	}
	n.tasks.Wait() // from here on nobody opens a replica
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeMax)
	defer cancel()
	failed := n.closeGroups(ctx)
	if n.peers != nil {
		n.peers.Close()
	}
	if n.store != nil {
		failed = errors.Join(failed, n.store.Close())
	}
	return errors.Join(failed, n.folder.close())
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

// fail records that this member will never be ready.
func (n *Node) fail(err error) {
	n.log.Error("member cannot start", "error", err)
	n.mu.Lock()
	n.failed = err
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
			n.forward.tick(now)
		}
	}
}

// gossipLoop passes changes of members on to whoever waits for changes.
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
