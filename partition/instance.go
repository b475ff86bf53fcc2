package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/transport"
)

const (
	entriesPerRequestMax    = 64                   // of one AppendEntries request; also entries per apply batch
	trailingEntriesMin      = 16                   // whatever their size; see snapshotter.trailingEntries
	trailingEntriesUnknown  = 256                  // while the sizes of older entries are not known
	snapshotNever           = 24 * 365 * time.Hour // turns raft's own schedule off; the snapshotter decides
	installsWithoutApplyMax = 5                    // snapshots in a row without an applied entry
	beatsPerHeartbeat       = 20                   // moments at which heartbeats are sent, in one heartbeat timeout; raft sends 5 to 10 of them
)

// instance is one raft instance. A group may use several in turn: raft leaves some states only when it is
// reopened.
type instance struct {
	raft      *raft.Raft
	transport transport.Transport
	streams   *transport.Streams
	leaders   chan raft.Observation // another leader is known; a later one is not reported before this one is received
	closed    chan struct{}         // closed when the instance no longer reaches any peer
	givenUp   chan struct{}         // closed when the instance is to be reopened
	giveUp    sync.Once
	log       *raftlog.Group
	once      sync.Once
	closeErr  error
}

// openRaft opens an instance on the storage of the group.
func (g *Group) openRaft() error {
	cfg := &g.cfg
	logger := &raftLogger{to: cfg.Logger, name: "raft", repeats: new(repeatFilter)}
	s := transport.NewStreams(transport.StreamConfig{
		ID: cfg.ID, Member: cfg.Member, Dial: cfg.Dial, OnPeerEnd: g.noteStreamEnd,
	})
	inst := &instance{streams: s, leaders: make(chan raft.Observation, 1), closed: make(chan struct{}), givenUp: make(chan struct{}), log: g.log}
	inst.transport = transport.New(transport.Config{
		Streams: s, Logger: logger, Closed: inst.closed,
		OnRefusedVote: g.noteRefusedVote, Receive: g.receiveSnapshot, HoldsBack: g.isReluctant,
		BeatInterval: cfg.Timing.Heartbeat / beatsPerHeartbeat, Stored: g.log.Stored, FailedAppends: g.log.FailedAppends,
	})
	conf := cfg.raft()
	conf.Logger = logger
	g.log.SetInstance(nil)
	err := g.bootstrap(conf, inst.transport)
	var r *raft.Raft
	if err == nil {
		g.log.SetInstance(inst.closed)
		r, err = raft.NewRaft(conf, (*machineFSM)(g), g.log, g.log, g.snapshots, inst.transport)
		inst.transport.SetRaft(r)
	}
	if err != nil {
		close(inst.closed)
		return errors.Join(fmt.Errorf("start raft: %w", err), s.Close())
	}
	inst.raft = r
	g.log.SetLeader(func() bool { return r.State() == raft.Leader })
	r.RegisterObserver(raft.NewObserver(inst.leaders, false, g.isOtherLeader))
	g.instance.Store(inst)
	return nil
}

// isOtherLeader reports whether raft has observed that another replica leads.
func (g *Group) isOtherLeader(o *raft.Observation) bool {
	now, is := o.Data.(raft.LeaderObservation)
	return is && now.LeaderID != "" && now.LeaderID != raft.ServerID(g.cfg.Replica)
}

// raft returns raft's configuration.
func (c *Config) raft() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.Replica)
	conf.HeartbeatTimeout = c.Timing.Heartbeat
	conf.ElectionTimeout = c.Timing.Election
	conf.LeaderLeaseTimeout = c.Timing.Lease
	conf.CommitTimeout = c.Timing.Commit
	conf.MaxAppendEntries = entriesPerRequestMax
	conf.BatchApplyCh = false // true loses futures at shutdown and gains nothing
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.NoSnapshotRestoreOnStart = true // Open has loaded it
	conf.TrailingLogs = trailingEntriesUnknown
	conf.SnapshotInterval = snapshotNever
	conf.SnapshotThreshold = math.MaxUint64
	return conf
}

// bootstrap forms the group if it has no state yet.
func (g *Group) bootstrap(conf *raft.Config, transport raft.Transport) error {
	if len(g.cfg.Bootstrap) == 0 {
		return nil
	}
	err := raft.BootstrapCluster(conf, g.log, g.log, g.snapshots, transport, g.cfg.firstConfiguration())
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil
	}
	g.goesFirst = err == nil && g.cfg.Bootstrap[0].Replica == g.cfg.Replica
	return err
}

// firstConfiguration returns the configuration of the group that Bootstrap forms.
func (c *Config) firstConfiguration() raft.Configuration {
	var first raft.Configuration
	for _, v := range c.Bootstrap {
		first.Servers = append(first.Servers, raft.Server{
			Suffrage: raft.Voter,
			ID:       raft.ServerID(v.Replica),
			Address:  raft.ServerAddress(v.Member),
		})
	}
	return first
}

