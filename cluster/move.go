package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of moves.
const (
	concurrentMovesMax    = 2                      // partitions that get new replicas at the same time
	catchUpTimeout        = 5 * time.Second        // for a replica to apply what its leader has committed
	catchUpPollInterval   = 20 * time.Millisecond  // between two checks of the replica
	placementQueryTimeout = 2 * time.Second        // for the catalog's leader to return the placement of a partition
	moveBackoffMin        = 100 * time.Millisecond // between two attempts of a step that failed
	moveBackoffMax        = 5 * time.Second
	transferRetriesMin    = 3  // attempts of a step before a leader whose transfer failed removes itself
	moveRetriesMax        = 20 // attempts by one goroutine; the reconciler starts another
)

// moveStage is the kind of the next step of a move, which the leader of the partition executes.
type moveStage uint8

// The stages of a move, in their order.
const (
	stageNone    moveStage = iota
	stageAdd               // adds a replica of the target as a non-voter
	stageCatchUp           // waits until the replica has caught up, and makes it a voter
	stageReport            // all replicas of the target vote: reports this to the catalog, which cannot be reverted
	stageRemove            // removes a replica that no longer belongs to the partition from the group
)

// moveStep is one step of a move: a stage and the replica that it is about. For stageReport the replica is
// empty.
type moveStep struct {
	stage   moveStage
	replica partition.Voter
}

// nextStep derives the next step from the catalog's record and from the group's own configuration, so it does
// not matter which leader executed the earlier steps, nor whether the result of the last one was received.
// alive reports which members are alive; replicas on dead members are removed first.
//
// All additions come before all removals, with the report between them. Before the report, a move can be
// abandoned without loss. A replica that is removed is no longer in the catalog's record, so no later move can
// want it back: its number is never assigned again.
func nextStep(part *fsm.Partition, status *partition.Status, self fsm.MemberID, alive func(fsm.MemberID) bool) moveStep {
	if stale := staleReplicas(part, status); len(stale) > 0 {
		rank := func(v partition.Voter) int {
			switch {
			case !slices.Contains(status.Voters, v):
				return 0
			case v.Member == self:
				return 3 // the leader goes last
			case alive(v.Member):
				return 2
			}
			return 1
		}
		return moveStep{stageRemove, slices.MinFunc(stale, func(a, b partition.Voter) int { return rank(a) - rank(b) })}
	}
	if part.Target == nil {
		return moveStep{}
	}
	for _, replica := range part.Target {
		v := partition.Voter{Replica: raftgroup.ReplicaID(replica.Member, replica.Number), Member: replica.Member}
		switch {
		case slices.Contains(status.Voters, v):
		case slices.Contains(status.Nonvoters, v):
			return moveStep{stageCatchUp, v}
		default:
			return moveStep{stageAdd, v}
		}
	}
	return moveStep{stage: stageReport}
}

// staleReplicas returns the replicas of the group that the catalog's record does not contain, or no longer
// contains.
func staleReplicas(part *fsm.Partition, status *partition.Status) (stale []partition.Voter) {
	for _, v := range slices.Concat(status.Nonvoters, status.Voters) {
		known := func(r fsm.Replica) bool { return raftgroup.ReplicaID(r.Member, r.Number) == v.Replica }
		if !slices.ContainsFunc(part.Replicas, known) && !slices.ContainsFunc(part.Target, known) {
			stale = append(stale, v)
		}
	}
	return stale
}

// addsReplicas reports whether a move adds replicas on members that have none of the partition yet. Such moves
// copy data, so few run at a time.
func addsReplicas(part *fsm.Partition) bool {
	return slices.ContainsFunc(part.Target, func(r fsm.Replica) bool { return !slices.Contains(part.Replicas, r) })
}

// isAdmitted reports whether the move of a partition may run now: the partition is among the first
// concurrentMovesMax that get new replicas. Moves that wait for a member that is away or low on space are not
// counted.
func isAdmitted(id fsm.PartitionID, placed []fsm.Partition, accepts func(fsm.MemberID) bool) bool {
	slots := concurrentMovesMax
	for i := range placed {
		part := &placed[i]
		away := slices.ContainsFunc(part.Target, func(r fsm.Replica) bool {
			return !slices.Contains(part.Replicas, r) && !accepts(r.Member)
		})
		switch {
		case part.ID == id:
			return !away
		case addsReplicas(part) && !part.Paused && !away:
			if slots--; slots == 0 {
				return false
			}
		}
	}
	return false
}

