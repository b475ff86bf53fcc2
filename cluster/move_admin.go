package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of what operators ask.
const (
	concurrentQueriesMax = 16          // leaders asked at the same time
	memberQueryTimeout   = time.Second // for one leader to answer
	operatorPollInterval = 50 * time.Millisecond
	transferTimeout      = 20 * time.Second // for a requested transfer to take effect
	targetReplicasMax    = 16               // replicas of a partition, as in fsm
)

// Plan lists the moves of a rebalance. PlanRebalance makes it and changes nothing.
type Plan struct{ Moves []PlanMove }

// PlanMove is a partition that would get other replicas or another preferred leader.
type PlanMove struct {
	Partition fsm.PartitionID
	From, To  []fsm.MemberID // the preferred leader first
	// Bytes estimates what must be copied: for each new replica the bodies and the index of the partition, as
	// its leader has them now. It is 0 if the leader did not answer.
	Bytes      int64
	LeaderOnly bool // From and To have the same members
}

// The states of a move.
const (
	MoveWaiting     = "waiting"      // for its turn, or for a member that is away
	MoveAdding      = "adding"       // a replica is being opened and added
	MoveCatchingUp  = "catching up"  // the new replica is being filled
	MoveHandingOver = "handing over" // all replicas of the target have caught up; the leadership is being transferred
	MoveRemoving    = "removing"     // former replicas are being removed; the move can no longer be cancelled
	MovePaused      = "paused"
)

// MoveStatus is the progress of a partition whose replicas differ from its target.
type MoveStatus struct {
	Partition fsm.PartitionID
	From, To  []fsm.MemberID
	State     string
	// Copied of Bytes have arrived at the replica that is being filled; both are 0 when that is not known.
	Copied, Bytes int64
}

// partitionRecord returns the catalog's record of one message partition.
func (o *Operator) partitionRecord(ctx context.Context, id fsm.PartitionID) (fsm.Partition, error) {
	if id == fsm.CatalogPartition {
		return fsm.Partition{}, fmt.Errorf("%w: partition 0 is the catalog: every member has a replica of it", fsm.InvalidArgument)
	}
	all, err := o.placementFromLeader(ctx, id)
	if err != nil {
		return fsm.Partition{}, err
	}
	return all.Partitions[0], nil
}

// Move sets the target of a partition: 1 to 16 members, each once, the preferred leader first. It returns when
// the target is recorded. The leader of the partition, also a later one if members fail, executes the move, and
// Moves shows its progress. A partition that is already moving gets the new target; data that was copied to
// members of both targets stays. Errors wrap EntityNotFound (no such partition), InvalidArgument (a member that
// is unknown, drained or removed), PreconditionFails (the partition has never had a leader), ServerBusy or
// Timeout.
func (o *Operator) Move(ctx context.Context, id fsm.PartitionID, members []fsm.MemberID) error {
	part, err := o.partitionRecord(ctx, id)
	if err == nil {
		err = o.checkTarget(ctx, &part, members)
	}
	if err == nil {
		_, err = o.router.Command(ctx, fsm.CatalogPartition, fsm.PlacePartition{Partition: id, Members: members})
	}
	if errors.Is(err, fsm.PreconditionFails) {
		err = fmt.Errorf("%w: it has had no leader yet", err)
	}
	if err != nil {
		return fmt.Errorf("move partition %d: %w", id, err)
	}
	return nil
}

