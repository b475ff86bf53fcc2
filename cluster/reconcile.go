package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// stepTimeout bounds one step of the reconciler.
const stepTimeout = 5 * time.Second

// reconcileLoop compares, for the groups that this member leads, the actual with the desired state and executes
// what is missing: one step after the other, each of which the next leader may safely repeat.
func (n *Node) reconcileLoop(ctx context.Context) {
	ticker := time.NewTicker(n.config.Timing.Reconcile)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.reconcileNow:
		}
		if group := n.replicas.Group(fsm.CatalogPartition); group != nil && group.Status().IsLeader {
			n.reconcileCatalog(ctx, group)
		} else {
			n.balancer.Reset()
			n.levelProposal = levelProposal{}
		}
		n.recordSelf(ctx)
		n.askIfRemoved(ctx)
		if placed := n.partitions.Load(); placed != nil {
			n.reconcileGroups(ctx, *placed)
		}
	}
}

// reconcileCatalog does the work of the catalog's leader.
func (n *Node) reconcileCatalog(ctx context.Context, group *partition.Group) {
	founded := false
	group.View(func(m partition.Machine) { founded = raftgroup.Catalog(m).ClusterID() != "" })
	if !founded {
		n.bootstrapCluster(ctx, group)
		return
	}
	n.addNewMembers(ctx, group)
	n.reconcileCatalogVoters(ctx, group)
	n.raiseLevel(ctx, group)
	n.balancer.Run(n.countedMembers(group))
	n.router.DeleteDropped(ctx, group)
}

// bootstrapCluster assigns the id of the cluster, generates its key and places the partitions. This happens
// once: the state machine refuses a second bootstrap.
func (n *Node) bootstrapCluster(ctx context.Context, group *partition.Group) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var members []fsm.MemberID
	for _, voter := range group.Status().Voters {
		members = append(members, voter.Member) // voters have pledged
	}
	for _, member := range n.gossip.Alive() { // processes that only gossip lists must confirm that they are members
		if slices.Contains(members, member) {
			continue
		}
		if _, err := n.confirmMembership(ctx, member); err == nil {
			members = append(members, member)
		}
	}
	command := fsm.FoundCluster{
		ClusterID:  rand.Text(),
		Partitions: placement.Compute(placement.Spec{Candidates: n.bootstrapCandidates(members), Partitions: n.config.Partitions, Replication: n.config.Replication, Rebalance: true}),
	}
	_, _ = rand.Read(command.TokenKey[:]) // never fails
	_, err := n.router.Command(ctx, fsm.CatalogPartition, command)
	if err != nil && !errors.Is(err, fsm.EntityExists) {
		n.log.WarnContext(ctx, "failed to bootstrap the cluster, will retry", "error", err)
		notify.WakeUp(n.reconcileNow)
	}
}

// bootstrapCandidates returns the initial members as candidates, with the zones that they announce in gossip:
// the catalog has no members yet.
func (n *Node) bootstrapCandidates(members []fsm.MemberID) []placement.Candidate {
	candidates := placement.Uniform(members)
	for i := range candidates {
		m, _ := n.gossip.Lookup(candidates[i].ID)
		candidates[i].Zone = m.Zone
	}
	return candidates
}

// addNewMembers adds members that have joined to the catalog's group, without a vote: every member holds the
// catalog, so that every member can resolve names by itself.
func (n *Node) addNewMembers(ctx context.Context, group *partition.Group) {
	status := group.Status()
	for _, m := range n.gossip.All() {
		isThis := func(v partition.Voter) bool { return v.Member == m.Member }
		if !m.Alive || n.memberRecord(m.Member).Removed || slices.ContainsFunc(status.Voters, isThis) || slices.ContainsFunc(status.Nonvoters, isThis) {
			continue
		}
		if err := n.addMember(ctx, group, m.Member); err != nil {
			n.log.WarnContext(ctx, "failed to add a member to the catalog, will retry", "peer", m.Member, "error", err)
			continue
		}
		n.log.InfoContext(ctx, "member was added to the catalog", "peer", m.Member, "name", m.Name)
	}
}

func (n *Node) addMember(ctx context.Context, group *partition.Group, member fsm.MemberID) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	hello, err := n.confirmMembership(ctx, member)
	if err != nil {
		return err
	}
	return group.AddNonvoter(ctx, hello.CatalogName(), member)
}

// confirmMembership asks a member directly whether it belongs to this cluster: gossip may describe a process
// that has ended, be outdated, or come from a process without a certificate.
func (n *Node) confirmMembership(ctx context.Context, member fsm.MemberID) (bootstrap.Hello, error) {
	hello, err := n.askHello(ctx, member)
	switch {
	case err != nil:
		return hello, err
	case hello.ReadableLevel < n.FormatLevel():
		return hello, fmt.Errorf("member %s: its binary knows level %d and the cluster needs %d", member, hello.ReadableLevel, n.FormatLevel())
	case hello.Member != member, hello.Cluster != "" && hello.Cluster != n.clusterID():
		return hello, peer.RefusedError{Reply: peer.ForeignCluster}
	}
	return hello, nil
}

// askHello asks a member for its identity and state.
func (n *Node) askHello(ctx context.Context, member fsm.MemberID) (bootstrap.Hello, error) {
	return members{n}.Hello(ctx, member, bootstrap.HelloRequest{})
}

// reconcileGroups does the work of the leaders of message partitions.
func (n *Node) reconcileGroups(ctx context.Context, placed []fsm.Partition) {
	groups := n.replicas.All()
	for i := range placed {
		part := &placed[i]
		group := groups[part.ID]
		if group == nil || ctx.Err() != nil {
			continue
		}
		status := group.Status()
		if !status.IsLeader {
			continue
		}
		if !part.Formed {
			n.reportFormed(ctx, part.ID)
		}
		n.removeIdleEntities(ctx, group)
		n.mover.Start(part, group)
		n.mover.TransferToPreferred(ctx, part, group)
	}
}

// reportFormed records that the group has a leader: from then on no member forms the group again, and a replica
// that opens empty waits until it is filled.
func (n *Node) reportFormed(ctx context.Context, id fsm.PartitionID) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := n.router.Command(ctx, fsm.CatalogPartition, fsm.PartitionFormed{Partition: id}); err != nil {
		n.log.DebugContext(ctx, "failed to report a formed partition, will retry", "partition", id, "error", err)
	}
}
