package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// catalogVotersMin is the number of voters that the catalog should have, if there are as many members.
const catalogVotersMin = 3

// reconcileCatalogVoters maintains the voters of the catalog, as its leader: an odd number of members that are
// not removed, at least three where there are three. Removed members lose their vote and then their replica. It
// makes one change at a time.
func (n *Node) reconcileCatalogVoters(ctx context.Context, group *partition.Group) {
	status := group.Status()
	isStaying := func(v partition.Voter) bool { return !n.memberRecord(v.Member).Removed }
	voters := 0
	for _, v := range status.Voters {
		if isStaying(v) {
			voters++
		}
	}
	best, candidates := n.voterCandidates(status.Voters, status.Nonvoters)
	missing := 0 // an even number of voters survives no more failures than one voter less
	switch {
	case voters%2 == 0:
		missing = 1
	case voters < catalogVotersMin, voters < bootstrap.VotersMax && n.balancer.HasLostVoter(status.Voters):
		missing = 2
	}
	if missing > 0 && candidates >= missing && voters+missing <= bootstrap.VotersMax {
		n.promoteCatalogVoter(ctx, group, best)
		return // the next round adds the others
	}
	self := n.memberRecord(n.self)
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if !isStaying(v) && v.Member != n.self && n.removeFromCatalog(ctx, group, v) {
			return // the next round removes the others, on top of the new configuration
		}
	}
	if self.Removed || self.Drained {
		err := n.mover.TransferToHolder(ctx, &fsm.Partition{Replicas: n.catalogReplicas(status.Voters)}, group)
		own := partition.Voter{Replica: n.replicas.Name(fsm.CatalogPartition), Member: n.self}
		if self.Removed && errors.Is(err, partition.ErrTransferUsed) {
			n.removeFromCatalog(ctx, group, own)
		}
	}
}

func (n *Node) catalogReplicas(voters []partition.Voter) []fsm.Replica {
	all := make([]fsm.Replica, len(voters))
	for i, v := range voters {
		all[i] = fsm.Replica{Member: v.Member, Number: raftgroup.ReplicaNumber(v.Replica)}
	}
	return all
}

// voterCandidates counts the non-voters that could vote, and returns the best of them: a member in a zone that
// has the fewest voters.
func (n *Node) voterCandidates(voters, nonvoters []partition.Voter) (best partition.Voter, count int) {
	votes := make(map[string]int)
	for _, v := range voters {
		if m := n.memberRecord(v.Member); !m.Removed {
			votes[m.Zone]++
		}
	}
	for _, v := range nonvoters {
		m := n.memberRecord(v.Member)
		if m.Removed || m.Drained || !n.mover.AcceptsLeaders(v.Member) {
			continue
		}
		if count == 0 || votes[m.Zone] < votes[n.memberRecord(best.Member).Zone] {
			best = v
		}
		count++
	}
	return best, count
}

func (n *Node) promoteCatalogVoter(ctx context.Context, group *partition.Group, v partition.Voter) {
	for range 2 {
		if !n.mover.HasApplied(ctx, fsm.CatalogPartition, v, group.Status().Applied) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.AddVoter(ctx, v.Replica, v.Member); err != nil {
		n.log.WarnContext(ctx, "failed to give a member a vote in the catalog, will retry", "peer", v.Member, "error", err)
		return
	}
	n.log.InfoContext(ctx, "member was given a vote in the catalog", "peer", v.Member)
	notify.WakeUp(n.reconcileNow)
}

// removeFromCatalog takes a removed member out of the catalog. It returns false when the member is needed for a
// quorum, or the change failed.
func (n *Node) removeFromCatalog(ctx context.Context, group *partition.Group, v partition.Voter) bool {
	status := group.Status()
	if slices.Contains(status.Voters, v) && !n.mover.HasQuorumWithout(ctx, fsm.CatalogPartition, v, &status) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.RemoveReplica(ctx, v.Replica); err != nil {
		n.log.WarnContext(ctx, "failed to take a removed member out of the catalog, will retry", "peer", v.Member, "error", err)
		return false
	}
	n.log.InfoContext(ctx, "removed member was taken out of the catalog", "peer", v.Member)
	notify.WakeUp(n.reconcileNow)
	return true
}

// recordSelf records, once, the zone and weight that this member's configuration sets.
func (n *Node) recordSelf(ctx context.Context) {
	if n.selfRecorded || n.config.Zone == "" && n.config.Weight == 0 || n.partitions.Load() == nil {
		return
	}
	err := n.operator.UpdateMember(ctx, n.self, func(m *fsm.Member) {
		m.Name = n.config.Name
		if n.config.Zone != "" {
			m.Zone = n.config.Zone
		}
		if n.config.Weight != 0 {
			m.Weight = n.config.Weight
		}
	})
	if err != nil {
		n.log.InfoContext(ctx, "failed to record zone and weight of this member, will retry", "error", err)
		return
	}
	n.selfRecorded = true
}

// matchesMember returns a function that reports whether a replica is on a member.
func matchesMember(id fsm.MemberID) func(partition.Voter) bool {
	return func(v partition.Voter) bool { return v.Member == id }
}
