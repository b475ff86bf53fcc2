package move

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

func testReplicas(members ...fsm.MemberID) (all []fsm.Replica) {
	for i, m := range members {
		all = append(all, fsm.Replica{Member: m, Number: uint32(i + 1)})
	}
	return all
}

func voterOf(r fsm.Replica) partition.Voter {
	return partition.Voter{Replica: raftgroup.ReplicaID(r.Member, r.Number), Member: r.Member}
}

func votersOf(replicas ...fsm.Replica) (all []partition.Voter) {
	for _, r := range replicas {
		all = append(all, voterOf(r))
	}
	return all
}

// TestMoveStepsInOrder executes moves against a group that does every step. From any beginning they end with
// the target; before the report no voter of the beginning is removed, and what is removed is no longer in the
// record.
func TestMoveStepsInOrder(t *testing.T) {
	t.Parallel()
	r := testReplicas("A", "B", "C", "D", "E", "F")
	for name, test := range map[string]struct{ from, to []fsm.Replica }{
		"one for another":       {r[:3], []fsm.Replica{r[0], r[1], r[3]}},
		"the leader":            {r[:3], []fsm.Replica{r[1], r[2], r[3]}},
		"all":                   {r[:3], r[3:]},
		"more":                  {r[:3], r[:5]},
		"fewer":                 {r[:5], r[:3]},
		"one":                   {r[:3], r[5:]},
		"another order":         {r[:3], []fsm.Replica{r[2], r[1], r[0]}},
		"a new number for each": {r[:2], []fsm.Replica{{Member: "C", Number: 7}, {Member: "D", Number: 8}}},
	} {
		part := fsm.Partition{ID: 1, Replicas: test.from, Target: test.to, Formed: true, Last: 9}
		status := partition.Status{Voters: votersOf(test.from...)}
		alive := func(fsm.MemberID) bool { return true }
		stages := []moveStage{}
		for range 40 {
			step := nextStep(&part, &status, "A", alive, anyRemovable)
			if step.stage == stageNone {
				break
			}
			if len(stages) == 0 || stages[len(stages)-1] != step.stage {
				stages = append(stages, step.stage)
			}
			is := func(v partition.Voter) bool { return v == step.replica }
			switch step.stage {
			case stageAdd:
				status.Nonvoters = append(status.Nonvoters, step.replica)
			case stageCatchUp:
				status.Nonvoters = slices.DeleteFunc(status.Nonvoters, is)
				status.Voters = append(status.Voters, step.replica)
			case stageReport:
				for _, was := range test.from {
					if !slices.Contains(status.Voters, voterOf(was)) {
						t.Errorf("%s: %v has gone before the report", name, was)
					}
				}
				part.Replicas, part.Target = part.Target, nil
			case stageRemove:
				if step.replica.Member == "A" && len(staleReplicas(&part, &status)) > 1 {
					t.Errorf("%s: the leader goes before others", name)
				}
				status.Voters = slices.DeleteFunc(status.Voters, is)
			case stageNone, stageWait:
			}
		}
		if part.Target != nil || !sameVoters(status.Voters, votersOf(test.to...)) || len(status.Nonvoters) > 0 {
			t.Errorf("%s: ends with %v and %v by %v", name, status.Voters, status.Nonvoters, stages)
		}
	}
}

func sameVoters(a, b []partition.Voter) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v partition.Voter) bool { return !slices.Contains(b, v) })
}

func TestMoveAddsReplicasBeforeItRemovesOthers(t *testing.T) {
	t.Parallel()
	r := testReplicas("A", "B", "C", "D", "E")
	here := func(id fsm.MemberID) bool { return id != "C" }
	// As if the replica of B did not vote: the group needs that of E.
	removable := func(v partition.Voter) bool { return v.Member != "E" }
	for name, test := range map[string]struct {
		replicas, target, voters, nonvoters []fsm.Replica
		want                                moveStep
	}{
		"nothing to do":                      {r[:3], nil, r[:3], nil, moveStep{}},
		"the non-voter of a given up move":   {r[:2], nil, r[:3], r[3:], moveStep{stageRemove, voterOf(r[3])}},
		"the dead before the living":         {r[:1], nil, r[:3], nil, moveStep{stageRemove, voterOf(r[2])}},
		"the leader last":                    {r[2:3], nil, r[:3], nil, moveStep{stageRemove, voterOf(r[1])}},
		"one waits for another":              {r[:1], nil, []fsm.Replica{r[0], r[4], r[1]}, nil, moveStep{stageRemove, voterOf(r[1])}},
		"the leader waits for another":       {nil, nil, []fsm.Replica{r[0], r[4]}, nil, moveStep{stage: stageWait}},
		"what is stale before what is added": {r[:2], r[3:], r[:3], nil, moveStep{stageRemove, voterOf(r[2])}},
		"half way":                           {r[:3], r[1:], r[:3], r[3:], moveStep{stageCatchUp, voterOf(r[3])}},
		"back again":                         {r, r[:3], r[:3], r[3:], moveStep{stage: stageReport}},
		"a former replica of the same member": {
			[]fsm.Replica{r[0], {Member: "B", Number: 9}}, nil, r[:1], r[1:2], moveStep{stageRemove, voterOf(r[1])},
		},
	} {
		part := fsm.Partition{ID: 1, Replicas: test.replicas, Target: test.target}
		got := nextStep(&part, &partition.Status{Voters: votersOf(test.voters...), Nonvoters: votersOf(test.nonvoters...)}, "A", here, removable)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(moveStep{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestConcurrentMovesAreLimited checks that the first two moves that add replicas run, without those that are
// paused or wait for a member that is away, and that moves that only remove replicas or change their order are
// not limited.
func TestConcurrentMovesAreLimited(t *testing.T) {
	t.Parallel()
	r := testReplicas("A", "B", "C", "D")
	grow := func(id fsm.PartitionID) fsm.Partition {
		return fsm.Partition{ID: id, Replicas: r[:2], Target: r[1:3]}
	}
	paused, away := grow(1), grow(3)
	paused.Paused = true
	away.Target = r[2:]
	shrinks := fsm.Partition{ID: 4, Replicas: r[:3], Target: r[:1]}
	placed := []fsm.Partition{paused, grow(2), away, shrinks, grow(5), grow(6), {ID: 7, Replicas: r}}
	alive := func(id fsm.MemberID) bool { return id != "D" }
	var got []fsm.PartitionID
	for i := range placed {
		if addsReplicas(&placed[i]) && !placed[i].Paused && isAdmitted(placed[i].ID, placed, alive) {
			got = append(got, placed[i].ID)
		}
	}
	if diff := cmp.Diff([]fsm.PartitionID{2, 5}, got); diff != "" {
		t.Error(diff)
	}
	if isAdmitted(9, placed, alive) {
		t.Error("a partition that is not known is admitted")
	}
}

// TestLeadershipIsTransferredOnceASecond checks that a leadership that has just begun is not transferred.
func TestLeadershipIsTransferredOnceASecond(t *testing.T) {
	t.Parallel()
	l, begun := make(leaderships), time.Now()
	for _, at := range []struct {
		id    fsm.PartitionID
		term  uint64
		after time.Duration
		want  bool
	}{{1, 7, 0, false}, {1, 7, transferInterval - 1, false}, {1, 7, transferInterval, true}, {2, 7, transferInterval, false}, {1, 8, transferInterval, false}} {
		if got := l.isSettled(at.id, at.term, begun.Add(at.after)); got != at.want {
			t.Errorf("partition %d, term %d, after %v: got %v, want %v", at.id, at.term, at.after, got, at.want)
		}
	}
}