// close stops the instance and waits for its goroutines. It closes the streams first: a replicator may be
// blocked in a request to a peer that does not answer.
func (i *instance) close() error {
	i.once.Do(func() {
		f := i.raft.Shutdown()
		err := i.streams.Close()
		close(i.closed)
		i.closeErr = errors.Join(err, f.Error())
		i.transport.WaitReceptions()
		i.log.EndInstance()
	})
	return i.closeErr
}

// watchLeadership follows changes of this replica's leadership until ctx ends, and reopens or stops raft on
// request.
func (g *Group) watchLeadership(ctx context.Context) {
	halting, removing := g.haltedCh, g.removedCh
	for {
		inst := g.instance.Load()
		select {
		case <-ctx.Done():
			return
		case leads := <-inst.raft.LeaderCh():
			g.loseLeadership()
			if leads && g.halted() == nil && !g.removed.Load() {
				g.gainLeadership(ctx, inst)
			}
		case <-inst.leaders:
			if g.cfg.LeaderFound != nil {
				g.cfg.LeaderFound()
			}
		case reason := <-g.reopen:
			g.reopenRaft(reason)
		case <-halting:
			halting = nil
			g.stopRaft(ctx, inst)
		case <-removing:
			removing = nil
			g.stopRaft(ctx, inst)
		}
	}
}

// stopRaft ends this replica's part in the group; View still works.
func (g *Group) stopRaft(ctx context.Context, inst *instance) {
	g.loseLeadership()
	if err := inst.close(); err != nil {
		g.cfg.Logger.WarnContext(ctx, "failed to stop raft", "error", err)
	}
}

// gainLeadership opens the group for submissions: not when raft becomes leader, but when everything older is
// applied and the term is still the same.
func (g *Group) gainLeadership(ctx context.Context, inst *instance) {
	start := time.Now()
	// Raft's state machine waits for entries that will never be on disk when the instance is given up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-inst.givenUp:
		case <-g.haltedCh:
		case <-ctx.Done():
		}
		cancel()
	}()
	for ctx.Err() == nil && inst.raft.State() == raft.Leader {
		term := inst.raft.CurrentTerm()
		var f raft.Future
		// Raft never completes a barrier that is committed and not yet applied when raft is shut down.
		err := await(ctx, func() raft.Future {
			f = inst.raft.Barrier(0)
			return f
		})
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Since(start) > 2*g.cfg.Timing.Election {
			// The flag of a transfer that never ended outlives the leadership in which the transfer began.
			g.requestReopen("a leadership transfer never ended")
			return
		}
		if err == nil && inst.raft.CurrentTerm() == term && inst.raft.State() == raft.Leader {
			var barrier uint64
			if x, ok := f.(raft.IndexFuture); ok {
				barrier = x.Index()
			}
			g.proposer.becomeLeader(term, barrier)
			g.cfg.Logger.InfoContext(ctx, "became leader of the group", "term", term, "index", barrier)
			if g.cfg.LeadershipChanged != nil {
				g.cfg.LeadershipChanged(true)
			}
			return
		}
		pause(ctx, barrierRetryInterval)
	}
}

// loseLeadership ends this replica's leadership, if it was the leader.
func (g *Group) loseLeadership() {
	if !g.proposer.stepDown() {
		return
	}
	g.cfg.Logger.Info("lost leadership of the group", "term", g.instance.Load().raft.CurrentTerm())
	if g.cfg.LeadershipChanged != nil {
		g.cfg.LeadershipChanged(false)
	}
}

// barrierRetryInterval is the time between two barriers of a new leader.
const barrierRetryInterval = 10 * time.Millisecond

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// requestReopen asks watchLeadership to reopen raft. It does not block.
func (g *Group) requestReopen(reason string) {
	if inst := g.instance.Load(); inst != nil {
		inst.giveUp.Do(func() { close(inst.givenUp) })
	}
	select {
	case g.reopen <- reason:
	default:
	}
}

// reopenRaft replaces the raft instance. The machine keeps its state: apply skips the entries that raft
// replays up to the applied index.
func (g *Group) reopenRaft(reason string) {
	if g.halted() != nil || g.removed.Load() {
		return
	}
	g.cfg.Logger.Warn("raft got stuck and is being reopened", "reason", reason)
	g.loseLeadership()
	if err := g.instance.Load().close(); err != nil {
		g.cfg.Logger.Warn("failed to stop raft", "error", err)
	}
	g.snapshots.mu.Lock()
	newest := g.snapshots.newest
	g.snapshots.mu.Unlock()
	err := g.log.Reconcile(newest.ends())
	if err == nil {
		err = g.openRaft()
	}
	if err != nil {
		g.halt(fmt.Errorf("reopen raft: %w", err))
	}
}

// noteSnapshotInstalled counts the snapshots that the leader sends. Many in a row without an applied entry
// between them mean that raft is in a loop.
func (g *Group) noteSnapshotInstalled() {
	if g.installsSinceApply.Add(1) > installsWithoutApplyMax {
		g.installsSinceApply.Store(0)
		g.requestReopen("the leader sends snapshots without end")
	}
}
