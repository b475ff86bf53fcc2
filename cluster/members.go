package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
)

// findMember is what the catalog knows of a member.
func findMember(members []fsm.Member, id fsm.MemberID) fsm.Member {
	if at := slices.IndexFunc(members, func(m fsm.Member) bool { return m.ID == id }); at >= 0 {
		return members[at]
	}
	return fsm.Member{ID: id}
}

// isKnown says whether somebody has ever heard of a member: gossip here, or the catalog.
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

// SetMember records name, zone and weight of a member, and whether it is drained. Removed is
// RemoveMember's to set: InvalidArgument. Errors wrap EntityNotFound (nobody knows such a
// member), InvalidArgument, ServerBusy or Timeout.
func (o *Operator) SetMember(ctx context.Context, member fsm.Member) error {
	if member.Removed {
		return fmt.Errorf("set member %s: %w: a member is removed in another way", member.ID, fsm.InvalidArgument)
	}
	return o.updateMember(ctx, member.ID, func(m *fsm.Member) { *m = member })
}

// updateMember reads, changes and writes what is known of a member; this member sees it
// when it returns.
func (o *Operator) updateMember(ctx context.Context, id fsm.MemberID, change func(*fsm.Member)) error {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return fmt.Errorf("change member %s: %w", id, err)
	}
	member := findMember(all.Members, id)
	if m, known := o.node.gossip.Lookup(id); known && member.Name == "" {
		member.Name = m.Name
	} else if !known && member == (fsm.Member{ID: id}) {
		return fmt.Errorf("change member %s: %w: nobody knows it", id, fsm.EntityNotFound)
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

// Drain takes a member out of service: it gives its leaderships away, gets none, and gets no
// further replicas. It returns when it leads nothing that another could lead, or with Timeout
// when ctx ends before: the draining goes on. It is what stands before stopping a member.
func (o *Operator) Drain(ctx context.Context, id fsm.MemberID) error {
	if err := o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained = true }); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	// Who has applied less of the catalog than we have now may not know of it yet, and make it
	// a leader for being preferred.
	var known uint64
	if catalog, err := o.router.ReplicaStatus(fsm.CatalogPartition); err == nil {
		known = catalog.Applied
	}
	var left []fsm.PartitionID
	if !pollUntil(ctx, func() bool {
		left = o.remainingLeaderships(ctx, id, known)
		return len(left) == 0
	}) {
		return fmt.Errorf("drain %s: %w: partitions %v are led by it still, or by nobody", id, fsm.Timeout, left)
	}
	return nil
}

// remainingLeaderships are the partitions that a member leads or may lead in a moment, and another member
// could: also those without a leader, those that are being handed over, and those whose
// leader has applied less of the catalog than known.
func (o *Operator) remainingLeaderships(ctx context.Context, id fsm.MemberID, known uint64) (left []fsm.PartitionID) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return []fsm.PartitionID{fsm.CatalogPartition} // not known yet
	}
	catalog := fsm.Partition{ID: fsm.CatalogPartition} // every member may come to lead it
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

// mayLead says whether a member leads a partition or may be made its leader in a moment.
func mayLead(id fsm.MemberID, part *fsm.Partition, status *leaderReply, led bool, known uint64) bool {
	switch {
	case !led:
		return slices.Contains(placement.Members(part.Replicas), id)
	case status.member == id, status.HandingOver:
		return true
	}
	return status.Catalog != 0 && status.Catalog < known
}

// hasOtherCandidate says whether somebody else could lead a partition.
func (o *Operator) hasOtherCandidate(id fsm.MemberID, part *fsm.Partition, status *leaderReply) bool {
	candidates := placement.Members(part.Replicas)
	for _, v := range status.Voters {
		candidates = append(candidates, v.Member)
	}
	return slices.ContainsFunc(candidates, func(m fsm.MemberID) bool { return m != id && o.node.isStaying(m) })
}

// Undrain takes a member back into service. Leaderships for which it is preferred come
// back by themselves.
func (o *Operator) Undrain(ctx context.Context, id fsm.MemberID) error {
	if err := o.updateMember(ctx, id, func(m *fsm.Member) { m.Drained = false }); err != nil {
		return fmt.Errorf("undrain: %w", err)
	}
	return nil
}

// RemoveMember moves everything that a member holds to others, takes it out of the catalog's
// group and records that it is gone for good; its process, if it runs, learns that and
// stops. It may be dead. It waits until all is done; when ctx ends before, it returns Timeout with
// what is left, the moves go on (Moves), and it can be asked again. With too few other
// members partitions have fewer replicas afterwards. Errors wrap InvalidArgument when some
// partition could be held by nobody else, EntityNotFound, ServerBusy or Timeout.
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

// ReplaceMember is RemoveMember with all replicas going to one member, that must hold none of
// the same partitions and be there: InvalidArgument.
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

// moveReplicasAway moves everything away from a member.
func (o *Operator) moveReplicasAway(ctx context.Context, id fsm.MemberID, all placement.Record, plan func(placement.Record) ([]fsm.Partition, error)) error {
	wanted, err := plan(all)
	if err != nil {
		return err
	}
	// Drained first, so that nothing comes while it goes; what was planned takes it into account.
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

// partitionsHeldBy are the partitions that a member holds by the catalog, or by the configuration of the
// group.
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

// awaitRemovedFromCatalog waits until a removed member is none of the catalog's group.
func (o *Operator) awaitRemovedFromCatalog(ctx context.Context, id fsm.MemberID) error {
	if !pollUntil(ctx, func() bool {
		status, err := o.leaderStatus(ctx, fsm.CatalogPartition)
		return err == nil && !slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), matchesMember(id))
	}) {
		return fmt.Errorf("%w: it holds nothing any more and has still to leave the catalog; that goes on", fsm.Timeout)
	}
	return nil
}

// pollUntil looks, again and again, whether something that an operator waits for is so; false: ctx
// has ended before.
func pollUntil(ctx context.Context, holds func() bool) bool {
	for !holds() {
		sleep(ctx, operatorPollInterval)
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}
