package move

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// Balancer submits the automatic moves of the catalog's leader. Its methods must not be called concurrently.
type Balancer struct {
	*Operator
	Rebalance    bool          // give members that hold less than their share of replicas more of them
	ReplaceAfter time.Duration // after which the replicas of a dead member are replaced; 0: never
	Interval     time.Duration // least time between two rebalances

	drainedSince map[fsm.MemberID]time.Time // when this member first saw that another is drained
	stableSince  time.Time                  // since when no partition moves; zero: one does, or this member does not lead the catalog
	lastPlanned  time.Time                  // the last time that a rebalance was planned
	lastReplaced time.Time                  // the last time that replacing a dead member was started
	submitting   atomic.Bool                // moves are being submitted
}

// Run does, at the leader of the catalog, what an operator would otherwise do: it gives new members their
// share of replicas, and replaces the replicas of a dead member. It only submits moves, which can be listed,
// paused and cancelled like any others. members are those of the cluster; other processes that gossip lists
// may not belong to it.
func (b *Balancer) Run(members []fsm.MemberID) {
	placed := b.Node.Partitions()
	if placed == nil || b.submitting.Load() {
		return
	}
	if b.Rebalance && b.isStable(members, placed) && time.Since(b.lastPlanned) >= b.Interval &&
		b.shouldRebalance(members, placed) {
		b.lastPlanned = time.Now()
		b.submitMoves(func(ctx context.Context) error { return b.fillMembers(ctx, members) })
		return
	}
	if b.ReplaceAfter > 0 && time.Since(b.lastReplaced) >= min(b.Interval, b.ReplaceAfter) {
		if gone, ok := b.longDeadMember(members, placed); ok {
			b.lastReplaced = time.Now()
			b.submitMoves(func(ctx context.Context) error { return b.replaceMember(ctx, gone, members) })
		}
	}
}

// submitMoves submits moves in a task of its own, because the reconciler must not wait for up to a thousand
// commands.
func (b *Balancer) submitMoves(moves func(context.Context) error) {
	b.submitting.Store(true)
	if !b.Node.Go(func(ctx context.Context) {
		defer b.submitting.Store(false)
		if err := moves(ctx); err != nil && ctx.Err() == nil {
			b.Logger.WarnContext(ctx, "failed to submit automatic moves", "error", err)
		}
	}) {
		b.submitting.Store(false)
	}
}

// drainedIntervalsMax is how long a drained member prevents automatic rebalances, in intervals: an operator is at
// work, or a removal. One that stays drained for longer is left out, so that a removal that was given up does not
// end the balancing of the whole cluster.
const drainedIntervalsMax = 3

// isDraining reports whether some member has been drained for less than drainedIntervalsMax.
func (b *Balancer) isDraining(members []fsm.MemberID) (draining bool) {
	drained := make(map[fsm.MemberID]time.Time)
	for _, id := range members {
		if !b.Node.MemberRecord(id).Drained {
			continue
		}
		since, seen := b.drainedSince[id]
		if !seen {
			since = time.Now()
		}
		drained[id] = since
		draining = draining || time.Since(since) < drainedIntervalsMax*b.Interval
	}
	b.drainedSince = drained
	return draining
}

// isStable reports whether, for Settle, every member has been present and no partition was to move, and no member
// was drained lately.
func (b *Balancer) isStable(members []fsm.MemberID, placed []fsm.Partition) bool {
	draining := b.isDraining(members)
	if slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.Target != nil || !p.Formed }) {
		b.stableSince = time.Time{}
		return false
	}
	if b.stableSince.IsZero() {
		b.stableSince = time.Now()
	}
	for _, id := range members {
		m, known := b.Node.Lookup(id)
		if !known || !m.Alive || m.Leaving || time.Since(m.Since) < b.Settle {
			return false
		}
	}
	return !draining && time.Since(b.stableSince) >= b.Settle
}

// shouldRebalance is the cheap check, made in every round, whether a rebalance is worth planning.
func (b *Balancer) shouldRebalance(members []fsm.MemberID, placed []fsm.Partition) bool {
	candidates := make([]placement.Candidate, len(members))
	for i, id := range members {
		candidates[i] = placement.Candidate{ID: id, Weight: b.Node.MemberRecord(id).Weight}
	}
	return len(placement.Underloaded(candidates, placed, min(b.Replication, len(members))*len(placed))) > 0
}

