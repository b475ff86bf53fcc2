package cluster

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// policy is what the leader of the catalog remembers of what it does unasked. The fields but
// busy are reconcileLoop's.
type policy struct {
	calm    time.Time   // since when no partition moves; zero: one does, or we do not lead
	planned time.Time   // the last look at a rebalance
	made    time.Time   // the last look at what a dead member holds
	busy    atomic.Bool // moves are being ordered
}

// govern does, as the leader of the catalog, what an operator would be asked for: it gives
// members that have joined their share, and makes up for a member that is gone. It only orders
// moves; those can be seen, paused and cancelled like any others.
func (n *Node) govern(group *partition.Group) {
	placed := n.placed.Load()
	if placed == nil || n.policy.busy.Load() {
		return
	}
	crew := n.crew(group)
	if n.config.Rebalance && n.isCalm(crew, *placed) && time.Since(n.policy.planned) >= n.config.Timing.Policy &&
		n.wantsPlan(crew, *placed) {
		n.policy.planned = time.Now()
		n.order(func(ctx context.Context) error { return n.rebalance(ctx, crew) })
		return
	}
	if n.config.ReplaceAfter > 0 && time.Since(n.policy.made) >= min(n.config.Timing.Policy, n.config.ReplaceAfter) {
		if gone, ok := n.goneForLong(crew, *placed); ok {
			n.policy.made = time.Now()
			n.order(func(ctx context.Context) error { return n.makeUpFor(ctx, gone, crew) })
		}
	}
}

// rest forgets how long it has been calm: another member leads.
func (n *Node) rest() { n.policy.calm, n.raising = time.Time{}, raising{} }

// order runs beside the reconciler, which has other things to do than to wait for a
// thousand records.
func (n *Node) order(moves func(context.Context) error) {
	n.policy.busy.Store(true)
	if !n.start(func(ctx context.Context) {
		defer n.policy.busy.Store(false)
		if err := moves(ctx); err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "order moves by policy", "error", err)
		}
	}) {
		n.policy.busy.Store(false)
	}
}

// isCalm says whether, for Settle, every member has been there and no partition was to move.
// A drained member is no calm: somebody is at work.
func (n *Node) isCalm(crew []fsm.MemberID, placed []fsm.Partition) bool {
	if slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.Target != nil || !p.Formed }) {
		n.policy.calm = time.Time{}
		return false
	}
	if n.policy.calm.IsZero() {
		n.policy.calm = time.Now()
	}
	for _, id := range crew {
		m, known := n.gossip.Lookup(id)
		if !known || !m.Alive || m.Leaving || n.memberOf(id).Drained || time.Since(m.Since) < n.config.Timing.Settle {
			return false
		}
	}
	return time.Since(n.policy.calm) >= n.config.Timing.Settle
}

// wantsPlan is the cheap question, asked all the time, whether a plan is worth making.
func (n *Node) wantsPlan(crew []fsm.MemberID, placed []fsm.Partition) bool {
	candidates := make([]placement.Candidate, len(crew))
	for i, id := range crew {
		candidates[i] = placement.Candidate{ID: id, Weight: n.memberOf(id).Weight}
	}
	return len(placement.Underloaded(candidates, placed, min(n.config.Replication, len(crew))*len(placed))) > 0
}

// rebalance plans and orders, if the plan helps a member that is short.
func (n *Node) rebalance(ctx context.Context, crew []fsm.MemberID) error {
	if moves, err := n.router.Moves(ctx); err != nil || len(moves) > 0 {
		return err // former replicas are still being removed
	}
	all, err := n.router.placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	candidates := placement.Among(crew, n.router.candidates(all, ""))
	wanted := placement.Compute(placement.Spec{Candidates: candidates, Partitions: len(current), Replication: n.config.Replication, Current: current, Rebalance: true})
	total, before, after := 0, placement.ReplicaCounts(current), placement.ReplicaCounts(wanted)
	for _, replicas := range after {
		total += replicas
	}
	gets := slices.DeleteFunc(placement.Underloaded(candidates, current, total), func(id fsm.MemberID) bool { return after[id] <= before[id] })
	if len(gets) == 0 {
		return nil
	}
	plan := n.router.planned(ctx, current, wanted)
	n.log.InfoContext(ctx, "members hold less than their share: partitions are moved", "members", gets, "moves", len(plan.Moves), "bytes", plan.bytes())
	return n.router.Rebalance(ctx, plan)
}

// bytes is what a plan copies.
func (p *Plan) bytes() (sum int64) {
	for i := range p.Moves {
		sum += p.Moves[i].Bytes
	}
	return sum
}

// goneForLong is the one member that has been away for ReplaceAfter and holds something. Two of
// them are an outage, which somebody is repairing, and not a loss: copying then costs the rest of
// the cluster what it needs most. The same when we see no majority: it is perhaps we who are cut off.
func (n *Node) goneForLong(crew []fsm.MemberID, placed []fsm.Partition) (gone fsm.MemberID, long bool) {
	here, away := 0, 0
	for _, id := range crew {
		if n.isAlive(id) {
			here++
			continue
		}
		holds := func(p fsm.Partition) bool { _, held := ownIn(&p, id); return held }
		if slices.ContainsFunc(placed, holds) {
			gone = id
			away++
		}
	}
	if away != 1 || 2*here <= len(crew) {
		return "", false
	}
	return gone, n.awayFor(gone) >= n.config.ReplaceAfter
}

// makeUpFor orders that others hold what a member held. It stays a member: when it comes
// back its former replicas are removed, and it gets its share again.
func (n *Node) makeUpFor(ctx context.Context, gone fsm.MemberID, crew []fsm.MemberID) error {
	all, err := n.router.placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	wanted := placement.Compute(placement.Spec{Candidates: placement.Among(crew, n.router.candidates(all, gone)), Partitions: len(current), Replication: n.config.Replication, Current: current})
	moves := placement.Replacements(gone, all.Partitions, wanted, n.isAlive)
	if len(moves) == 0 {
		return nil
	}
	n.log.WarnContext(ctx, "a member has been away for long: what it held is given to others", "peer", gone, "partitions", len(moves))
	for _, part := range moves {
		if n.isAlive(gone) {
			return nil // it is back: the rest stays its own
		}
		if err := n.router.Move(ctx, part.ID, placement.Members(part.Replicas)); err != nil {
			return err
		}
	}
	return nil
}

// lostVoter says whether a member that votes in the catalog has been away for ReplaceAfter. Two
// further votes make up for its: it keeps its own, since it may come back.
func (n *Node) lostVoter(voters []partition.Voter) bool {
	return n.config.ReplaceAfter > 0 && slices.ContainsFunc(voters, func(v partition.Voter) bool {
		return !n.isAlive(v.Member) && !n.memberOf(v.Member).Removed && n.awayFor(v.Member) >= n.config.ReplaceAfter
	})
}

// awayFor is for how long a member that is not alive has been away. Who was never seen here has
// been away since we are here.
func (n *Node) awayFor(id fsm.MemberID) time.Duration {
	if m, known := n.gossip.Lookup(id); known {
		return time.Since(m.Since)
	}
	return time.Since(n.opened)
}