// startMove starts a goroutine for a partition that is led here and whose replicas differ from its target,
// unless one is already running.
func (n *Node) startMove(part *fsm.Partition, group *partition.Group) {
	status := group.Status()
	if step := nextStep(part, &status, n.self, n.isAlive); step.stage == stageNone {
		return
	}
	n.mu.Lock()
	running := n.movesRunning[part.ID]
	n.movesRunning[part.ID] = true
	n.mu.Unlock()
	if running {
		return
	}
	ended := func() {
		n.mu.Lock()
		delete(n.movesRunning, part.ID)
		n.mu.Unlock()
	}
	if !n.startTask(func(ctx context.Context) {
		defer ended()
		n.runMove(ctx, part.ID)
	}) {
		ended()
	}
}

// runMove executes one step after another while this member leads the partition.
func (n *Node) runMove(ctx context.Context, id fsm.PartitionID) {
	pause := moveBackoffMin
	for tries := 0; tries < moveRetriesMax; {
		group := (*n.groups.Load())[id]
		if group == nil || ctx.Err() != nil || !group.Status().IsLeader {
			return
		}
		done, more, err := n.runMoveStep(ctx, id, group, tries)
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, partition.ErrNotLeader):
			n.log.InfoContext(ctx, "failed to complete a step of a partition move, will retry", "partition", id, "error", err)
		case !more:
			return
		}
		if done {
			tries, pause = 0, moveBackoffMin
			continue
		}
		tries++
		sleep(ctx, pause)
		pause = min(2*pause, moveBackoffMax)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// runMoveStep executes one step. It asks the catalog's leader for the record each time: this member's own
// replica of the catalog may be outdated, after a restart even by much, and a step based on an outdated record
// could undo what was done since. done means that the step succeeded; more means that there may be another
// step.
func (n *Node) runMoveStep(ctx context.Context, id fsm.PartitionID, group *partition.Group, tries int) (done, more bool, err error) {
	reply, err := n.operator.placementFromLeader(ctx, id)
	if err != nil || len(reply.Partitions) != 1 {
		return false, true, err
	}
	part, status := &reply.Partitions[0], group.Status()
	step := nextStep(part, &status, n.self, n.isAlive)
	switch step.stage {
	case stageNone:
		return false, false, nil
	case stageRemove:
		done, err = n.removeReplica(ctx, part, group, step.replica, tries)
		return done, true, err
	case stageAdd, stageCatchUp, stageReport:
	}
	if placed := n.partitions.Load(); part.Paused || addsReplicas(part) && (placed == nil || !isAdmitted(id, *placed, n.acceptsReplicas)) {
		return false, false, nil // the reconciler tries again
	}
	switch step.stage { //nolint:exhaustive // the others were before
	case stageAdd:
		done, err = n.addReplica(ctx, part, group, step.replica)
	case stageCatchUp:
		done, err = n.promoteReplica(ctx, part, group, step.replica)
	case stageReport:
		_, err = n.router.Command(ctx, fsm.CatalogPartition, fsm.PartitionPlaced{Partition: id, Replicas: part.Target})
		if done = err == nil; done {
			n.log.InfoContext(ctx, "partition move was completed: the target replicas vote", "partition", id, "members", placement.Members(part.Target))
		}
	}
	return done, true, err
}

