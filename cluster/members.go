package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
)

// findMember returns the catalog's record of a member, or an empty record with its id.
func findMember(members []fsm.Member, id fsm.MemberID) fsm.Member {
	if at := slices.IndexFunc(members, func(m fsm.Member) bool { return m.ID == id }); at >= 0 {
		return members[at]
	}
	return fsm.Member{ID: id}
}

// isKnown reports whether gossip on this member or the catalog knows a member.
func (n *Node) isKnown(id fsm.MemberID) bool {
	if _, known := n.gossip.Lookup(id); known {
		return true
	}
	return n.memberRecord(id) != fsm.Member{ID: id}
}

// Members lists the members that gossip or the catalog knows, removed ones included, by id.
// Errors wrap ServerBusy or Timeout.
func (o *Operator) Members(ctx context.Context) ([]fsm.Member, error) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	list := slices.Clone(all.Members)
	for _, m := range o.node.gossip.All() {
		if findMember(list, m.Member) == (fsm.Member{ID: m.Member}) {
			list = append(list, fsm.Member{ID: m.Member, Name: m.Name})
		}
	}
	slices.SortFunc(list, func(a, b fsm.Member) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(list, func(a, b fsm.Member) bool { return a.ID == b.ID }), nil
}

// SetMember records name, zone and weight of a member, and whether it is drained. Only RemoveMember can set
// Removed: InvalidArgument. Errors wrap EntityNotFound (the member is unknown), InvalidArgument, ServerBusy or
// Timeout.
func (o *Operator) SetMember(ctx context.Context, member fsm.Member) error {
	if member.Removed {
		return fmt.Errorf("set member %s: %w: a member is removed in another way", member.ID, fsm.InvalidArgument)
	}
	return o.updateMember(ctx, member.ID, func(m *fsm.Member) { *m = member })
}

// updateMember reads, changes and writes the record of a member. When it returns, this member's replica of the
// catalog has the change.
func (o *Operator) updateMember(ctx context.Context, id fsm.MemberID, change func(*fsm.Member)) error {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return fmt.Errorf("change member %s: %w", id, err)
	}
	member := findMember(all.Members, id)
	if m, known := o.node.gossip.Lookup(id); known && member.Name == "" {
		member.Name = m.Name
	} else if !known && member == (fsm.Member{ID: id}) {
		return fmt.Errorf("change member %s: %w: the cluster has no such member", id, fsm.EntityNotFound)
	}
	before := member
	if change(&member); member == before && findMember(all.Members, id) == before {
		return nil
	}
	if _, err := o.router.Command(ctx, fsm.CatalogPartition, fsm.SetMember{Member: member}); err != nil {
		return fmt.Errorf("change member %s: %w", id, err)
	}
	o.router.AwaitCatalog(ctx, func(c *fsm.Catalog) bool {
		now, _ := c.Member(id)
		return now == member
	})
	return nil
}

// Drain takes a member out of service: the member transfers its leaderships, and gets no leaderships and no
// further replicas. Drain returns when the member leads nothing that another member could lead, or with Timeout
// when ctx ends before; the draining then continues. Drain a member before you stop it.
func (o *Operator) Drain(ctx context.Context, id fsm.MemberID) error {
	if err := o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained = true }); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	// A member that has applied less of the catalog than this one has now may not know of the drain yet, and
	// may make the drained member a leader because it is preferred.
	var known uint64
	if catalog, err := o.router.ReplicaStatus(fsm.CatalogPartition); err == nil {
		known = catalog.Applied
	}
	var left []fsm.PartitionID
	if !pollUntil(ctx, func() bool {
		left = o.remainingLeaderships(ctx, id, known)
		return len(left) == 0
	}) {
		return fmt.Errorf("drain %s: %w: it still leads partitions %v, or they have no leader", id, fsm.Timeout, left)
	}
	return nil
}

// remainingLeaderships returns the partitions that a member leads or may lead in a moment, and that another
// member could lead. This includes partitions without a leader, those whose leadership is being transferred,
// and those whose leader has applied less of the catalog than known.
func (o *Operator) remainingLeaderships(ctx context.Context, id fsm.MemberID, known uint64) (left []fsm.PartitionID) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return []fsm.PartitionID{fsm.CatalogPartition} // unknown: try again
	}
	catalog := fsm.Partition{ID: fsm.CatalogPartition} // every member may become its leader
	for _, m := range all.Members {
		catalog.Replicas = append(catalog.Replicas, fsm.Replica{Member: m.ID})
	}
	parts := append([]fsm.Partition{catalog}, all.Partitions...)
	leaders := o.leaderStatuses(ctx, parts)
	for i := range parts {
		status, led := leaders[parts[i].ID]
		if mayLead(id, &parts[i], &status, led, known) && o.hasOtherCandidate(id, &parts[i], &status) {
			left = append(left, parts[i].ID)
		}
	}
	return left
}

// mayLead reports whether a member leads a partition or may become its leader in a moment.
func mayLead(id fsm.MemberID, part *fsm.Partition, status *leaderReply, led bool, known uint64) bool {
	switch {
	case !led:
		return slices.Contains(placement.Members(part.Replicas), id)
	case status.member == id, status.HandingOver:
		return true
	}
	return status.Catalog != 0 && status.Catalog < known
}

// hasOtherCandidate reports whether another member could lead a partition.
func (o *Operator) hasOtherCandidate(id fsm.MemberID, part *fsm.Partition, status *leaderReply) bool {
	candidates := placement.Members(part.Replicas)
	for _, v := range status.Voters {
		candidates = append(candidates, v.Member)
	}
	return slices.ContainsFunc(candidates, func(m fsm.MemberID) bool { return m != id && o.node.isStaying(m) })
}

