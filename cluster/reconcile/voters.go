package reconcile

import (
	"context"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// catalogVotersMin is the number of voters that the catalog should have, if there are as many members.
const catalogVotersMin = 3

// reconcileCatalogVoters maintains the voters of the catalog, as its leader: an odd number of members that are
// not removed, at least three where there are three. Removed members lose their vote and then their replica. It
// makes one change at a time.
func (r *Reconciler) reconcileCatalogVoters(ctx context.Context, group *partition.Group) {
	status := group.Status()
	isStaying := func(v partition.Voter) bool { return !r.Node.MemberRecord(v.Member).Removed }
	voters := 0
	for _, v := range status.Voters {
		if isStaying(v) {
			voters++
		}
	}
	best, candidates := r.voterCandidates(status.Voters, status.Nonvoters)
	missing := 0 // an even number of voters survives no more failures than one voter less
	switch {
	case voters%2 == 0:
		missing = 1
	case voters < catalogVotersMin, voters < bootstrap.VotersMax && r.Balancer.HasLostVoter(status.Voters):
		missing = 2
	}
	if missing > 0 && candidates >= missing && voters+missing <= bootstrap.VotersMax {
		r.promoteCatalogVoter(ctx, group, best)
		return // the next round adds the others
	}
	self := r.Node.MemberRecord(r.Self)
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if !isStaying(v) && v.Member != r.Self && r.removeFromCatalog(ctx, group, v) {
			return // the next round removes the others, on top of the new configuration
		}
	}
	if self.Removed || self.Drained {
		err := r.Mover.TransferToHolder(ctx, &fsm.Partition{Replicas: move.ReplicasOf(status.Voters)}, group)
		own := partition.Voter{Replica: r.Replicas.Name(fsm.CatalogPartition), Member: r.Self}
		if self.Removed && errors.Is(err, partition.ErrTransferUsed) {
			r.removeFromCatalog(ctx, group, own)
		}
	}
}

// voterCandidates counts the non-voters that could vote, and returns the best of them: a member in a zone that
// has the fewest voters.
func (r *Reconciler) voterCandidates(voters, nonvoters []partition.Voter) (best partition.Voter, count int) {
	votes := make(map[string]int)
	for _, v := range voters {
		if m := r.Node.MemberRecord(v.Member); !m.Removed {
			votes[m.Zone]++
		}
	}
	for _, v := range nonvoters {
		m := r.Node.MemberRecord(v.Member)
		if m.Removed || m.Drained || !r.Mover.AcceptsLeaders(v.Member) {
			continue
		}
		if count == 0 || votes[m.Zone] < votes[r.Node.MemberRecord(best.Member).Zone] {
			best = v
		}
		count++
	}
	return best, count
}

func (r *Reconciler) promoteCatalogVoter(ctx context.Context, group *partition.Group, v partition.Voter) {
	for range 2 {
		if !r.Mover.HasApplied(ctx, fsm.CatalogPartition, v, group.Status().Applied) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.AddVoter(ctx, v.Replica, v.Member); err != nil {
		r.Logger.WarnContext(ctx, "failed to give a member a vote in the catalog, will retry", "peer", v.Member, "error", err)
		return
	}
	r.Logger.InfoContext(ctx, "member was given a vote in the catalog", "peer", v.Member)
	r.Wake()
}

// removeFromCatalog takes a removed member out of the catalog. It returns false when the member is needed for a
// quorum, or the change failed.
func (r *Reconciler) removeFromCatalog(ctx context.Context, group *partition.Group, v partition.Voter) bool {
	status := group.Status()
	if slices.Contains(status.Voters, v) && !r.Mover.HasQuorumWithout(ctx, fsm.CatalogPartition, v, &status) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.RemoveReplica(ctx, v.Replica); err != nil {
		r.Logger.WarnContext(ctx, "failed to remove a member from the catalog, will retry", "peer", v.Member, "error", err)
		return false
	}
	r.Logger.InfoContext(ctx, "removed member was deleted from the catalog", "peer", v.Member)
	r.Wake()
	return true
}
