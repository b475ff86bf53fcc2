package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/client"
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
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/cluster/raftgroup"
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
	}
	if n.config.Now == nil {
		n.config.Now = time.Now
	}
	if n.config.Monotonic == nil {
		n.config.Monotonic = func() time.Duration { return time.Since(n.openedAt) }
	}
	n.removal = removal{node: n, done: make(chan struct{})}
	var err error
	if n.dataDir, err = datadir.Open(config.FS, config.Dir); err != nil {
		return nil, fmt.Errorf("open member: %w", err)
	}
	if err = checkOwner(config.FS, n.dataDir, config.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open member: %w", err), n.dataDir.Close())
	}
	n.self = n.dataDir.Identity().Member
	n.twin = twin{node: n, found: make(chan struct{})}
	_, err = n.dataDir.BeginStart()
	if err == nil {
		n.seen, err = n.dataDir.OpenSeen()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open member: %w", err), n.dataDir.Close())
	}
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
	n.levels = levels.New(&levels.Config{
		Self: n.self, Readable: cmp.Or(n.config.readableLevel, fsm.FormatLevel), Dir: n.dataDir, Members: members{n}, Settle: n.config.Timing.Settle,
		Command: n.command, Fail: n.failStart, Groups: func() map[fsm.PartitionID]*partition.Group { return n.replicas.All() }, Logger: n.log,
	})
	if required := n.dataDir.Identity().Level; required > n.levels.Readable {
		return bootstrap.OutdatedError(required, n.levels.Readable)
	}
	var err error
	if n.raftLog, err = openLog(n.dataDir, partition.LogConfig{
		Path: n.dataDir.LogPath(), Kind: n.config.LogStore, SegmentBytes: n.config.Sizes.LogSegment,
		FS: n.config.FS, OpenStore: n.config.OpenLogStore, Logger: n.log,
	}); err != nil {
		return err
	}
	n.replicas = replicas.New(&replicas.Config{
		Self: n.self, Dir: n.dataDir, Log: n.raftLog, Configure: n.replicaConfig, Changed: n.changed.Notify, Opened: n.replicaOpened, Logger: n.log,
	})
	listener := n.config.PeerListener
	if listener == nil {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", n.config.PeerAddr); err != nil {
			return fmt.Errorf("open peer port: %w", err)
		}
	}
	n.backups = &backup.Server{Group: n.replicas.Group, Go: n.startTask, Logger: n.log}
	n.peers = peer.New(&peer.Config{
		Self: n.self, Listener: listener, DialTimeout: n.config.Timing.Dial, Dial: n.config.Dial, TLS: n.config.PeerTLS, Authorities: n.config.PeerAuthorities,
		Cluster: n.clusterID, Address: n.address, Start: n.dataDir.Identity().Start, Observe: n.seen.Observe, Copied: n.twin.stopMember, Known: n.knowsAddress, Raft: n.replicas.Accept,
		Forward: func(from fsm.MemberID, conn net.Conn) { n.served.serve(ctx, transport{n}, n.log, from, conn) },
		Backup:  n.backups.Serve, Logger: n.log,
	})
	n.peerClient = rpc.NewClient(n.log, n.config.Timing.Ping, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
		return n.peers.Dial(ctx, peer.ForwardStream, to, fsm.CatalogPartition)
	})
	n.processes = partition.NewLiveness(n.peers.Probe, func(ctx context.Context, member fsm.MemberID, q partition.Question) (partition.Verdict, error) {
		return askCampaign.Ask(ctx, n.member(member), q)
	})
	n.clocks = clocks.New(n.self, n.config.Now, n.config.Monotonic, n.config.BootTime)
	n.peerClient.OnClock(n.clocks.Observe)
	reach := transport{n}
	n.confirmed = confirm.New(confirm.Config{Ask: n.catalogIndex, Applied: query.Replicas{Local: reach.LocalReplica}.CatalogApplied, Changed: n.changed.Wait})
	n.router = router.New(&router.Config{Config: client.Config{
		Transport: reach, Confirmed: n.confirmed, Incarnation: n.incarnation, Self: n.self, Timing: client.Timing{Retry: n.config.Timing.Retry, Suspect: n.config.Timing.Suspect},
		AnswerLocal: reach.AnswerQuery, Now: n.config.Now,
		Slow: n.config.Slow, SlowAfter: n.config.SlowAfter, Logger: n.log,
	}, ReplicaName: n.replicas.Name})
	n.openParts()
	n.registerQueries()
	n.forwarder = forwarding.New(reach, n.router, n.config.Reread, n.config.Timing.Reconcile, n.log)
	if n.gossip, err = gossip.Open(n.gossipConfig(), n.metadata(listener)); err != nil { //nolint:contextcheck // gossip outlives this call
		return err
	}
	n.space = space.New(&space.Config{
		Self: n.self, Log: n.raftLog, Gossip: n.gossip, Mover: n.mover, Groups: n.replicas.All, Go: n.startTask, Changed: n.reconciler.Wake, Logger: n.log,
	})
	n.slowDisk = slowdisk.New(&slowdisk.Config{
		Self: n.self, Latency: n.raftLog.Latency, Groups: n.replicas.All, Status: n.askStatus, Accepts: n.mover.AcceptsLeaders, Go: n.startTask, Logger: n.log,
	})
	n.health = health.New(&health.Config{
		Self: n.self, Replicas: n.replicas, State: n.healthState, Alive: n.gossip.Alive, Status: n.askStatus,
		Heartbeat: cmp.Or(n.config.Timing.Raft, partition.DefaultTiming()).Heartbeat, DiskSpace: n.raftLog.DiskSpace, LogStats: n.raftLog.Stats,
	})
	n.peers.Start()
	n.log.InfoContext(ctx, "member was started", "member_id", n.self, "peer_address", listener.Addr().String(), "gossip", n.gossip.Address())
	for _, task := range []func(context.Context){
		n.router.Run, n.confirmed.Run, n.pingLoop, n.gossipLoop, n.health.Run, n.catalogLoop, n.reconciler.Run, n.idleShards.Run, n.space.Run, n.slowDisk.Run, n.quotas.Run, n.rates.Run, n.clockLoop,
		n.comparer.Run, n.forwarder.Run,
	} {
		n.startTask(task)
	}
	return nil
}