// Reset begins a new period of stability, because another member leads the catalog.
func (b *Balancer) Reset() { b.stableSince, b.drainedSince = time.Time{}, nil }

// fillMembers plans a rebalance, and submits it if it gives replicas to a member that holds less than its share.
func (b *Balancer) fillMembers(ctx context.Context, members []fsm.MemberID) error {
	if moves, err := b.Moves(ctx); err != nil || len(moves) > 0 {
		return err // former replicas are still being removed
	}
	all, err := b.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	candidates := placement.Among(members, b.Candidates(all, ""))
	wanted := placement.Compute(placement.Spec{Candidates: candidates, Partitions: len(current), Replication: b.Replication, Current: current, Rebalance: true})
	total, before, after := 0, placement.ReplicaCounts(current), placement.ReplicaCounts(wanted)
	for _, replicas := range after {
		total += replicas
	}
	gets := slices.DeleteFunc(placement.Underloaded(candidates, current, total), func(id fsm.MemberID) bool { return after[id] <= before[id] })
	if len(gets) == 0 {
		return nil
	}
	plan := b.diffPlacements(ctx, current, wanted)
	b.Logger.InfoContext(ctx, "started a rebalance: members held less than their share", "members", gets, "moves", len(plan), "bytes", totalBytes(plan))
	return b.Operator.Rebalance(ctx, plan)
}

// totalBytes returns the number of bytes that a plan copies.
func totalBytes(plan []topology.PlannedMove) (sum int64) {
	for i := range plan {
		sum += plan[i].Bytes
	}
	return sum
}

// longDeadMember returns the one member that has been dead for ReplaceAfter and holds replicas. Two such
// members are an outage that is being repaired, not a loss: copying would then take resources that the rest of
// the cluster needs. It also returns false when this member does not see a majority, since this member may be
// the isolated one.
func (b *Balancer) longDeadMember(members []fsm.MemberID, placed []fsm.Partition) (gone fsm.MemberID, long bool) {
	alive, dead := 0, 0
	for _, id := range members {
		if b.isAlive(id) {
			alive++
			continue
		}
		if placement.HoldsAny(placed, id) {
			gone = id
			dead++
		}
	}
	if dead != 1 || 2*alive <= len(members) {
		return "", false
	}
	return gone, b.deadFor(gone) >= b.ReplaceAfter
}

// replaceMember submits moves that give the replicas of a dead member to others. The dead member stays a
// member: when it comes back, its former replicas are removed, and it gets its share again.
func (b *Balancer) replaceMember(ctx context.Context, gone fsm.MemberID, members []fsm.MemberID) error {
	all, err := b.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	current := placement.Settled(all.Partitions)
	wanted := placement.Compute(placement.Spec{Candidates: placement.Among(members, b.Candidates(all, gone)), Partitions: len(current), Replication: b.Replication, Current: current})
	moves := placement.Replacements(gone, all.Partitions, wanted, b.isAlive)
	if len(moves) == 0 {
		return nil
	}
	b.Logger.WarnContext(ctx, "started to replace the replicas of a dead member", "peer", gone, "partitions", len(moves))
	for _, part := range moves {
		if b.isAlive(gone) {
			return nil // it is back and keeps the rest
		}
		if err := b.moveAsSeen(ctx, &all, part.ID, placement.Members(part.Replicas)); err != nil {
			return err
		}
	}
	return nil
}

// HasLostVoter reports whether a voter of the catalog has been dead for ReplaceAfter. Two further voters
// compensate for it; it keeps its vote, since it may come back.
func (b *Balancer) HasLostVoter(voters []partition.Voter) bool {
	return b.ReplaceAfter > 0 && slices.ContainsFunc(voters, func(v partition.Voter) bool {
		return !b.isAlive(v.Member) && !b.Node.MemberRecord(v.Member).Removed && b.deadFor(v.Member) >= b.ReplaceAfter
	})
}

// deadFor returns how long a member that is not alive has been dead. A member that this one has never seen
// counts as dead since this member was opened.
func (b *Balancer) deadFor(id fsm.MemberID) time.Duration {
	if m, known := b.Node.Lookup(id); known {
		return time.Since(m.Since)
	}
	return time.Since(b.Opened)
}