// Undrain returns a member to service. The leaders of the partitions for which it is preferred transfer
// leadership back to it.
func (o *Operator) Undrain(ctx context.Context, id fsm.MemberID) error {
	if err := o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained = false }); err != nil {
		return fmt.Errorf("undrain: %w", err)
	}
	return nil
}

// RemoveMember moves all replicas of a member to others, removes the member from the catalog's group and
// records that it is removed for good. Its process, if it runs, learns that and stops; the member may also be
// dead. RemoveMember waits until all is done. When ctx ends before, it returns Timeout with what is left; the
// moves continue (see Moves), and the call can be repeated. If there are too few other members, partitions have
// fewer replicas afterwards. Errors wrap InvalidArgument when no other member could hold some partition,
// EntityNotFound, ServerBusy or Timeout.
func (o *Operator) RemoveMember(ctx context.Context, id fsm.MemberID) error {
	return o.removeMember(ctx, id, func(all placement.Record) ([]fsm.Partition, error) {
		current := placement.Settled(all.Partitions)
		wanted := placement.Compute(placement.Spec{Candidates: o.placementCandidates(all, id), Partitions: len(current), Replication: o.node.config.Replication, Current: current})
		if wanted == nil {
			return nil, fmt.Errorf("%w: no other member can hold what it holds", fsm.InvalidArgument)
		}
		return wanted, nil
	})
}

// ReplaceMember is RemoveMember, except that all replicas go to one member. That member must be alive and must
// not hold any of the same partitions: InvalidArgument.
func (o *Operator) ReplaceMember(ctx context.Context, dead, replacement fsm.MemberID) error {
	return o.removeMember(ctx, dead, func(all placement.Record) ([]fsm.Partition, error) {
		if m := findMember(all.Members, replacement); replacement == dead || m.Drained || m.Removed || !o.node.isAlive(replacement) {
			return nil, fmt.Errorf("%w: member %s is not there to take its place", fsm.InvalidArgument, replacement)
		}
		wanted := placement.Settled(all.Partitions)
		for i := range wanted {
			part := &wanted[i]
			at := slices.IndexFunc(part.Replicas, func(x fsm.Replica) bool { return x.Member == dead })
			if at < 0 {
				continue
			}
			if placement.HoldsReplica(part, replacement) {
				return nil, fmt.Errorf("%w: member %s holds partition %d already", fsm.InvalidArgument, replacement, part.ID)
			}
			part.Replicas = slices.Clone(part.Replicas)
			part.Replicas[at] = fsm.Replica{Member: replacement}
		}
		return wanted, nil
	})
}

func (o *Operator) removeMember(ctx context.Context, id fsm.MemberID, wanted func(placement.Record) ([]fsm.Partition, error)) error {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err == nil && !findMember(all.Members, id).Removed {
		err = o.moveReplicasAway(ctx, id, all, wanted)
	}
	if err == nil {
		err = o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained, m.Removed = true, true })
	}
	if err == nil {
		err = o.awaitRemovedFromCatalog(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("remove member %s: %w", id, err)
	}
	return nil
}

// moveReplicasAway moves all replicas of a member to other members.
func (o *Operator) moveReplicasAway(ctx context.Context, id fsm.MemberID, all placement.Record, plan func(placement.Record) ([]fsm.Partition, error)) error {
	wanted, err := plan(all)
	if err != nil {
		return err
	}
	// The member is drained first, so that it gets nothing new meanwhile. The plan already leaves it out.
	if err := o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained = true }); err != nil {
		return err
	}
	for i, part := range placement.Settled(all.Partitions) {
		if !placement.HoldsReplica(&part, id) {
			continue
		}
		if err := o.Move(ctx, part.ID, placement.Members(wanted[i].Replicas)); err != nil {
			return err
		}
	}
	var left []fsm.PartitionID
	if !pollUntil(ctx, func() bool {
		left, err = o.partitionsHeldBy(ctx, id)
		return err == nil && len(left) == 0
	}) {
		return fmt.Errorf("%w: partitions %v are still to be moved; that goes on", fsm.Timeout, left)
	}
	return nil
}

// partitionsHeldBy returns the partitions that a member holds according to the catalog or to the configuration
// of the group, and those whose leader did not answer.
func (o *Operator) partitionsHeldBy(ctx context.Context, id fsm.MemberID) (left []fsm.PartitionID, err error) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, err
	}
	leaders := o.leaderStatuses(ctx, all.Partitions)
	for i := range all.Partitions {
		part := &all.Partitions[i]
		_, held := findReplica(part, id)
		status, known := leaders[part.ID]
		for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
			held = held || v.Member == id
		}
		if held || !known {
			left = append(left, part.ID)
		}
	}
	return left, nil
}

// awaitRemovedFromCatalog waits until a removed member has left the catalog's group.
func (o *Operator) awaitRemovedFromCatalog(ctx context.Context, id fsm.MemberID) error {
	if !pollUntil(ctx, func() bool {
		status, err := o.leaderStatus(ctx, fsm.CatalogPartition)
		return err == nil && !slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), matchesMember(id))
	}) {
		return fmt.Errorf("%w: it holds nothing any more and has still to leave the catalog; that goes on", fsm.Timeout)
	}
	return nil
}

// pollUntil calls holds until it returns true. It returns false when ctx ends before.
func pollUntil(ctx context.Context, holds func() bool) bool {
	for !holds() {
		sleep(ctx, operatorPollInterval)
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}