// newQuotas returns the shares of namespaces.
func (n *Node) newQuotas() *quota.Monitor {
	return quota.New(&quota.Config{
		Self: n.self, Groups: n.replicas.All, Others: members{n}.others, Members: members{n}.holders, Disk: members{n}.diskForData,
		Ask: func(ctx context.Context, member fsm.MemberID) (quota.Report, error) {
			return askUsage.Ask(ctx, n.member(member), struct{}{})
		},
		ViewCatalog: query.Replicas{Local: transport{n}.LocalReplica}.ViewCatalog, Logger: n.log,
	})
}

// replicaConfig returns the configuration of this member's replica of a partition.
func (n *Node) replicaConfig(id fsm.PartitionID) partition.Config {
	config := partition.Config{
		Dial:              n.peers.DialRaft,
		Liveness:          n.processes,
		Now:               n.config.Now,
		Monotonic:         n.config.Monotonic,
		AgreedTime:        n.clocks.AgreedTime,
		IsReluctant:       func() bool { return n.clocks.IsOff(n.self) || n.slowDisk.IsReluctant() },
		LeadershipChanged: func(leads bool) { n.leadershipChanged(id, leads) },
		LeaderFound:       func() { n.router.LeaderChanged(id) },
		Effect:            func(e fsm.Effect) { n.handleEffect(id, e) },
		Refuses:           func(command []byte) fsm.Code { return n.quotas.Refuses(id, command) },
		Namespace:         n.quotas.NamespaceOf,
		Logger:            n.log, SlowLogger: n.config.Slow, SlowAfter: n.config.SlowAfter,
		Timing:      n.config.Timing.Raft,
		Sizes:       n.config.Sizes,
		MeasureDisk: n.config.Free,
	}
	if id == fsm.CatalogPartition {
		config.Applied = func() { notify.WakeUp(n.catalogApplied) }
	}
	return config
}