// checkTarget returns a descriptive error for a target that the catalog would refuse without an explanation.
func (o *Operator) checkTarget(ctx context.Context, part *fsm.Partition, members []fsm.MemberID) error {
	if len(members) == 0 || len(members) > targetReplicasMax {
		return fmt.Errorf("%w: a partition has 1 to %d replicas", fsm.InvalidArgument, targetReplicasMax)
	}
	all, err := o.placementFromLeader(ctx, part.ID)
	if err != nil {
		return err
	}
	for i, id := range members {
		_, has := findReplica(part, id)
		m := findMember(all.Members, id)
		switch {
		case slices.Contains(members[:i], id):
			return fmt.Errorf("%w: member %s is named twice", fsm.InvalidArgument, id)
		case has:
		case m.Removed:
			return fmt.Errorf("%w: member %s was removed", fsm.InvalidArgument, id)
		case m.Drained:
			return fmt.Errorf("%w: member %s is drained and takes no further replicas", fsm.InvalidArgument, id)
		case !o.node.isKnown(id):
			return fmt.Errorf("%w: there is no member %s", fsm.InvalidArgument, id)
		}
	}
	return nil
}

// PauseMove pauses a move in its present state and keeps what it has copied. Errors wrap PreconditionFails when
// the partition does not move, else those of Move.
func (o *Operator) PauseMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "pause", id, func(part *fsm.Partition) fsm.PlacePartition {
		return fsm.PlacePartition{Partition: id, Members: placement.Members(part.Target), Paused: true}
	})
}

// ResumeMove continues a paused move.
func (o *Operator) ResumeMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "resume", id, func(part *fsm.Partition) fsm.PlacePartition {
		return fsm.PlacePartition{Partition: id, Members: placement.Members(part.Target)}
	})
}

// CancelMove makes the present replicas of a partition its target again; copies on other members are removed.
// Once former replicas are being removed, a move cannot be cancelled: PreconditionFails. If the target was
// changed during the move, the record also lists the members of the earlier targets, and the partition goes
// back to all of them.
func (o *Operator) CancelMove(ctx context.Context, id fsm.PartitionID) error {
	return o.updateMove(ctx, "cancel", id, func(part *fsm.Partition) fsm.PlacePartition {
		return fsm.PlacePartition{Partition: id, Members: placement.Members(part.Replicas[:min(len(part.Replicas), targetReplicasMax)])}
	})
}

func (o *Operator) updateMove(ctx context.Context, what string, id fsm.PartitionID, with func(*fsm.Partition) fsm.PlacePartition) error {
	part, err := o.partitionRecord(ctx, id)
	if err == nil && part.Target == nil {
		err = fmt.Errorf("%w: it does not move", fsm.PreconditionFails)
	}
	if err == nil {
		_, err = o.router.Command(ctx, fsm.CatalogPartition, with(&part))
	}
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
	all, err := o.placementFromLeader(ctx, id)
	if err != nil {
		return err
	}
	if id == fsm.CatalogPartition || len(all.Partitions) != 1 {
		return fmt.Errorf("%w: the leader of the catalog is not chosen", fsm.InvalidArgument)
	}
	part := &all.Partitions[0]
	wanted := part.Replicas
	if part.Target != nil {
		wanted = part.Target
	}
	members := placement.Members(wanted)
	at := slices.Index(members, to)
	switch {
	case at < 0:
		return fmt.Errorf("%w: the member does not hold the partition", fsm.InvalidArgument)
	case findMember(all.Members, to).Drained:
		return fmt.Errorf("%w: the member is drained", fsm.InvalidArgument)
	}
	members = slices.Insert(slices.Delete(members, at, at+1), 0, to)
	command := fsm.PlacePartition{Partition: id, Members: members, Paused: part.Paused}
	if _, err := o.router.Command(ctx, fsm.CatalogPartition, command); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if !pollUntil(ctx, func() bool {
		status, err := o.leaderStatus(ctx, id)
		return err == nil && status.member == to
	}) {
		return fmt.Errorf("%w: it is preferred now and does not lead yet", fsm.Timeout)
	}
	return nil
}

// leaderReply is the status of a partition's leader, and the member that reported it.
type leaderReply struct {
	raftgroup.Status
	member fsm.MemberID
}

