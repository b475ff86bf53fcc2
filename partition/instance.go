package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	entriesPerRequestMax    = 64                   // AppendEntries; also entries per apply batch
	trailingEntriesMin      = 256                  // more than a leader can have uncommitted (4 entries)
	snapshotNever           = 24 * 365 * time.Hour // raft's own schedule; the keeper decides
	installsWithoutApplyMax = 5                    // snapshots in a row that led nowhere
)

// instance is one raft instance. A group may outlive several: some states of raft can
// only be left by opening it anew.
type instance struct {
	raft      *raft.Raft
	transport *raft.NetworkTransport
	streams   *streamLayer
	requests  chan<- raft.RPC // to raft, as if a peer had sent them
	closed    chan struct{}   // closed when nothing of it reaches a peer any more
	once      sync.Once
}

// openRaft opens an instance over the storage of the group.
func (g *Group) openRaft() error {
	cfg := &g.cfg
	logger := &raftLogger{to: cfg.Logger, name: "raft", repeats: new(repeatFilter)}
	s := newStreams(cfg, g.noteStreamEnd, g.answerQuestion)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:          logger,
		Stream:          s,
		MaxPool:         idleStreamsPerPeer,
		MaxRPCsInFlight: requestsInFlight,
		Timeout:         streamRequestTimeout,
	})
	conf := cfg.raft()
	conf.Logger = logger
	g.log.instanceClosed.Store(nil)
	err := g.bootstrap(conf, transport)
	inst := &instance{transport: transport, streams: s, closed: make(chan struct{})}
	var r *raft.Raft
	if err == nil {
		g.log.instanceClosed.Store(&inst.closed)
		safe := newSafeTransport(transport, cfg.Replica, inst.closed, g.noteRefusedVote)
		r, err = raft.NewRaft(conf, (*machineFSM)(g), g.log, g.log, g.snapshots, safe)
		safe.raft.Store(r)
		inst.requests = safe.consumer
	}
	if err != nil {
		close(inst.closed)
		return errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
	}
	inst.raft = r
	g.instance.Store(inst)
	return nil
}

// raft is the configuration of raft.
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
	conf.TrailingLogs = trailingEntriesMin
	conf.SnapshotInterval = snapshotNever
	conf.SnapshotThreshold = math.MaxUint64
	return conf
}

// bootstrap forms the group when it has nothing yet.
func (g *Group) bootstrap(conf *raft.Config, transport raft.Transport) error {
	if len(g.cfg.Bootstrap) == 0 {
		return nil
	}
	err := raft.BootstrapCluster(conf, g.log, g.log, g.snapshots, transport, g.cfg.firstConfiguration())
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil
	}
	return err
}

// firstConfiguration is that of a group that Bootstrap forms.
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

// close stops the instance and waits for its goroutines. Streams are closed before
// waiting: a replicator may sit in a request to a peer that is away.
func (i *instance) close() error {
	f := i.raft.Shutdown()
	err := i.transport.Close()
	i.transport.CloseStreams()
	err = errors.Join(err, i.streams.Close())
	i.once.Do(func() { close(i.closed) })
	return errors.Join(err, f.Error())
}

// watchLeadership follows the leadership of this replica until ctx ends.
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

// stopRaft ends this replica's part in the group; the machine can still be looked at.
func (g *Group) stopRaft(ctx context.Context, inst *instance) {
	g.loseLeadership()
	if err := inst.close(); err != nil {
		g.cfg.Logger.WarnContext(ctx, "stop raft", "error", err)
	}
}

// gainLeadership opens the group for submissions: not when raft says leader, but when everything
// older is applied and the term is still the same.
func (g *Group) gainLeadership(ctx context.Context, inst *instance) {
	start := time.Now()
	for ctx.Err() == nil && inst.raft.State() == raft.Leader {
		term := inst.raft.CurrentTerm()
		f := inst.raft.Barrier(0)
		// Raft may lose a barrier that it is shut down with, committed and not yet applied.
		err := await(ctx, func() raft.Future { return f })
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Since(start) > 2*g.cfg.Timing.Election {
			// The flag of a transfer that never ended outlives the leadership it began in.
			g.requestReopen("a leadership transfer never ended")
			return
		}
		if err == nil && inst.raft.CurrentTerm() == term && inst.raft.State() == raft.Leader {
			var barrier uint64
			if x, ok := f.(raft.IndexFuture); ok {
				barrier = x.Index()
			}
			g.proposer.becomeLeader(term, barrier)
			g.cfg.Logger.InfoContext(ctx, "leads the group", "term", term, "index", barrier)
			if g.cfg.LeadershipChanged != nil {
				g.cfg.LeadershipChanged(true)
			}
			return
		}
		pause(ctx, barrierRetryInterval)
	}
}

// loseLeadership ends a leadership, if there was one.
func (g *Group) loseLeadership() {
	if !g.proposer.stepDown() {
		return
	}
	g.cfg.Logger.Info("leads the group no longer", "term", g.instance.Load().raft.CurrentTerm())
	if g.cfg.LeadershipChanged != nil {
		g.cfg.LeadershipChanged(false)
	}
}

// barrierRetryInterval is between two tries to get everything older applied.
const barrierRetryInterval = 10 * time.Millisecond

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// requestReopen asks the watcher to open raft anew. It does not block.
func (g *Group) requestReopen(reason string) {
	select {
	case g.reopen <- reason:
	default:
	}
}

// reopenRaft replaces the raft instance. The machine stays as it is: entries that raft
// replays are skipped up to what it has seen.
func (g *Group) reopenRaft(reason string) {
	if g.halted() != nil || g.removed.Load() {
		return
	}
	g.cfg.Logger.Warn("raft is stuck and is opened anew", "reason", reason)
	g.loseLeadership()
	if err := g.instance.Load().close(); err != nil {
		g.cfg.Logger.Warn("stop raft", "error", err)
	}
	g.snapshots.mu.Lock()
	newest := g.snapshots.newest
	g.snapshots.mu.Unlock()
	err := g.log.reconcileSnapshot(newest)
	if err == nil {
		err = g.openRaft()
	}
	if err != nil {
		g.halt(fmt.Errorf("open raft anew: %w", err))
	}
}

// noteSnapshotInstalled counts the snapshots that the leader sends. Many in a row without an
// entry between them is raft going in circles.
func (g *Group) noteSnapshotInstalled() {
	if g.installsSinceApply.Add(1) > installsWithoutApplyMax {
		g.installsSinceApply.Store(0)
		g.requestReopen("snapshots from the leader lead nowhere")
	}
}
