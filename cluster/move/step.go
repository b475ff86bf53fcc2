package move

import (
	"slices"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
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
	stageWait              // waits until such a replica can be removed
)

// moveStep is one step of a move: a stage and the replica that it is about. For stageReport the replica is
// empty.
type moveStep struct {
	stage   moveStage
	replica partition.Voter
}

// nextStep derives the next step from the catalog's record and from the group's own configuration, so it does
// not matter which leader executed the earlier steps, nor whether the result of the last one was received.
// alive reports which members are alive; replicas on dead members are removed first. removable reports whether the group
// can lose a replica now; one that has to wait does not delay the others.
//
// All additions come before all removals, with the report between them. Before the report, a move can be
// abandoned without loss. A replica that is removed is no longer in the catalog's record, so no later move can
// want it back: its number is never assigned again.
func nextStep(part *fsm.Partition, status *partition.Status, self fsm.MemberID, alive func(fsm.MemberID) bool, removable func(partition.Voter) bool) moveStep {
	if stale := staleReplicas(part, status); len(stale) > 0 {
		return removeStep(stale, status, self, alive, removable)
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

// anyRemovable is for callers that want to know what a move does, not whether it can go on now.
func anyRemovable(partition.Voter) bool { return true }

// removeStep returns the step that removes one of several replicas.
func removeStep(stale []partition.Voter, status *partition.Status, self fsm.MemberID, alive func(fsm.MemberID) bool, removable func(partition.Voter) bool) moveStep {
	rank := func(v partition.Voter) int {
		switch {
		case !slices.Contains(status.Voters, v):
			return 0
		case alive(v.Member):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(stale, func(a, b partition.Voter) int { return rank(a) - rank(b) })
	for _, v := range stale {
		if v.Member == self && len(stale) > 1 {
			continue // the leader goes last
		}
		if removable(v) {
			return moveStep{stageRemove, v}
		}
	}
	return moveStep{stage: stageWait}
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
