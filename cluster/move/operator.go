package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// Operator executes the commands of operators about members, placement and moves. Its methods may be called
// concurrently.
type Operator struct{ Config }

// The limits of what operators ask.
const (
	concurrentQueriesMax = 16 // leaders asked at the same time
	operatorPollInterval = 50 * time.Millisecond
	transferTimeout      = 20 * time.Second // for a requested transfer to take effect
	targetReplicasMax    = 16               // replicas of a partition, as in fsm
	placementReadsMax    = 5                // of a placement that others change at the same time
)

// partitionRecord returns the catalog's records of one message partition and of the members.
func (o *Operator) partitionRecord(ctx context.Context, id fsm.PartitionID) (placement.Record, error) {
	if id == fsm.CatalogPartition {
		return placement.Record{}, fmt.Errorf("%w: partition 0 is the catalog: every member has a replica of it", fsm.InvalidArgument)
	}
	return o.Node.Placement(ctx, id)
}

// Move sets the target of a partition: 1 to 16 members, each once, the preferred leader first. It returns when
// the target is recorded. The leader of the partition, also a later one if members fail, executes the move, and
// Moves shows its progress. A partition that is already moving gets the new target; data that was copied to
// members of both targets stays. Errors wrap EntityNotFound (no such partition), InvalidArgument (a member that
// is unknown, drained or removed), PreconditionFails (the partition has never had a leader), ServerBusy or
// Timeout.
func (o *Operator) Move(ctx context.Context, id fsm.PartitionID, members []fsm.MemberID) error {
	err := o.place(ctx, id, func(all *placement.Record) (fsm.PlacePartition, error) {
		return all.Place(id, members, false), o.checkTarget(all, id, members)
	})
	return moveError(id, err)
}

// moveAsSeen is Move for a target that was derived from a record: it returns Stale, and changes nothing, if the
// placement of the partition has changed since the record was read.
func (o *Operator) moveAsSeen(ctx context.Context, seen *placement.Record, id fsm.PartitionID, members []fsm.MemberID) error {
	err := o.checkTarget(seen, id, members)
	if err == nil {
		_, err = o.Router.Command(ctx, fsm.CatalogPartition, seen.Place(id, members, false))
	}
	return moveError(id, err)
}

func moveError(id fsm.PartitionID, err error) error {
	if errors.Is(err, fsm.PreconditionFails) {
		err = fmt.Errorf("%w: it has had no leader yet", err)
	}
	if err != nil {
		return fmt.Errorf("move partition %d: %w", id, err)
	}
	return nil
}

// place derives a placement from the record of a partition and records it. It begins again when the placement has
// changed meanwhile, so that it overwrites nothing that derive has not seen: ServerBusy if that happens again and
// again.
func (o *Operator) place(ctx context.Context, id fsm.PartitionID, derive func(*placement.Record) (fsm.PlacePartition, error)) error {
	for range placementReadsMax {
		all, err := o.partitionRecord(ctx, id)
		if err != nil {
			return err
		}
		command, err := derive(&all)
		if err != nil {
			return err
		}
		if _, err = o.Router.Command(ctx, fsm.CatalogPartition, command); !errors.Is(err, fsm.Stale) {
			return err
		}
	}
	return fmt.Errorf("%w: its placement is being changed by others: try again", fsm.ServerBusy)
}

// checkTarget returns a descriptive error for a target that the catalog would refuse without an explanation. It
// also refuses a drained member that the present target of the partition does not contain: its replica is being
// moved away, and a target that was computed before must not bring it back.
func (o *Operator) checkTarget(all *placement.Record, partition fsm.PartitionID, members []fsm.MemberID) error {
	if len(members) == 0 || len(members) > targetReplicasMax {
		return fmt.Errorf("%w: a partition has 1 to %d replicas", fsm.InvalidArgument, targetReplicasMax)
	}
	placed := slices.IndexFunc(all.Partitions, func(p fsm.Partition) bool { return p.ID == partition })
	part := placement.Settled(all.Partitions[placed : placed+1])[0]
	for i, id := range members {
		m := all.Member(id)
		switch {
		case slices.Contains(members[:i], id):
			return fmt.Errorf("%w: member %s is named twice", fsm.InvalidArgument, id)
		case placement.HoldsReplica(&part, id):
		case m.Removed:
			return fmt.Errorf("%w: member %s was removed", fsm.InvalidArgument, id)
		case m.Drained:
			return fmt.Errorf("%w: member %s is drained and takes no further replicas", fsm.InvalidArgument, id)
		case !o.isKnown(id):
			return fmt.Errorf("%w: there is no member %s", fsm.InvalidArgument, id)
		}
	}
	return nil
}

// PauseMove pauses a move in its present state and keeps what it has copied. Errors wrap PreconditionFails when
// the partition does not move, else those of Move.
func (o *Operator) PauseMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "pause", id, true, func(part *fsm.Partition) []fsm.Replica { return part.Target })
}

// ResumeMove continues a paused move.
func (o *Operator) ResumeMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "resume", id, false, func(part *fsm.Partition) []fsm.Replica { return part.Target })
}