// leaderStatus asks the leader of a partition for its status, for at most memberQueryTimeout (1 s).
func (o *Operator) leaderStatus(ctx context.Context, id fsm.PartitionID) (leaderReply, error) {
	ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
	defer cancel()
	member, err := o.router.AwaitLeader(ctx, id)
	if err != nil {
		return leaderReply{}, fmt.Errorf("partition %d has no leader: %w", id, fsm.ServerBusy)
	}
	status, err := o.memberStatus(ctx, member, id)
	if err == nil && !status.Leads {
		err = rpc.ErrNotLeader
	}
	if err != nil {
		o.router.SuspectLeader(id, member)
	}
	return leaderReply{status, member}, err
}

func (o *Operator) memberStatus(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	if member == o.node.self {
		return o.router.ReplicaStatus(id)
	}
	return o.node.askStatus(ctx, member, id)
}

// leaderStatuses asks the leaders of all given partitions, concurrentQueriesMax at a time.
func (o *Operator) leaderStatuses(ctx context.Context, parts []fsm.Partition) map[fsm.PartitionID]leaderReply {
	all := make(map[fsm.PartitionID]leaderReply, len(parts))
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, concurrentQueriesMax)
	for i := range parts {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			if status, err := o.leaderStatus(ctx, parts[i].ID); err == nil {
				mu.Lock()
				all[parts[i].ID] = status
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return all
}

// PlanRebalance computes the moves that spread replicas and leaders by zones and weights over the members that
// are alive and not drained, with as few moves as possible. It changes nothing. Errors wrap ServerBusy or
// Timeout.
func (o *Operator) PlanRebalance(ctx context.Context) (Plan, error) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return Plan{}, fmt.Errorf("plan a rebalance: %w", err)
	}
	current := placement.Settled(all.Partitions)
	wanted := placement.Compute(placement.Spec{
		Candidates: o.placementCandidates(all, ""), Partitions: len(current), Replication: o.node.config.Replication, Current: current, Rebalance: true,
	})
	return o.diffPlacements(ctx, current, wanted), nil
}

// placementCandidates returns the members that may hold replicas, without one member. A member that is away,
// low on space or not yet in the catalog keeps the replicas that it holds and gets none: a replica that is
// planned on an unknown process would never be opened.
func (o *Operator) placementCandidates(all placement.Record, without fsm.MemberID) []placement.Candidate {
	known := slices.DeleteFunc(o.node.gossip.Alive(), func(id fsm.MemberID) bool { return !slices.Contains(all.Joined, id) })
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
		m := findMember(all.Members, id)
		if m.Removed || id == without {
			continue
		}
		hasSpace := o.node.hasSpace(id)
		candidates = append(candidates, placement.Candidate{
			ID: id, Zone: m.Zone, Weight: m.Weight, AcceptsReplicas: i < alive && !m.Drained && hasSpace, AcceptsLeaders: !m.Drained && hasSpace,
		})
	}
	return candidates
}

