package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// Members lists the members that gossip or the catalog knows, removed ones included, by id. The catalog also knows
// those that hold replicas: a member that was lost for good may have no record, and gossip forgets it.
// Errors wrap ServerBusy or Timeout.
func (o *Operator) Members(ctx context.Context) ([]fsm.Member, error) {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	list := slices.Clone(all.Members)
	for _, m := range o.Node.Processes() {
		if all.Member(m.Member) == (fsm.Member{ID: m.Member}) {
			list = append(list, fsm.Member{ID: m.Member, Name: m.Name})
		}
	}
	for _, part := range all.Partitions {
		for _, r := range slices.Concat(part.Replicas, part.Target) {
			if !slices.ContainsFunc(list, func(m fsm.Member) bool { return m.ID == r.Member }) {
				list = append(list, fsm.Member{ID: r.Member})
			}
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
		return fmt.Errorf("set member %s: %w: to remove a member, use the operation for that", member.ID, fsm.InvalidArgument)
	}
	return o.UpdateMember(ctx, member.ID, func(m *fsm.Member) { *m = member })
}

// UpdateMember reads, changes and writes the record of a member. When it returns, this member's replica of the
// catalog has the change.
func (o *Operator) UpdateMember(ctx context.Context, id fsm.MemberID, change func(*fsm.Member)) error {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return fmt.Errorf("change member %s: %w", id, err)
	}
	member := all.Member(id)
	// Gossip forgets a dead member when the others restart, and not every member has a record.
	holds := placement.HoldsAny(all.Partitions, id)
	if m, known := o.Node.Lookup(id); known && member.Name == "" {
		member.Name = m.Name
	} else if !known && !holds && member == (fsm.Member{ID: id}) {
		return fmt.Errorf("change member %s: %w: the cluster has no such member", id, fsm.EntityNotFound)
	}
	before := member
	if change(&member); member == before && all.Member(id) == before {
		return nil
	}
	if _, err := o.Router.Command(ctx, fsm.CatalogPartition, fsm.SetMember{Member: member}); err != nil {
		return fmt.Errorf("change member %s: %w", id, err)
	}
	o.Router.AwaitCatalog(ctx, func(c *catalog.Machine) bool {
		now, _ := c.Member(id)
		return now == member
	})
	return nil
}

// Undrain returns a member to service. The leaders of the partitions for which it is preferred transfer
// leadership back to it.
func (o *Operator) Undrain(ctx context.Context, id fsm.MemberID) error {
	if err := o.UpdateMember(ctx, id, func(m *fsm.Member) { m.Drained = false }); err != nil {
		return fmt.Errorf("undrain: %w", err)
	}
	return nil
}