// addReplica adds an empty replica that does not vote, once its member has opened it. The member is asked
// first: while it still has a former replica of the group open, that replica would receive what is sent to the
// new one.
func (n *Node) addReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	theirs, err := n.replicaStatus(ctx, v.Member, part.ID)
	if err != nil || theirs.Replica != v.Replica || theirs.Halted {
		return false, nil // the member does not know the replica yet, or is away
	}
	if err := group.AddNonvoter(ctx, v.Replica, v.Member); err != nil {
		return false, err
	}
	n.log.InfoContext(ctx, "replica was added, copying started", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// promoteReplica makes a replica a voter when it has applied, twice in a row, everything that the leader had
// applied when the replica was asked; once may be coincidence. (Applied counts commands and configurations. The
// state machine does not see other committed entries, such as the one that begins a term.)
func (n *Node) promoteReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter) (bool, error) {
	for range 2 {
		if !n.hasApplied(ctx, part.ID, v, group.Status().Applied) {
			return false, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.AddVoter(ctx, v.Replica, v.Member); err != nil {
		return false, err
	}
	n.log.InfoContext(ctx, "replica caught up and was given a vote", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// hasApplied waits, for at most catchUpTimeout, until a replica has applied everything up to an index.
func (n *Node) hasApplied(ctx context.Context, id fsm.PartitionID, v partition.Voter, index uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for ctx.Err() == nil {
		theirs, err := n.replicaStatus(ctx, v.Member, id)
		if err == nil && theirs.Replica == v.Replica && !theirs.Halted && theirs.Applied >= index {
			return true
		}
		sleep(ctx, catchUpPollInterval)
	}
	return false
}

// removeReplica removes a replica that the catalog's record no longer contains from its group. If that replica
// leads, it transfers the leadership first. It stays as long as the remaining voters could not form a quorum
// without it.
func (n *Node) removeReplica(ctx context.Context, part *fsm.Partition, group *partition.Group, v partition.Voter, tries int) (bool, error) {
	status := group.Status()
	if slices.Contains(status.Voters, v) && !n.hasQuorumWithout(ctx, part.ID, v, &status) {
		return false, nil
	}
	if v.Member == n.self {
		switch err := n.transferToHolder(ctx, part, group); {
		case err == nil:
			return false, nil // the next leader continues
		case errors.Is(err, errNoSuccessor), errors.Is(err, partition.ErrTransferUsed) && tries < transferRetriesMin:
			return false, nil // a successor will appear, or another transfer is in progress
		case !errors.Is(err, partition.ErrTransferUsed):
			return false, err
		}
		// The transfer has failed before. Removing the leader costs an election and nothing else.
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := group.RemoveReplica(ctx, v.Replica); err != nil {
		return false, err
	}
	n.log.InfoContext(ctx, "replica was removed from its group", "partition", part.ID, "peer", v.Member, "replica", v.Replica)
	return true, nil
}

// hasQuorumWithout reports whether a majority of the voters that would remain are alive and have applied the
// newest configuration, so that they know of each other that they vote.
func (n *Node) hasQuorumWithout(ctx context.Context, id fsm.PartitionID, v partition.Voter, status *partition.Status) bool {
	left, here := 0, 0
	for _, other := range status.Voters {
		if other == v {
			continue
		}
		left++
		if !n.isAlive(other.Member) {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, memberQueryTimeout)
		theirs, err := n.replicaStatus(asking, other.Member, id)
		cancel()
		if err == nil && theirs.Replica == other.Replica && !theirs.Halted && theirs.Applied >= status.Configuration {
			here++
		}
	}
	return here > left/2
}

// errNoSuccessor means that no other voter can lead now.
var errNoSuccessor = errors.New("no other member is there and caught up to lead")

// transferToHolder transfers the leadership to the first replica of the target, or else of the present
// placement, that is alive and has caught up. It prefers members that have free disk space.
func (n *Node) transferToHolder(ctx context.Context, part *fsm.Partition, group *partition.Group) error {
	err := n.transferToEligible(ctx, part, group, n.acceptsLeaders)
	if errors.Is(err, errNoSuccessor) {
		err = n.transferToEligible(ctx, part, group, n.isStaying)
	}
	return err
}

// transferToEligible transfers the leadership to the first such replica whose member is eligible.
func (n *Node) transferToEligible(ctx context.Context, part *fsm.Partition, group *partition.Group, eligible func(fsm.MemberID) bool) error {
	voters := group.Status().Voters
	for _, replica := range slices.Concat(part.Target, part.Replicas) {
		isThis := func(v partition.Voter) bool { return v.Replica == raftgroup.ReplicaID(replica.Member, replica.Number) }
		if replica.Member == n.self || !slices.ContainsFunc(voters, isThis) || !eligible(replica.Member) ||
			!n.isCaughtUp(ctx, replica.Member, part.ID, group) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		err := group.Transfer(ctx, replica.Member)
		if err == nil {
			n.log.InfoContext(ctx, "leadership was transferred", "partition", part.ID, "peer", replica.Member)
		}
		return err
	}
	return errNoSuccessor
}

// replicaStatus asks a member, which may be this one, for the status of its replica.
func (n *Node) replicaStatus(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error) {
	if member == n.self {
		return n.router.ReplicaStatus(id)
	}
	return n.askStatus(ctx, member, id)
}

// isAlive reports whether gossip considers a member alive.
func (n *Node) isAlive(id fsm.MemberID) bool {
	m, ok := n.gossip.Lookup(id)
	return ok && m.Alive
}
