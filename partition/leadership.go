package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
)

// mapRaftError maps raft's errors to the errors of this package where a caller branches on them.
func mapRaftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w (%w)", ErrNotLeader, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w (%w)", ErrClosed, err)
	}
	return err
}

// await waits for a future of raft, or for ctx. After ctx has ended, the future still completes later, unless
// raft is shut down during a leadership transfer or with a committed barrier not yet applied: raft never
// completes those, and their goroutine stays.
func await(ctx context.Context, start func() raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- start().Error() }()
	select {
	case err := <-done:
		return mapRaftError(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verifyLeader returns when a quorum has confirmed with a heartbeat that this replica leads.
func (inst *instance) verifyLeader(ctx context.Context) error {
	defer inst.transport.Urgent()()
	return await(ctx, inst.raft.VerifyLeader)
}

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
	if err := inst.verifyLeader(ctx); err != nil && !planted.Active(planted.ReadWithoutQuorum) {
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
