package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// membershipTimeout bounds a change of membership when its context has no deadline.
const membershipTimeout = 10 * time.Second

// committedPollInterval is the time between two reads of the commit index.
const committedPollInterval = 5 * time.Millisecond

// ErrNotNonvoter means that a replica cannot become a voter because the group does not contain it yet: a
// replica that counts for the quorum must have caught up before.
var ErrNotNonvoter = errors.New("the replica is not a non-voter of the group")

// configuration is the list of servers of a raft configuration.
type configuration []raft.Server

// find returns the server entry of a replica, nil when the group does not contain it.
func (c configuration) find(replica string) *raft.Server {
	at := slices.IndexFunc(c, func(s raft.Server) bool { return string(s.ID) == replica })
	if at < 0 {
		return nil
	}
	return &c[at]
}

// AddNonvoter adds a replica that receives the log and does not vote. Leader only; it returns when the change
// is committed. A replica that the group contains already, also as a voter, is not changed, and that is no
// error. A member has one replica of a group at a time: its former one must have been removed.
func (g *Group) AddNonvoter(ctx context.Context, replica string, member fsm.MemberID) error {
	return g.change(ctx, "add non-voter "+replica,
		func(c configuration) (bool, error) {
			s := c.find(replica)
			return s != nil && s.Address == raft.ServerAddress(member), nil
		},
		func(r *raft.Raft, prev uint64, wait time.Duration) raft.IndexFuture {
			return r.AddNonvoter(raft.ServerID(replica), raft.ServerAddress(member), prev, wait)
		})
}

// AddVoter makes a non-voter a voter. The replica counts for the quorum at once, so the caller has checked
// that it has caught up (Applied in the [Status] of that member). Leader only; it returns when the change is
// committed, and at once when the replica is a voter already. It returns ErrNotNonvoter when the group does
// not contain the replica.
func (g *Group) AddVoter(ctx context.Context, replica string, member fsm.MemberID) error {
	return g.change(ctx, "add voter "+replica,
		func(c configuration) (bool, error) {
			s := c.find(replica)
			if s == nil {
				return false, ErrNotNonvoter
			}
			return s.Suffrage == raft.Voter && s.Address == raft.ServerAddress(member), nil
		},
		func(r *raft.Raft, prev uint64, wait time.Duration) raft.IndexFuture {
			return r.AddVoter(raft.ServerID(replica), raft.ServerAddress(member), prev, wait)
		})
}

// RemoveReplica removes a voter or non-voter from the group. Leader only; it returns when the change is
// committed, and at once when the group does not contain the replica. Removing the last voter is an error. A
// leader that removes itself is no longer the leader when RemoveReplica returns, and the others then need an
// election: transfer leadership first. A replica that learns of its removal stops its raft instance
// ([Status].Removed) and keeps its data until Destroy; a replica that is cut off does not learn of it and can
// do no harm.
func (g *Group) RemoveReplica(ctx context.Context, replica string) error {
	return g.change(ctx, "remove replica "+replica,
		func(c configuration) (bool, error) { return c.find(replica) == nil, nil },
		func(r *raft.Raft, prev uint64, wait time.Duration) raft.IndexFuture {
			return r.RemoveServer(raft.ServerID(replica), prev, wait)
		})
}

// change makes one change of membership on top of the newest configuration that this leader has applied: raft
// refuses it when another change came between. already reports that the change is done already, or returns
// why it cannot be made.
func (g *Group) change(ctx context.Context, what string,
	already func(configuration) (bool, error),
	start func(r *raft.Raft, prev uint64, wait time.Duration) raft.IndexFuture,
) error {
	select {
	case g.membershipSlot <- struct{}{}:
		defer func() { <-g.membershipSlot }()
	case <-ctx.Done():
		return fmt.Errorf("%s of group %d: %w", what, g.cfg.ID, ctx.Err())
	}
	g.proposer.mu.Lock()
	open, term := g.proposer.leading, g.proposer.term
	g.proposer.mu.Unlock()
	if !open {
		return fmt.Errorf("%s of group %d: %w", what, g.cfg.ID, ErrNotLeader)
	}
	wait := membershipTimeout
	if at, ok := ctx.Deadline(); ok {
		wait = time.Until(at)
	}
	// The index is read first: raft refuses a change whose index is too old; with an index that is too new a
	// concurrent change could go unnoticed.
	inst, prev := g.instance.Load(), g.configIndex.Load()
	r := inst.raft
	done, err := already(r.GetConfiguration().Configuration().Servers)
	switch {
	case err != nil:
	case done: // perhaps by a change that is not committed yet, or that this replica could not store
		err = inst.waitCommitted(ctx, wait, func() bool {
			applied, err := already(*g.configuration.Load())
			return applied && err == nil
		})
	default:
		err = await(ctx, func() raft.Future { return start(r, prev, wait) })
	}
	if err == nil && done && r.CurrentTerm() != term {
		err = ErrNotLeader
	}
	if err != nil {
		return fmt.Errorf("%s of group %d: %w", what, g.cfg.ID, err)
	}
	return nil
}

// applyConfiguration records a committed configuration. A replica that was in an earlier configuration and is
// not in this one was removed; a replica that was never in one sees configurations from before it was added. So does
// one that gets a snapshot from before it was added, although its log goes further: raft does not compare the two.
func (g *Group) applyConfiguration(index uint64, servers configuration) {
	if index < g.configIndex.Load() {
		return
	}
	g.configuration.Store(&servers)
	g.configIndex.Store(index)
	switch {
	case servers.find(g.cfg.Replica) != nil:
		g.wasMember = true
	case g.wasMember && g.removed.CompareAndSwap(false, true):
		g.cfg.Logger.Info("replica was removed from its group and has stopped", "index", index)
		close(g.removedCh)
	}
}
