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
	entriesPerRequestMax = 64                   // AppendEntries; also entries per apply batch
	trailingEntriesMin   = 256                  // more than a leader can have uncommitted (4 entries)
	snapshotNever        = 24 * 365 * time.Hour // raft's own schedule; the keeper decides
	installsWithoutApply = 5                    // snapshots in a row that led nowhere
)

// instance is one raft instance. A group may outlive several: some states of raft can
// only be left by opening it anew.
type instance struct {
	raft      *raft.Raft
	transport *raft.NetworkTransport
	streams   *streams
	requests  chan<- raft.RPC // to raft, as if a peer had sent them
	ended     chan struct{}   // closed when nothing of it reaches a peer any more
	once      sync.Once
}

// openRaft opens an instance over the storage of the group.
func (g *Group) openRaft() error {
	cfg := &g.cfg
	logger := &raftLogger{to: cfg.Logger, name: "raft", repeats: new(repeats)}
	s := newStreams(cfg, g.streamBroke, g.answer)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:          logger,
		Stream:          s,
		MaxPool:         idleStreamsPerPeer,
		MaxRPCsInFlight: requestsInFlight,
		Timeout:         streamRequestTimeout,
	})
	conf := cfg.raft()
	conf.Logger = logger
	g.log.ended.Store(nil)
	err := g.bootstrap(conf, transport)
	inst := &instance{transport: transport, streams: s, ended: make(chan struct{})}
	var r *raft.Raft
	if err == nil {
		g.log.ended.Store(&inst.ended)
		safe := newSafeTransport(transport, cfg.Replica, inst.ended, g.refused)
		r, err = raft.NewRaft(conf, (*machineFSM)(g), g.log, g.log, g.snaps, safe)
		safe.raft.Store(r)
		inst.requests = safe.consumer
	}
	if err != nil {
		close(inst.ended)
		return errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
	}
	inst.raft = r
	g.inst.Store(inst)
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
	err := raft.BootstrapCluster(conf, g.log, g.log, g.snaps, transport, g.cfg.firstConfiguration())
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
	i.once.Do(func() { close(i.ended) })
	return errors.Join(err, f.Error())
}

// watch follows the leadership of this replica until ctx ends.
func (g *Group) watch(ctx context.Context) {
	halting, removing := g.halting, g.removing
	for {
		inst := g.inst.Load()
		select {
		case <-ctx.Done():
			return
		case leads := <-inst.raft.LeaderCh():
			g.lost()
			if leads && g.halted() == nil && !g.removed.Load() {
				g.gain(ctx, inst)
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
	g.lost()
	if err := inst.close(); err != nil {
		g.cfg.Logger.WarnContext(ctx, "stop raft", "error", err)
	}
}

// gain opens the group for submissions: not when raft says leader, but when everything
// older is applied and the term is still the same.
func (g *Group) gain(ctx context.Context, inst *instance) {
	start := time.Now()
	for ctx.Err() == nil && inst.raft.State() == raft.Leader {
		term := inst.raft.CurrentTerm()
		f := inst.raft.Barrier(0)
		// Raft may lose a barrier that it is shut down with, committed and not yet applied.
		err := await(ctx, func() raft.Future { return f })
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Since(start) > 2*g.cfg.Timing.Election {
			// The flag of a transfer that never ended outlives the leadership it began in.
			g.askReopen("a leadership transfer never ended")
			return
		}
		if err == nil && inst.raft.CurrentTerm() == term && inst.raft.State() == raft.Leader {
			var barrier uint64
			if x, ok := f.(raft.IndexFuture); ok {
				barrier = x.Index()
			}
			g.p.lead(term, barrier)
			g.cfg.Logger.InfoContext(ctx, "leads the group", "term", term, "index", barrier)
			if g.cfg.Led != nil {
				g.cfg.Led(true)
			}
			return
		}
		pause(ctx, barrierRetryWait)
	}
}

// lost ends a leadership, if there was one.
func (g *Group) lost() {
	if !g.p.follow() {
		return
	}
	g.cfg.Logger.Info("leads the group no longer", "term", g.inst.Load().raft.CurrentTerm())
	if g.cfg.Led != nil {
		g.cfg.Led(false)
	}
}

// barrierRetryWait is between two tries to get everything older applied.
const barrierRetryWait = 10 * time.Millisecond

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// askReopen asks the watcher to open raft anew. It does not block.
func (g *Group) askReopen(reason string) {
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
	g.lost()
	if err := g.inst.Load().close(); err != nil {
		g.cfg.Logger.Warn("stop raft", "error", err)
	}
	g.snaps.mu.Lock()
	newest := g.snaps.newest
	g.snaps.mu.Unlock()
	err := g.log.fits(newest)
	if err == nil {
		err = g.openRaft()
	}
	if err != nil {
		g.halt(fmt.Errorf("open raft anew: %w", err))
	}
}

// snapshotArrived counts the snapshots that the leader sends. Many in a row without an
// entry between them is raft going in circles.
func (g *Group) snapshotArrived() {
	if g.installs.Add(1) > installsWithoutApply {
		g.installs.Store(0)
		g.askReopen("snapshots from the leader lead nowhere")
	}
}
