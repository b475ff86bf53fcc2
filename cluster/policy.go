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

// policy is the state of automatic moves at the leader of the catalog. reconcileLoop owns all fields but
// submitting.
type policy struct {
	stableSince  time.Time   // since when no partition moves; zero: one does, or this member does not lead the catalog
	lastPlanned  time.Time   // the last time that a rebalance was planned
	lastReplaced time.Time   // the last time that replacing a dead member was started
	submitting   atomic.Bool // moves are being submitted
}

// runPolicy does, at the leader of the catalog, what an operator would otherwise do: it gives new members their
// share of replicas, and replaces the replicas of a dead member. It only submits moves, which can be listed,
// paused and cancelled like any others.
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

// resetPolicy clears the period of stability, because another member leads.
func (n *Node) resetPolicy() { n.policy.stableSince, n.levelProposal = time.Time{}, levelProposal{} }

// submitMoves submits moves in a task of its own, because the reconciler must not wait for up to a thousand
// commands.
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

// isStable reports whether, for Settle, every member has been present and no partition was to move. With a
// drained member the cluster is not stable: an operator is at work.
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

// shouldRebalance is the cheap check, made in every round, whether a rebalance is worth planning.
func (n *Node) shouldRebalance(members []fsm.MemberID, placed []fsm.Partition) bool {
	candidates := make([]placement.Candidate, len(members))
	for i, id := range members {
		candidates[i] = placement.Candidate{ID: id, Weight: n.memberRecord(id).Weight}
	}
	return len(placement.Underloaded(candidates, placed, min(n.config.Replication, len(members))*len(placed))) > 0
}

// rebalance plans a rebalance, and submits it if it gives replicas to a member that holds less than its share.
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

// totalBytes returns the number of bytes that a plan copies.
func (p *Plan) totalBytes() (sum int64) {
	for i := range p.Moves {
		sum += p.Moves[i].Bytes
	}
	return sum
}

// longDeadMember returns the one member that has been dead for ReplaceAfter and holds replicas. Two such
// members are an outage that is being repaired, not a loss: copying would then take resources that the rest of
// the cluster needs. It also returns false when this member does not see a majority, since this member may be
// the isolated one.
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

// replaceMember submits moves that give the replicas of a dead member to others. The dead member stays a
// member: when it comes back, its former replicas are removed, and it gets its share again.
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
			return nil // it is back and keeps the rest
		}
		if err := n.operator.Move(ctx, part.ID, placement.Members(part.Replicas)); err != nil {
			return err
		}
	}
	return nil
}

// hasLostVoter reports whether a voter of the catalog has been dead for ReplaceAfter. Two further voters
// compensate for it; it keeps its vote, since it may come back.
func (n *Node) hasLostVoter(voters []partition.Voter) bool {
	return n.config.ReplaceAfter > 0 && slices.ContainsFunc(voters, func(v partition.Voter) bool {
		return !n.isAlive(v.Member) && !n.memberRecord(v.Member).Removed && n.deadFor(v.Member) >= n.config.ReplaceAfter
	})
}

// deadFor returns how long a member that is not alive has been dead. A member that this one has never seen
// counts as dead since this member was opened.
func (n *Node) deadFor(id fsm.MemberID) time.Duration {
	if m, known := n.gossip.Lookup(id); known {
		return time.Since(m.Since)
	}
	return time.Since(n.openedAt)
}