// CancelMove makes the present replicas of a partition its target again; copies on other members are removed.
// Once former replicas are being removed, a move cannot be cancelled: PreconditionFails. If the target was
// changed during the move, the record also lists the members of the earlier targets, and the partition goes
// back to all of them.
func (o *Operator) CancelMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "cancel", id, false, func(part *fsm.Partition) []fsm.Replica {
		return part.Replicas[:min(len(part.Replicas), targetReplicasMax)]
	})
}

func (o *Operator) updateMove(ctx context.Context, what string, id fsm.PartitionID, paused bool, target func(*fsm.Partition) []fsm.Replica) error {
	err := o.place(ctx, id, func(all *placement.Record) (fsm.PlacePartition, error) {
		part := &all.Partitions[0]
		if part.Target == nil {
			return fsm.PlacePartition{}, fmt.Errorf("%w: it is not moving", fsm.PreconditionFails)
		}
		return all.Place(id, placement.Members(target(part)), paused), nil
	})
	if err != nil {
		return fmt.Errorf("%s the move of partition %d: %w", what, id, err)
	}
	return nil
}

// TransferLeader makes a member that holds a partition its preferred leader and waits, at most 20 s, until it
// leads. The member becomes the leader when it is alive and caught up; a leader tries to transfer its
// leadership once in its term. Errors wrap InvalidArgument (the member does not hold the partition, or is
// drained), EntityNotFound, ServerBusy, or Timeout: the member may lead later.
func (o *Operator) TransferLeader(ctx context.Context, id fsm.PartitionID, to fsm.MemberID) error {
	err := o.transferLeader(ctx, id, to)
	if err != nil {
		return fmt.Errorf("transfer partition %d to %s: %w", id, to, err)
	}
	return nil
}

func (o *Operator) transferLeader(ctx context.Context, id fsm.PartitionID, to fsm.MemberID) error {
	if id == fsm.CatalogPartition {
		return fmt.Errorf("%w: the leader of the catalog cannot be chosen", fsm.InvalidArgument)
	}
	if err := o.place(ctx, id, func(all *placement.Record) (fsm.PlacePartition, error) { return preferring(all, to) }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if !pollUntil(ctx, func() bool {
		status, err := o.leaderStatus(ctx, id)
		return err == nil && status.member == to
	}) {
		return fmt.Errorf("%w: it is now the preferred leader and does not lead yet", fsm.Timeout)
	}
	return nil
}

// preferring returns the command that makes a member the preferred leader of the one partition of a record.
func preferring(all *placement.Record, to fsm.MemberID) (fsm.PlacePartition, error) {
	part := &all.Partitions[0]
	wanted := part.Replicas
	if part.Target != nil {
		wanted = part.Target
	}
	members := placement.Members(wanted)
	at := slices.Index(members, to)
	switch {
	case at < 0:
		return fsm.PlacePartition{}, fmt.Errorf("%w: the member does not hold the partition", fsm.InvalidArgument)
	case all.Member(to).Drained:
		return fsm.PlacePartition{}, fmt.Errorf("%w: the member is drained", fsm.InvalidArgument)
	}
	members = slices.Insert(slices.Delete(members, at, at+1), 0, to)
	return all.Place(part.ID, members, part.Paused), nil
}

// Moves lists the partitions whose replicas differ from their target, by id. It asks each leader for up to a
// second. Errors wrap ServerBusy or Timeout.
func (o *Operator) Moves(ctx context.Context) ([]topology.Move, error) {
	all, err := o.Node.Placement(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, fmt.Errorf("list moves: %w", err)
	}
	leaders := o.leaderStatuses(ctx, all.Partitions)
	var moves []topology.Move
	for i := range all.Partitions {
		part := &all.Partitions[i]
		leader, known := leaders[part.ID]
		status := partition.Status{Voters: leader.Voters, Nonvoters: leader.Nonvoters}
		step := nextStep(part, &status, leader.member, o.isAlive, anyRemovable)
		if part.Target == nil && (!known || step.stage == stageNone) {
			continue
		}
		moves = append(moves, o.moveStatus(ctx, part, &leader, known, step, all.Partitions))
	}
	return moves, nil
}

func (o *Operator) moveStatus(ctx context.Context, part *fsm.Partition, leader *leaderReply, known bool, step moveStep, all []fsm.Partition) topology.Move {
	m := topology.Move{Partition: part.ID, From: placement.Members(part.Replicas), To: placement.Members(part.Target), State: topology.Waiting}
	switch {
	case part.Target == nil:
		m.To, m.State = m.From, topology.Removing
		if slices.Contains(leader.Voters, step.replica) && step.replica.Member == leader.member {
			m.State = topology.HandingOver
		}
		for _, v := range staleReplicas(part, &partition.Status{Voters: leader.Voters, Nonvoters: leader.Nonvoters}) {
			m.From = append(slices.Clone(m.From), v.Member)
		}
	case part.Paused:
		m.State = topology.Paused
	case !known || addsReplicas(part) && !isAdmitted(part.ID, all, o.acceptsReplicas):
	case step.stage == stageAdd:
		m.State = topology.Adding
	case step.stage == stageCatchUp:
		m.State = topology.CatchingUp
		ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
		defer cancel()
		if theirs, err := o.Node.Status(ctx, step.replica.Member, part.ID); err == nil {
			m.Bytes, m.Copied = leader.CopyBytes(), min(theirs.CopyBytes(), leader.CopyBytes())
		}
	default:
		m.State = topology.HandingOver
	}
	return m
}