// replicaOpened is called when this member has opened a replica.
func (n *Node) replicaOpened(id fsm.PartitionID) {
	if id == fsm.CatalogPartition {
		notify.WakeUp(n.catalogApplied) // its state may come from a snapshot, for which Applied is not called
	}
}

// leadershipChanged is called by a group that has gained or lost leadership.
func (n *Node) leadershipChanged(id fsm.PartitionID, leads bool) {
	n.changed.Notify()
	n.router.LeaderChanged(id)
	n.forwarder.LeaderChanged(id, leads)
	if leads {
		n.reconciler.Wake()
		notify.WakeUp(n.catalogApplied) // the state machine of the group may not have the level of the cluster yet
	}
}

// handleEffect is called by a group that this member leads. The state machine stores the pending work, also for
// the next leader; the effect only wakes up this member.
func (n *Node) handleEffect(id fsm.PartitionID, e fsm.Effect) {
	if e.Kind == fsm.EffectIdle {
		n.reconciler.Wake()
	}
	if e.Kind == fsm.EffectIdleShard {
		n.idleShards.Report(e.Address.Entity)
	}
	if e.Kind == fsm.EffectForward {
		n.forwarder.Wake(fsm.Outbox{Partition: id, Address: e.Address})
	}
}

// command submits a command to a partition and waits for its result.
func (n *Node) command(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error) {
	return n.router.Command(ctx, id, command)
}

// confirmRemoved asks the leader of a group whether a replica of this member was removed from it for good.
func (n *Node) confirmRemoved(ctx context.Context, id fsm.PartitionID, number uint32) error {
	_, err := reconcile.Removed.Ask(ctx, n.router.Leader(id), reconcile.RemovedQuery{Partition: id, Replica: fsm.Replica{Member: n.self, Number: number}})
	return err
}

// openParts creates the parts that reach other members through the node.
func (n *Node) openParts() {
	n.quotas = n.newQuotas()
	n.rates = rates.New(n.replicas.All)
	n.healer = &replicas.Healer{Set: n.replicas, Leader: n.router.Leader, Go: n.startTask}
	n.retirer = &replicas.Retirer{
		Set: n.replicas, Confirm: n.confirmRemoved, Go: n.startTask, Busy: make(chan struct{}, 1),
		Closing: func(id fsm.PartitionID) { n.forwarder.LeaderChanged(id, false) },
		Removed: func() { notify.WakeUp(n.catalogApplied) }, // another replica of the group may wait until this one is closed
	}
	identity := n.dataDir.Identity()
	n.bootstrapper = bootstrap.New(bootstrap.Config{
		Self: n.self, Expect: n.config.Expect, ReadableLevel: n.levels.Readable, Dir: n.dataDir, Peers: members{n}, Logger: n.log,
		HasData: identity.Bootstrapping || identity.Cluster != "" || n.dataDir.HasReplica(fsm.CatalogPartition, raftgroup.CatalogReplica),
	})
	n.comparer = compare.New(compare.Config{
		Self: n.self, Interval: n.config.Timing.Compare, ReplicaName: n.replicas.Name, Members: members{n}, Logger: n.log,
		Groups: n.replicas.All,
	})
	moving := move.Config{
		Self: n.self, Node: members{n}, Router: n.router, Replication: n.config.Replication,
		Settle: n.config.Timing.Settle, Opened: n.openedAt, Logger: n.log,
	}
	operator := &move.Operator{Config: moving}
	n.operator = &Operator{Operator: operator, node: n, router: n.router}
	n.mover = move.NewMover(moving)
	n.idleShards = reconcile.NewIdleShards(&reconcile.IdleShardsConfig{Router: n.router, Groups: n.replicas.All, Interval: n.config.Timing.Reconcile, Logger: n.log})
	n.reconciler = reconcile.New(&reconcile.Config{
		Self: n.self, Node: members{n}, Router: n.router, Replicas: n.replicas, Levels: n.levels, Mover: n.mover,
		Balancer: &move.Balancer{Operator: operator, Rebalance: n.config.Rebalance, ReplaceAfter: n.config.ReplaceAfter, Interval: n.config.Timing.Policy},
		Interval: n.config.Timing.Reconcile, Partitions: n.config.Partitions, Replication: n.config.Replication,
		Name: n.config.Name, Zone: n.config.Zone, Weight: n.config.Weight, AskIfRemoved: n.removal.askIfRemoved, Logger: n.log,
	})
}

