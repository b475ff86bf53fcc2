package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/logging"
	"github.com/peeklock/peeklock/partition/transport"
)

// openRaft opens an instance on the storage of the group.
func (g *Group) openRaft() error {
	cfg := &g.cfg
	logger := logging.New(cfg.Logger)
	s := transport.NewStreams(transport.StreamConfig{
		ID: cfg.ID, Member: cfg.Member, Dial: cfg.Dial, OnPeerEnd: g.candidacy.noteStreamEnd,
	})
	inst := &instance{
		streams: s, leaders: make(chan raft.Observation, 1), closed: make(chan struct{}), givenUp: make(chan struct{}), log: g.log,
		verifying: make(chan struct{}, verificationsMax), probing: make(chan struct{}, 1),
	}
	inst.transport = transport.New(transport.Config{
		Streams: s, Logger: logger, Closed: inst.closed,
		OnRefusedVote: g.candidacy.noteRefusedVote, Receive: g.snapshots.Receive, HoldsBack: g.candidacy.isReluctant,
		BeatInterval: cfg.Timing.Heartbeat / beatsPerHeartbeat, Stored: g.log.Stored, FailedAppends: g.log.FailedAppends,
		WaitsForTerm: g.log.WaitsForTerm, OnRefusedSnapshot: g.snapshotter.noteRefused,
	})
	conf := cfg.raft()
	conf.Logger = logger
	g.log.SetInstance(nil)
	err := g.bootstrap(conf, inst.transport)
	var r *raft.Raft
	if err == nil {
		g.log.SetInstance(inst.closed)
		r, err = g.newRaft(conf, inst.transport)
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

// errRaftGoroutineEnded means that the log has ended the goroutine that opened raft, and halted the replica.
var errRaftGoroutineEnded = errors.New("a stored value or entry could not be read or written")

// newRaft starts raft on a goroutine of its own: the log ends the goroutine that reads a damaged entry.
func (g *Group) newRaft(conf *raft.Config, to raft.Transport) (r *raft.Raft, err error) {
	err = errRaftGoroutineEnded
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = raft.NewRaft(conf, (*machineFSM)(g), g.log, g.log, g.snapshots, to)
	}()
	<-done
	return r, err
}

// isOtherLeader reports whether raft has observed that another replica leads.
func (g *Group) isOtherLeader(o *raft.Observation) bool {
	now, is := o.Data.(raft.LeaderObservation)
	return is && now.LeaderID != "" && now.LeaderID != raft.ServerID(g.cfg.Replica)
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
func (g *Group) loseLeadership() { g.endLeadership(math.MaxUint64) }

// endLeadership ends this replica's leadership, if it leads in a term before the given one.
func (g *Group) endLeadership(before uint64) {
	if !g.proposer.endLeadership(Unknown, before) {
		return
	}
	g.cfg.Logger.Info("lost leadership of the group", "term", g.instance.Load().raft.CurrentTerm())
	if g.cfg.LeadershipChanged != nil {
		g.cfg.LeadershipChanged(false)
	}
}

// barrierRetryInterval is the time between two barriers of a new leader.
const barrierRetryInterval = 10 * time.Millisecond

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
	newest, _ := g.snapshots.Newest()
	err := g.log.Reconcile(newest.Ends())
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

// Answer answers a question of another replica of the group. If this replica is the better successor, it checks at once
// whether its leader is lost.
func (g *Group) Answer(ctx context.Context, q Question) Verdict { return g.candidacy.answer(ctx, q) }

// Read calls f with a machine that has applied everything that was committed before the call. It works on the
// leader only: on another replica, when leadership is lost meanwhile, and while it is being transferred, it returns an error that wraps
// ErrNotLeader: the next leader may have committed more before this one learns of it, and raft counts answers that were under way.
// The rules of View apply to f.
func (g *Group) Read(ctx context.Context, f func(Machine)) error {
	if err := g.halted(); err != nil {
		return fmt.Errorf("read group %d: %w (%w)", g.cfg.ID, ErrClosed, err)
	}
	inst := g.instance.Load()
	g.proposer.mu.Lock()
	open, term, barrier := g.proposer.leading && !g.proposer.transferring, g.proposer.term, g.proposer.barrier
	g.proposer.mu.Unlock()
	if !open {
		return fmt.Errorf("read group %d: %w", g.cfg.ID, ErrNotLeader)
	}
	index := inst.raft.CommitIndex()
	if err := inst.verifyLeader(ctx); err != nil {
		return fmt.Errorf("read group %d: %w", g.cfg.ID, err)
	}
	if inst.raft.CurrentTerm() != term {
		return fmt.Errorf("read group %d: %w", g.cfg.ID, ErrNotLeader)
	}
	// Entries behind the barrier of this leadership are commands and configurations, which all go through
	// apply; everything before it is applied already.
	if index > barrier {
		if err := g.waitApplied(ctx, inst, index); err != nil {
			return fmt.Errorf("read group %d: %w", g.cfg.ID, err)
		}
	}
	select {
	case g.reads <- struct{}{}:
		defer func() { <-g.reads }()
	case <-ctx.Done():
		return fmt.Errorf("read group %d: %w", g.cfg.ID, ctx.Err())
	}
	g.View(f)
	return nil
}

// waitApplied waits until an index is applied. If the instance ends before, the index may never be: its entry may not be on disk.
func (g *Group) waitApplied(ctx context.Context, inst *instance, index uint64) error {
	if g.applied.Load() >= index {
		return nil
	}
	c := g.appliedWaiters.wait(index)
	defer g.appliedWaiters.cancel(c)
	if g.applied.Load() >= index {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-inst.closed:
		return ErrNotLeader
	case <-g.haltedCh:
		return ErrClosed
	case <-g.closed:
		return ErrClosed
	}
}

// HandOver asks the replica of another member to campaign at once, which then wins if its log has all committed entries. Unlike
// Transfer, it needs nothing of raft's main goroutine here, which may wait for the disk, and can be repeated in a term. This replica
// leads on until it hears of the later term; see Supersede.
func (g *Group) HandOver(ctx context.Context, to fsm.MemberID) error {
	for _, v := range g.Status().Voters {
		if v.Member != to || v.Replica == g.cfg.Replica {
			continue
		}
		inst := g.instance.Load()
		err := await(ctx, func() raft.Future { //nolint:contextcheck // raft.Transport takes no context
			return sentRequest{inst.transport.TimeoutNow(raft.ServerID(v.Replica), raft.ServerAddress(to), timeoutNow(g.cfg.Replica, g.cfg.Member), new(raft.TimeoutNowResponse))}
		})
		if err != nil {
			return fmt.Errorf("hand group %d over to %s: %w", g.cfg.ID, to, err)
		}
		return nil
	}
	return fmt.Errorf("hand group %d over to %s: the member has no other voter of the group", g.cfg.ID, to)
}

// sentRequest is the future of a request that has been answered.
type sentRequest struct{ err error }

func (s sentRequest) Error() error { return s.err }

// Supersede ends this replica's leadership because another replica leads in a later term. Raft's main goroutine finds that out by
// itself, but not while it waits for the disk, and callers would wait with it. Entries in flight end with Unknown.
func (g *Group) Supersede(term uint64) { g.endLeadership(term) }

// Transfer transfers leadership to the replica of another member and returns when this replica is no longer
// the leader. The caller has checked that the member is alive and that its replica has caught up: a transfer
// to a dead member stalls the group for an election timeout, and two such transfers in one leadership wedge
// raft for good, so a leader tries only once.
func (g *Group) Transfer(ctx context.Context, to fsm.MemberID) error {
	p := &g.proposer
	var target *Voter
	for _, v := range g.Status().Voters {
		if v.Member == to && v.Replica != g.cfg.Replica {
			target = &v
			break
		}
	}
	if target == nil {
		return fmt.Errorf("transfer group %d to %s: the member has no other voter of the group", g.cfg.ID, to)
	}
	p.mu.Lock()
	open, spent := p.leading, p.transferTerm == p.term
	if open && !spent {
		p.transferTerm, p.transferring = p.term, true
	}
	p.mu.Unlock()
	switch {
	case !open:
		return fmt.Errorf("transfer group %d: %w", g.cfg.ID, ErrNotLeader)
	case spent:
		return fmt.Errorf("transfer group %d: %w", g.cfg.ID, ErrTransferUsed)
	}
	r := g.instance.Load().raft
	done := make(chan error, 1)
	go func() {
		err := r.LeadershipTransferToServer(raft.ServerID(target.Replica), raft.ServerAddress(target.Member)).Error()
		if err != nil {
			p.mu.Lock()
			p.transferring = false
			p.mu.Unlock()
			p.notify()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("transfer group %d to %s: %w", g.cfg.ID, to, mapRaftError(err))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("transfer group %d to %s: %w", g.cfg.ID, to, ctx.Err())
	}
}
