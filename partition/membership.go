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

// membershipTimeout bounds a change of members when its context has no deadline.
const membershipTimeout = 10 * time.Second

// committedPollInterval is the time between two looks at what is committed.
const committedPollInterval = 5 * time.Millisecond

// ErrNotNonvoter says that a replica cannot be made a voter because it is none of the group
// yet: whoever counts for the quorum must have been seen caught up before.
var ErrNotNonvoter = errors.New("the replica is not a non-voter of the group")

// configuration is what a change of members looks at.
type configuration []raft.Server

// find returns the place of a replica, nil when it is none of the group.
func (c configuration) find(replica string) *raft.Server {
	at := slices.IndexFunc(c, func(s raft.Server) bool { return string(s.ID) == replica })
	if at < 0 {
		return nil
	}
	return &c[at]
}

// AddNonvoter adds a replica that receives the log and does not vote. Leader only; it
// returns when the change is committed. What is in the group already, as a voter too,
// stays as it is, and that is no error. A member has one replica of a group at a time: its
// former one must have been removed.
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

// AddVoter makes a non-voter a voter. It counts for the quorum at once: the caller has
// seen it caught up ([Status] of that member: Applied). Leader only; it returns when the
// change is committed, and at once when the replica is a voter already. ErrNotNonvoter when
// the group does not know it.
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

// RemoveReplica takes a replica out of the group, voter or not. Leader only; it returns
// when the change is committed, and at once when the replica is none of the group. The
// last voter stays: an error. A leader that removes itself leads no longer when it
// returns, and the others then need an election: hand over first. A replica that learns
// that it was removed stops its raft instance ([Status].Removed) and keeps its data until
// Destroy; one that was cut off does not learn it, and can do no harm.
func (g *Group) RemoveReplica(ctx context.Context, replica string) error {
	return g.change(ctx, "remove replica "+replica,
		func(c configuration) (bool, error) { return c.find(replica) == nil, nil },
		func(r *raft.Raft, prev uint64, wait time.Duration) raft.IndexFuture {
			return r.RemoveServer(raft.ServerID(replica), prev, wait)
		})
}

// change makes one change of members on top of the newest configuration that this leader
// has applied: when another one came between, raft refuses. already says that nothing is to
// be done, or that nothing can be.
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
	// The index first: with one that is too old raft refuses, with one that is too new
	// a change by somebody else could go unnoticed.
	r, prev := g.instance.Load().raft, g.configIndex.Load()
	done, err := already(r.GetConfiguration().Configuration().Servers)
	switch {
	case err != nil:
	case done: // perhaps by a change that is not committed yet
		err = waitCommitted(ctx, r, wait)
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

// waitCommitted waits until everything that a leader has in its log is committed. A barrier would
// say so too, but it lies in the log, the machine never sees it, and a Read behind it would
// wait for the next command.
func waitCommitted(ctx context.Context, r *raft.Raft, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last := r.LastIndex()
	ticker := time.NewTicker(committedPollInterval)
	defer ticker.Stop()
	for r.CommitIndex() < last {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return await(ctx, r.VerifyLeader)
}

// applyConfiguration notes a committed configuration. A replica that is none of it and was one
// before was removed; one that was not added yet reads of groups before its time.
func (g *Group) applyConfiguration(index uint64, servers configuration) {
	g.configIndex.Store(index)
	switch {
	case servers.find(g.cfg.Replica) != nil:
		g.wasMember = true
	case g.wasMember && g.removed.CompareAndSwap(false, true):
		g.cfg.Logger.Info("replica was removed from its group and takes part in nothing any more", "index", index)
		close(g.removedCh)
	}
}
