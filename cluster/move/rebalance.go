package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// PartitionsMax is the largest number of message partitions of a cluster.
const PartitionsMax = 1024

// PlanRebalance computes the moves that spread replicas and leaders by zones and weights over the members that
// are alive and not drained, with as few moves as possible. It changes nothing. Errors wrap ServerBusy or
// Timeout.
func (o *Operator) PlanRebalance(ctx context.Context) ([]topology.PlannedMove, error) {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, fmt.Errorf("plan a rebalance: %w", err)
	}
	current := placement.Settled(all.Partitions)
	wanted := placement.Compute(placement.Spec{
		Candidates: o.Candidates(all, ""), Partitions: len(current), Replication: o.Replication, Current: current, Rebalance: true,
	})
	return o.diffPlacements(ctx, current, wanted), nil
}

// Candidates returns the members that may hold replicas, without one member. A member that is away,
// low on space or not yet in the catalog keeps the replicas that it holds and gets none: a replica that is
// planned on an unknown process would never be opened.
func (o *Operator) Candidates(all placement.Record, without fsm.MemberID) []placement.Candidate {
	known := slices.DeleteFunc(o.Node.Alive(), func(id fsm.MemberID) bool { return !slices.Contains(all.Joined, id) })
	alive := len(known)
	for i := range all.Partitions {
		for _, replica := range slices.Concat(all.Partitions[i].Replicas, all.Partitions[i].Target) {
			if !slices.Contains(known, replica.Member) {
				known = append(known, replica.Member)
			}
		}
	}
	var candidates []placement.Candidate
	for i, id := range known {
		m := all.Member(id)
		if m.Removed || id == without {
			continue
		}
		hasSpace := o.Node.HasSpace(id)
		candidates = append(candidates, placement.Candidate{
			ID: id, Zone: m.Zone, Weight: m.Weight, AcceptsReplicas: i < alive && !m.Drained && hasSpace, AcceptsLeaders: !m.Drained && hasSpace,
		})
	}
	return candidates
}

// diffPlacements lists the differences between two placements, with the sizes of the copies.
func (o *Operator) diffPlacements(ctx context.Context, current, wanted []fsm.Partition) (plan []topology.PlannedMove) {
	var differ []fsm.Partition
	for i := range wanted {
		from, to := placement.Members(current[i].Replicas), placement.Members(wanted[i].Replicas)
		if from[0] == to[0] && placement.SameMembers(from, to) {
			continue
		}
		differ = append(differ, current[i])
		plan = append(plan, topology.PlannedMove{Partition: current[i].ID, From: from, To: to, LeaderOnly: placement.SameMembers(from, to)})
	}
	sizes := o.leaderStatuses(ctx, differ)
	for i := range plan {
		m := &plan[i]
		status, known := sizes[m.Partition]
		for _, id := range m.To {
			if known && !slices.Contains(m.From, id) {
				m.Bytes += status.CopyBytes()
			}
		}
	}
	return plan
}

// Rebalance submits the moves of a plan and returns; Moves shows their progress, two at a time. It returns
// PreconditionFails when the placement of a partition has changed since the plan was made: the moves before
// that one in the plan are submitted; make another plan for the rest.
func (o *Operator) Rebalance(ctx context.Context, plan []topology.PlannedMove) error {
	for i := range plan {
		m := &plan[i]
		all, err := o.partitionRecord(ctx, m.Partition)
		if err != nil {
			return fmt.Errorf("rebalance: %w", err)
		}
		if now := placement.Members(placement.Settled(all.Partitions)[0].Replicas); !slices.Equal(now, m.From) {
			return errPlanOutdated(m.Partition)
		}
		err = o.moveAsSeen(ctx, &all, m.Partition, m.To)
		if errors.Is(err, fsm.Stale) {
			err = errPlanOutdated(m.Partition)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func errPlanOutdated(id fsm.PartitionID) error {
	return fmt.Errorf("rebalance: %w: partition %d was moved after the plan was made", fsm.PreconditionFails, id)
}

// Grow adds n partitions (1 to 1024 in all) on the members that hold least of their share, and returns the new
// number of partitions. Existing entities stay in their partitions; new ones are placed in the new partitions
// first. Errors wrap InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (o *Operator) Grow(ctx context.Context, n int) (int, error) {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return 0, fmt.Errorf("grow: %w", err)
	}
	current := placement.Settled(all.Partitions)
	if n < 1 || len(current)+n > PartitionsMax {
		return 0, fmt.Errorf("grow: %w: a cluster has at most %d partitions, this one has %d", fsm.InvalidArgument, PartitionsMax, len(current))
	}
	wanted := placement.Compute(placement.Spec{
		Candidates: o.Candidates(all, ""), Partitions: len(current) + n, Replication: o.Replication, Current: current,
	})
	if wanted == nil {
		return 0, fmt.Errorf("grow: %w: no member can take further replicas", fsm.InvalidArgument)
	}
	var command fsm.AddPartitions
	for i := range wanted[len(current):] {
		command.Partitions = append(command.Partitions, placement.Members(wanted[len(current)+i].Replicas))
	}
	result, err := o.Router.Command(ctx, fsm.CatalogPartition, command)
	if err != nil {
		return 0, fmt.Errorf("grow: %w", err)
	}
	return int(result.Count), nil
}
