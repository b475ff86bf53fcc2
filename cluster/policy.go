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
	stableSince  time.Time   // since when no partition moves; zero: one does, or we do not lead
	lastPlanned  time.Time   // the last look at a rebalance
	lastReplaced time.Time   // the last look at what a dead member holds
	submitting   atomic.Bool // moves are being ordered
}

// runPolicy does, as the leader of the catalog, what an operator would be asked for: it gives
// members that have joined their share, and makes up for a member that is gone. It only orders
// moves; those can be seen, paused and cancelled like any others.
func (n *Node) runPolicy(group *partition.Group) {
	placed := n.partitions.Load()
	if placed == nil || n.policy.submitting.Load() {
		return
	}
	members := n.countedMembers(group)
	if n.config.Rebalance && n.isStable(members, *placed) && time.Since(n.policy.lastPlanned) >= n.config.Timing.Policy &&
		n.shouldRebalance(members, *placed) {
		n.policy.lastPlanned = time.Now()
		n.submitMoves(func(ctx context.Context) error { return n.rebalance(ctx, members) })
		return
	}
	if n.config.ReplaceAfter > 0 && time.Since(n.policy.lastReplaced) >= min(n.config.Timing.Policy, n.config.ReplaceAfter) {
		if gone, ok := n.longDeadMember(members, *placed); ok {
			n.policy.lastReplaced = time.Now()
			n.submitMoves(func(ctx context.Context) error { return n.replaceMember(ctx, gone, members) })
		}
	}
}

// resetPolicy forgets how long it has been calm: another member leads.
func (n *Node) resetPolicy() { n.policy.stableSince, n.levelProposal = time.Time{}, levelProposal{} }

// submitMoves runs beside the reconciler, which has other things to do than to wait for a
// thousand records.
func (n *Node) submitMoves(moves func(context.Context) error) {
	n.policy.submitting.Store(true)
	if !n.startTask(func(ctx context.Context) {
		defer n.policy.submitting.Store(false)
		if err := moves(ctx); err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "failed to submit automatic moves", "error", err)
		}
	}) {
		n.policy.submitting.Store(false)
	}
}

// isStable says whether, for Settle, every member has been there and no partition was to move.
// A drained member is no calm: somebody is at work.
func (n *Node) isStable(members []fsm.MemberID, placed []fsm.Partition) bool {
	if slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.Target != nil || !p.Formed }) {
		n.policy.stableSince = time.Time{}
		return false
	}
	if n.policy.stableSince.IsZero() {
		n.policy.stableSince = time.Now()
	}
	for _, id := range members {
		m, known := n.gossip.Lookup(id)
		if !known || !m.Alive || m.Leaving || n.memberRecord(id).Drained || time.Since(m.Since) < n.config.Timing.Settle {
			return false
		}
	}
	return time.Since(n.policy.stableSince) >= n.config.Timing.Settle
}

// shouldRebalance is the cheap question, asked all the time, whether a plan is worth making.
func (n *Node) shouldRebalance(members []fsm.MemberID, placed []fsm.Partition) bool {
	candidates := make([]placement.Candidate, len(members))
	for i, id := range members {
		candidates[i] = placement.Candidate{ID: id, Weight: n.memberRecord(id).Weight}
	}
	return len(placement.Underloaded(candidates, placed, min(n.config.Replication, len(members))*len(placed))) > 0
}

// rebalance plans and orders, if the plan helps a member that is short.
func (n *Node) rebalance(ctx context.Context, members []fsm.MemberID) error {
	if moves, err := n.operator.Moves(ctx); err != nil || len(moves) > 0 {
		return err // former replicas are still being removed
	}
	all, err := n.operator.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	candidates := placement.Among(members, n.operator.placementCandidates(all, ""))
	wanted := placement.Compute(placement.Spec{Candidates: candidates, Partitions: len(current), Replication: n.config.Replication, Current: current, Rebalance: true})
	total, before, after := 0, placement.ReplicaCounts(current), placement.ReplicaCounts(wanted)
	for _, replicas := range after {
		total += replicas
	}
	gets := slices.DeleteFunc(placement.Underloaded(candidates, current, total), func(id fsm.MemberID) bool { return after[id] <= before[id] })
	if len(gets) == 0 {
		return nil
	}
	plan := n.operator.diffPlacements(ctx, current, wanted)
	n.log.InfoContext(ctx, "started a rebalance: members held less than their share", "members", gets, "moves", len(plan.Moves), "bytes", plan.totalBytes())
	return n.operator.Rebalance(ctx, plan)
}

// totalBytes is what a plan copies.
func (p *Plan) totalBytes() (sum int64) {
	for i := range p.Moves {
		sum += p.Moves[i].Bytes
	}
	return sum
}

// longDeadMember is the one member that has been away for ReplaceAfter and holds something. Two of
// them are an outage, which somebody is repairing, and not a loss: copying then costs the rest of
// the cluster what it needs most. The same when we see no majority: it is perhaps we who are cut off.
func (n *Node) longDeadMember(members []fsm.MemberID, placed []fsm.Partition) (gone fsm.MemberID, long bool) {
	alive, dead := 0, 0
	for _, id := range members {
		if n.isAlive(id) {
			alive++
			continue
		}
		holds := func(p fsm.Partition) bool { _, held := findReplica(&p, id); return held }
		if slices.ContainsFunc(placed, holds) {
			gone = id
			dead++
		}
	}
	if dead != 1 || 2*alive <= len(members) {
		return "", false
	}
	return gone, n.deadFor(gone) >= n.config.ReplaceAfter
}

// replaceMember orders that others hold what a member held. It stays a member: when it comes
// back its former replicas are removed, and it gets its share again.
func (n *Node) replaceMember(ctx context.Context, gone fsm.MemberID, members []fsm.MemberID) error {
	all, err := n.operator.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	wanted := placement.Compute(placement.Spec{Candidates: placement.Among(members, n.operator.placementCandidates(all, gone)), Partitions: len(current), Replication: n.config.Replication, Current: current})
	moves := placement.Replacements(gone, all.Partitions, wanted, n.isAlive)
	if len(moves) == 0 {
		return nil
	}
	n.log.WarnContext(ctx, "started to replace the replicas of a dead member", "peer", gone, "partitions", len(moves))
	for _, part := range moves {
		if n.isAlive(gone) {
			return nil // it is back: the rest stays its own
		}
		if err := n.operator.Move(ctx, part.ID, placement.Members(part.Replicas)); err != nil {
			return err
		}
	}
	return nil
}

// hasLostVoter says whether a member that votes in the catalog has been away for ReplaceAfter. Two
// further votes make up for its: it keeps its own, since it may come back.
func (n *Node) hasLostVoter(voters []partition.Voter) bool {
	return n.config.ReplaceAfter > 0 && slices.ContainsFunc(voters, func(v partition.Voter) bool {
		return !n.isAlive(v.Member) && !n.memberRecord(v.Member).Removed && n.deadFor(v.Member) >= n.config.ReplaceAfter
	})
}

// deadFor is for how long a member that is not alive has been away. Who was never seen here has
// been away since we are here.
func (n *Node) deadFor(id fsm.MemberID) time.Duration {
	if m, known := n.gossip.Lookup(id); known {
		return time.Since(m.Since)
	}
	return time.Since(n.openedAt)
}
