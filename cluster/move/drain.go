package move

import (
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
)

// Drain takes a member out of service: the member transfers its leaderships, and gets no leaderships and no
// further replicas. Drain returns when the member leads no partition that another member could lead, or with Timeout
// when ctx ends before; the draining then continues. Drain a member before you stop it.
func (o *Operator) Drain(ctx context.Context, id fsm.MemberID) error {
	if err := o.UpdateMember(ctx, id, func(m *fsm.Member) { m.Drained = true }); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	// A member that has applied less of the catalog than this one has now may not know of the drain yet, and
	// may make the drained member a leader because it is preferred.
	var known uint64
	if catalog, err := o.Node.Status(ctx, o.Self, fsm.CatalogPartition); err == nil {
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
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
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
	case status.member == id, status.Transferring:
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
	return slices.ContainsFunc(candidates, func(m fsm.MemberID) bool { return m != id && o.IsStaying(m) })
}
