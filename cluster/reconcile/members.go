package reconcile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// bootstrapCluster assigns the id of the cluster, generates its key and places the partitions. This happens
// once: the state machine refuses a second bootstrap.
func (r *Reconciler) bootstrapCluster(ctx context.Context, group *partition.Group) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var members []fsm.MemberID
	for _, voter := range group.Status().Voters {
		members = append(members, voter.Member) // voters have pledged
	}
	for _, member := range r.Node.Alive() { // processes that only gossip lists must confirm that they are members
		if slices.Contains(members, member) {
			continue
		}
		if _, err := r.ConfirmMembership(ctx, member); err == nil {
			members = append(members, member)
		}
	}
	command := fsm.FoundCluster{
		ClusterID:  rand.Text(),
		Partitions: placement.Compute(placement.Spec{Candidates: r.bootstrapCandidates(members), Partitions: r.Partitions, Replication: r.Replication, Rebalance: true}),
	}
	_, _ = rand.Read(command.TokenKey[:]) // never fails
	_, err := r.Router.Command(ctx, fsm.CatalogPartition, command)
	if err != nil && !errors.Is(err, fsm.EntityExists) {
		r.Logger.WarnContext(ctx, "failed to bootstrap the cluster, will retry", "error", err)
		r.Wake()
	}
}

// bootstrapCandidates returns the initial members as candidates, with the zones that they announce in gossip:
// the catalog has no members yet.
func (r *Reconciler) bootstrapCandidates(members []fsm.MemberID) []placement.Candidate {
	candidates := placement.Uniform(members)
	for i := range candidates {
		m, _ := r.Node.Lookup(candidates[i].ID)
		candidates[i].Zone = m.Zone
	}
	return candidates
}

// addNewMembers adds members that have joined to the catalog's group, without a vote: every member holds the
// catalog, so that every member can resolve names by itself.
func (r *Reconciler) addNewMembers(ctx context.Context, group *partition.Group) {
	status := group.Status()
	for _, m := range r.Node.Processes() {
		isThis := func(v partition.Voter) bool { return v.Member == m.Member }
		if !m.Alive || r.Node.MemberRecord(m.Member).Removed || slices.ContainsFunc(status.Voters, isThis) || slices.ContainsFunc(status.Nonvoters, isThis) {
			continue
		}
		if err := r.addMember(ctx, group, m.Member); err != nil {
			r.Logger.WarnContext(ctx, "failed to add a member to the catalog, will retry", "peer", m.Member, "error", err)
			continue
		}
		r.Logger.InfoContext(ctx, "member was added to the catalog", "peer", m.Member, "name", m.Name)
	}
}

func (r *Reconciler) addMember(ctx context.Context, group *partition.Group, member fsm.MemberID) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	hello, err := r.ConfirmMembership(ctx, member)
	if err != nil {
		return err
	}
	return group.AddNonvoter(ctx, hello.CatalogName(), member)
}

// ConfirmMembership asks a member directly whether it belongs to this cluster, and returns its identity and state: gossip may describe a process
// that has ended, be outdated, or come from a process without a certificate.
func (r *Reconciler) ConfirmMembership(ctx context.Context, member fsm.MemberID) (bootstrap.Hello, error) {
	hello, err := r.askHello(ctx, member)
	switch {
	case err != nil:
		return hello, err
	case hello.ReadableLevel < r.Levels.Current():
		return hello, fmt.Errorf("member %s: its binary knows level %d and the cluster needs %d", member, hello.ReadableLevel, r.Levels.Current())
	case hello.Member != member, hello.Cluster != "" && hello.Cluster != r.Node.ClusterID():
		return hello, peer.RefusedError{Reply: peer.ForeignCluster}
	}
	return hello, nil
}

// askHello asks a member for its identity and state.
func (r *Reconciler) askHello(ctx context.Context, member fsm.MemberID) (bootstrap.Hello, error) {
	return r.Node.Hello(ctx, member, bootstrap.HelloRequest{})
}

// recordSelf records, once, the name of this member, and the zone and weight that its configuration sets. Without the
// record, members that start after this one has died would not know its name.
func (r *Reconciler) recordSelf(ctx context.Context) {
	catalog := r.Replicas.Group(fsm.CatalogPartition)
	if r.recorded || r.Node.Partitions() == nil || catalog == nil || catalog.Status().Leader == "" {
		return
	}
	known := r.Node.MemberRecord(r.Self)
	if known.Removed || r.Zone == "" && r.Weight == 0 && known.Name == r.Name {
		r.recorded = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := r.Balancer.UpdateMember(ctx, r.Self, func(m *fsm.Member) {
		m.Name = r.Name
		if r.Zone != "" {
			m.Zone = r.Zone
		}
		if r.Weight != 0 {
			m.Weight = r.Weight
		}
	})
	if err != nil {
		r.Logger.InfoContext(ctx, "failed to record this member in the catalog, will retry", "error", err)
		return
	}
	r.recorded = true
}

// countedMembers returns the members that count for the level and for automatic moves: those that hold, or are
// to hold, the catalog or a partition, without removed ones. Other processes that gossip lists may not belong
// to the cluster.
func (r *Reconciler) countedMembers(group *partition.Group) (members []fsm.MemberID) {
	add := func(id fsm.MemberID) {
		if !slices.Contains(members, id) && !r.Node.MemberRecord(id).Removed {
			members = append(members, id)
		}
	}
	status := group.Status()
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		add(v.Member)
	}
	placed := r.Node.Partitions()
	for i := range placed {
		for _, replica := range slices.Concat(placed[i].Replicas, placed[i].Target) {
			add(replica.Member)
		}
	}
	return members
}