// RemoveMember moves all replicas of a member to others, removes the member from the catalog's group and
// records that it is removed for good. Its process, if it runs, learns that and stops; the member may also be
// dead. RemoveMember waits until all is done. When ctx ends before, it returns Timeout with what is left; the
// moves continue (see Moves), the member stays drained, and the call can be repeated; Undrain gives the removal
// up. Several members can be removed at the same time. If there are too few other members, partitions have fewer
// replicas afterwards. Errors wrap InvalidArgument when no other member could hold some partition,
// EntityNotFound, ServerBusy or Timeout.
func (o *Operator) RemoveMember(ctx context.Context, id fsm.MemberID) error {
	return o.removeMember(ctx, id, func(all placement.Record) ([]fsm.Partition, error) {
		current := placement.Settled(all.Partitions)
		wanted := placement.Compute(placement.Spec{Candidates: o.Candidates(all, id), Partitions: len(current), Replication: o.Replication, Current: current})
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
		if m := all.Member(replacement); replacement == dead || m.Drained || m.Removed || !o.isAlive(replacement) {
			return nil, fmt.Errorf("%w: member %s is not alive, so it cannot replace another one", fsm.InvalidArgument, replacement)
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

// removalPlan computes where the replicas of a member go.
type removalPlan func(placement.Record) ([]fsm.Partition, error)

func (o *Operator) removeMember(ctx context.Context, id fsm.MemberID, plan removalPlan) error {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err == nil && !all.Member(id).Removed {
		if _, err = plan(all); err == nil { // before anything is changed
			err = o.emptyAndRemove(ctx, id, plan)
		}
	}
	if err == nil {
		err = o.awaitRemovedFromCatalog(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("remove member %s: %w", id, err)
	}
	return nil
}

// emptyAndRemove drains a member, moves its replicas to others and records that it is removed. It plans again
// until the member holds nothing: other members may be drained, removed or die meanwhile, and an operator or
// another removal may move the same partitions. A plan that is impossible now may be possible later.
func (o *Operator) emptyAndRemove(ctx context.Context, id fsm.MemberID, plan removalPlan) error {
	// The member is drained before the first plan that is executed: from then on, no other plan gives it replicas.
	if err := o.UpdateMember(ctx, id, func(m *fsm.Member) { m.Drained = true }); err != nil {
		return err
	}
	var left []fsm.PartitionID
	var obstacle error
	ended := pollUntil(ctx, func() bool {
		if obstacle = o.moveReplicasAway(ctx, id, plan); obstacle != nil {
			return errors.Is(obstacle, errUndrained)
		}
		held, err := o.partitionsHeldBy(ctx, id)
		if obstacle = err; err != nil {
			return false
		}
		if left = held; len(left) > 0 {
			return false
		}
		obstacle = o.UpdateMember(ctx, id, func(m *fsm.Member) { m.Removed = true })
		return obstacle == nil
	})
	switch {
	case ended:
		return obstacle
	case obstacle != nil && (left == nil || !isEndOfTime(obstacle)):
		return fmt.Errorf("%w: it is drained and not empty yet: %s", fsm.Timeout, obstacle.Error())
	}
	return fmt.Errorf("%w: partitions %v have not been moved yet%s; the operation continues: repeat it to wait", fsm.Timeout, left, o.unwell(id))
}

// isEndOfTime reports whether an error can be that the time of the caller is over, which says nothing about the obstacle.
func isEndOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, fsm.Timeout)
}

// unwell says which other members cannot take the place of one that is to be removed.
func (o *Operator) unwell(id fsm.MemberID) string {
	var names []string
	for _, m := range o.Node.Processes() {
		if m.Member != id && !m.Leaving && !o.acceptsReplicas(m.Member) {
			names = append(names, cmp.Or(m.Name, string(m.Member)))
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("; a replica is removed while a majority of the others stores messages, and %s is away or has no free space", strings.Join(names, ", "))
}

// errUndrained ends the removal of a member that was undrained meanwhile.
var errUndrained = fmt.Errorf("%w: it was undrained meanwhile, which ended its removal", fsm.PreconditionFails)

// moveReplicasAway gives the partitions whose placement, or target, contains a member a target without it.
func (o *Operator) moveReplicasAway(ctx context.Context, id fsm.MemberID, plan removalPlan) error {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return err
	}
	if m := all.Member(id); !m.Drained && !m.Removed {
		return errUndrained
	}
	current := placement.Settled(all.Partitions)
	if !slices.ContainsFunc(current, func(p fsm.Partition) bool { return placement.HoldsReplica(&p, id) }) {
		return nil
	}
	wanted, err := plan(all)
	if err != nil {
		return err
	}
	for i := range current {
		if !placement.HoldsReplica(&current[i], id) {
			continue
		}
		if err := o.moveAsSeen(ctx, &all, current[i].ID, placement.Members(wanted[i].Replicas)); err != nil {
			return err
		}
	}
	return nil
}

// partitionsHeldBy returns the partitions that a member holds according to the catalog or to the configuration
// of the group, and those whose leader did not answer.
func (o *Operator) partitionsHeldBy(ctx context.Context, id fsm.MemberID) (left []fsm.PartitionID, err error) {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, err
	}
	leaders := o.leaderStatuses(ctx, all.Partitions)
	for i := range all.Partitions {
		part := &all.Partitions[i]
		_, held := placement.FindReplica(part, id)
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
		return err == nil && hasLeft(&status.Status, id)
	}) {
		return fmt.Errorf("%w: all replicas have been moved, but the member has not left the catalog yet; the operation continues: repeat it to wait", fsm.Timeout)
	}
	return nil
}

// hasLeft reports whether the committed configuration of a group is without a member. The voters of a status are
// those of the newest configuration: while that is not committed, the next leader may return to the one before it,
// which needs the vote of the member.
func hasLeft(status *raftgroup.Status, id fsm.MemberID) bool {
	return !status.Uncommitted &&
		!slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), func(v partition.Voter) bool { return v.Member == id })
}
