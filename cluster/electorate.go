package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// catalogVotersMin is how many voters the catalog should have, if there are as many members.
const catalogVotersMin = 3

// elect keeps the voters of the catalog: an odd number of members that stay, at least
// three where there are three. Removed members lose their vote, and then their replica; one
// change at a time, as the leader of the catalog.
func (n *Node) elect(ctx context.Context, group *partition.Group) {
	status := group.Status()
	stays := func(v partition.Voter) bool { return !n.memberOf(v.Member).Removed }
	voters := 0
	for _, v := range status.Voters {
		if stays(v) {
			voters++
		}
	}
	best, candidates := n.candidates(status.Voters, status.Nonvoters)
	missing := 0 // an even number of voters survives no more than one voter less does
	switch {
	case voters%2 == 0:
		missing = 1
	case voters < catalogVotersMin, voters < catalogVotersMax && n.lostVoter(status.Voters):
		missing = 2
	}
	if missing > 0 && candidates >= missing && voters+missing <= catalogVotersMax {
		n.promote(ctx, group, best)
		return // the others with the next look
	}
	self := n.memberOf(n.self)
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		if !stays(v) && v.Member != n.self {
			n.dismiss(ctx, group, v)
			return
		}
	}
	if self.Removed || self.Drained {
		err := n.handOn(ctx, &fsm.Partition{Replicas: n.catalogReplicas(status.Voters)}, group)
		own := partition.Voter{Replica: replicaID(n.self, catalogNumber), Member: n.self}
		if self.Removed && errors.Is(err, partition.ErrTransferSpent) {
			n.dismiss(ctx, group, own)
		}
	}
}

func (n *Node) catalogReplicas(voters []partition.Voter) []fsm.Replica {
	all := make([]fsm.Replica, len(voters))
	for i, v := range voters {
		all[i] = fsm.Replica{Member: v.Member, Number: catalogNumber}
	}
	return all
}

// candidates counts who could vote, and says who should next: of the members that stay one in
// a zone that has fewest votes.
func (n *Node) candidates(voters, nonvoters []partition.Voter) (best partition.Voter, count int) {
	votes := make(map[string]int)
	for _, v := range voters {
		if m := n.memberOf(v.Member); !m.Removed {
			votes[m.Zone]++
		}
	}
	for _, v := range nonvoters {
		m := n.memberOf(v.Member)
		if m.Removed || m.Drained || !n.takesLeaders(v.Member) {
			continue
		}
		if count == 0 || votes[m.Zone] < votes[n.memberOf(best.Member).Zone] {
			best = v
		}
		count++
	}
	return best, count
}

func (n *Node) promote(ctx context.Context, group *partition.Group, v partition.Voter) {
	for range 2 {
		if !n.reaches(ctx, fsm.CatalogPartition, v, group.Status().Applied) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	if err := group.AddVoter(ctx, v.Replica, v.Member); err != nil {
		n.log.WarnContext(ctx, "give a vote in the catalog", "peer", v.Member, "error", err)
		return
	}
	n.log.InfoContext(ctx, "member votes in the catalog", "peer", v.Member)
	notify.WakeUp(n.wake)
}

// dismiss takes a removed member out of the catalog.
func (n *Node) dismiss(ctx context.Context, group *partition.Group, v partition.Voter) {
	status := group.Status()
	if slices.Contains(status.Voters, v) && !n.goesOnWithout(ctx, fsm.CatalogPartition, v, &status) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	if err := group.RemoveReplica(ctx, v.Replica); err != nil {
		n.log.WarnContext(ctx, "take a removed member out of the catalog", "peer", v.Member, "error", err)
		return
	}
	n.log.InfoContext(ctx, "a removed member was taken out of the catalog", "peer", v.Member)
	notify.WakeUp(n.wake)
}

// introduce records once what the configuration says of this member.
func (n *Node) introduce(ctx context.Context) {
	if n.introduced || n.config.Zone == "" && n.config.Weight == 0 || n.placed.Load() == nil {
		return
	}
	err := n.router.changeMember(ctx, n.self, func(m *fsm.Member) {
		m.Name = n.config.Name
		if n.config.Zone != "" {
			m.Zone = n.config.Zone
		}
		if n.config.Weight != 0 {
			m.Weight = n.config.Weight
		}
	})
	if err != nil {
		n.log.InfoContext(ctx, "record zone and weight of this member", "error", err)
		return
	}
	n.introduced = true
}

// isVoterOf matches the replica on a member.
func isVoterOf(id fsm.MemberID) func(partition.Voter) bool {
	return func(v partition.Voter) bool { return v.Member == id }
}