// diffPlacements lists the differences between two placements, with the sizes of the copies.
func (o *Operator) diffPlacements(ctx context.Context, current, wanted []fsm.Partition) (plan Plan) {
	var differ []fsm.Partition
	for i := range wanted {
		from, to := placement.Members(current[i].Replicas), placement.Members(wanted[i].Replicas)
		if from[0] == to[0] && placement.SameMembers(from, to) {
			continue
		}
		differ = append(differ, current[i])
		plan.Moves = append(plan.Moves, PlanMove{Partition: current[i].ID, From: from, To: to, LeaderOnly: placement.SameMembers(from, to)})
	}
	sizes := o.leaderStatuses(ctx, differ)
	for i := range plan.Moves {
		m := &plan.Moves[i]
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
func (o *Operator) Rebalance(ctx context.Context, plan Plan) error {
	for i := range plan.Moves {
		m := &plan.Moves[i]
		part, err := o.partitionRecord(ctx, m.Partition)
		if err != nil {
			return fmt.Errorf("rebalance: %w", err)
		}
		if now := placement.Members(placement.Settled([]fsm.Partition{part})[0].Replicas); !slices.Equal(now, m.From) {
			return fmt.Errorf("rebalance: %w: partition %d was moved after the plan was made", fsm.PreconditionFails, m.Partition)
		}
		if err := o.Move(ctx, m.Partition, m.To); err != nil {
			return err
		}
	}
	return nil
}

// Grow adds n partitions (1 to 1024 in all) on the members that hold least of their share, and returns the new
// number of partitions. Existing entities stay in their partitions; new ones are placed in the new partitions
// first. Errors wrap InvalidArgument, QuotaExceeded, ServerBusy or Timeout.
func (o *Operator) Grow(ctx context.Context, n int) (int, error) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return 0, fmt.Errorf("grow: %w", err)
	}
	current := placement.Settled(all.Partitions)
	if n < 1 || len(current)+n > partitionsMax {
		return 0, fmt.Errorf("grow: %w: a cluster has at most %d partitions, this one has %d", fsm.InvalidArgument, partitionsMax, len(current))
	}
	wanted := placement.Compute(placement.Spec{
		Candidates: o.placementCandidates(all, ""), Partitions: len(current) + n, Replication: o.node.config.Replication, Current: current,
	})
	if wanted == nil {
		return 0, fmt.Errorf("grow: %w: no member can take further replicas", fsm.InvalidArgument)
	}
	var command fsm.AddPartitions
	for i := range wanted[len(current):] {
		command.Partitions = append(command.Partitions, placement.Members(wanted[len(current)+i].Replicas))
	}
	result, err := o.router.Command(ctx, fsm.CatalogPartition, command)
	if err != nil {
		return 0, fmt.Errorf("grow: %w", err)
	}
	return int(result.Count), nil
}

// Moves lists the partitions whose replicas differ from their target, by id. It asks each leader for up to a
// second. Errors wrap ServerBusy or Timeout.
func (o *Operator) Moves(ctx context.Context) ([]MoveStatus, error) {
	all, err := o.placementFromLeader(ctx, fsm.CatalogPartition)
	if err != nil {
		return nil, fmt.Errorf("list moves: %w", err)
	}
	leaders := o.leaderStatuses(ctx, all.Partitions)
	var moves []MoveStatus
	for i := range all.Partitions {
		part := &all.Partitions[i]
		leader, known := leaders[part.ID]
		status := partition.Status{Voters: leader.Voters, Nonvoters: leader.Nonvoters}
		step := nextStep(part, &status, leader.member, o.node.isAlive)
		if part.Target == nil && (!known || step.stage == stageNone) {
			continue
		}
		moves = append(moves, o.moveStatus(ctx, part, &leader, known, step, all.Partitions))
	}
	return moves, nil
}

func (o *Operator) moveStatus(ctx context.Context, part *fsm.Partition, leader *leaderReply, known bool, step moveStep, all []fsm.Partition) MoveStatus {
	m := MoveStatus{Partition: part.ID, From: placement.Members(part.Replicas), To: placement.Members(part.Target), State: MoveWaiting}
	switch {
	case part.Target == nil:
		m.To, m.State = m.From, MoveRemoving
		if slices.Contains(leader.Voters, step.replica) && step.replica.Member == leader.member {
			m.State = MoveHandingOver
		}
		for _, v := range staleReplicas(part, &partition.Status{Voters: leader.Voters, Nonvoters: leader.Nonvoters}) {
			m.From = append(slices.Clone(m.From), v.Member)
		}
	case part.Paused:
		m.State = MovePaused
	case !known || addsReplicas(part) && !isAdmitted(part.ID, all, o.node.acceptsReplicas):
	case step.stage == stageAdd:
		m.State = MoveAdding
	case step.stage == stageCatchUp:
		m.State = MoveCatchingUp
		ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
		defer cancel()
		if theirs, err := o.memberStatus(ctx, step.replica.Member, part.ID); err == nil {
			m.Bytes, m.Copied = leader.CopyBytes(), min(theirs.CopyBytes(), leader.CopyBytes())
		}
	default:
		m.State = MoveHandingOver
	}
	return m
}