// registerQueries registers the answers to all queries of other members.
func (n *Node) registerQueries() {
	n.queries = make(rpc.Handlers)
	n.router.RegisterQueries(n.queries)
	n.reconciler.RegisterQueries(n.queries)
	findPlacement.Handle(n.queries, n.readPlacement)
	sayHello.Handle(n.queries, n.hello)
	askPledge.Handle(n.queries, func(_ context.Context, q bootstrap.PledgeRequest) (bool, error) { return n.bootstrapper.Pledge(q) })
	digestOfReplica.Handle(n.queries, n.comparer.AnswerDigest)
	verifyReplicas.Handle(n.queries, n.comparer.Verify)
	compareCheckpoints.Handle(n.queries, n.comparer.AnswerCheckpoints)
	askCampaign.Handle(n.queries, n.replicas.AnswerCampaign)
	askRates.Handle(n.queries, func(_ context.Context, q topology.RatesQuery) ([]topology.EntityRates, error) {
		return n.ledRates(q), nil
	})
	askFigures.Handle(n.queries, func(_ context.Context, q topology.FiguresQuery) ([]topology.Figures, error) {
		return n.ledFigures(q), nil
	})
	askAudit.Handle(n.queries, func(_ context.Context, q topology.AuditQuery) ([]topology.AuditEvent, error) {
		return n.localAudit(q), nil
	})
	askStorage.Handle(n.queries, func(context.Context, struct{}) (topology.Storage, error) { return n.localStorage(), nil })
	askUsage.Handle(n.queries, func(context.Context, struct{}) (quota.Report, error) { return n.quotas.Report(), nil })
	n.registerClientQueries()
}

// gossipConfig returns the part of the configuration that gossip needs.
func (n *Node) gossipConfig() *gossip.Config {
	c := &n.config
	return &gossip.Config{
		Label: c.Cluster, Addr: c.GossipAddr, Advertise: c.GossipAdvertise, Transport: c.GossipTransport, Join: c.Join, Keys: c.GossipKeys,
		ProbeInterval: c.Timing.GossipProbe, GossipInterval: c.Timing.GossipInterval,
		RejoinInterval: c.Timing.Rejoin, TCPTimeout: c.Timing.Dial,
		OnLost: n.onMemberLost, OnTwin: n.twin.appeared, Logger: c.Logger,
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
		AMQP: n.config.AMQPAddr, HTTP: n.config.HTTPAddr, Version: n.config.Version, Zone: n.config.Zone, Level: n.levels.Readable,
		Incarnation: n.incarnation, Started: time.Now().UnixMilli(),
	}
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
		n.mover.TransferAll(transferring, n.replicas.All())
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
	var failed error
	if n.replicas != nil {
		failed = n.replicas.Close(ctx)
	}
	if n.peers != nil {
		n.peers.Close()
	}
	if n.raftLog != nil {
		failed = errors.Join(failed, n.raftLog.Close())
	}
	return errors.Join(failed, n.dataDir.Close())
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

// catalogIndex asks the leader of the catalog for the index that it has applied.
func (n *Node) catalogIndex(ctx context.Context) (uint64, error) {
	return query.CatalogIndex.Ask(ctx, n.router.Leader(fsm.CatalogPartition), struct{}{})
}
