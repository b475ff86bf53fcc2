package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

func memberNames(n int) []fsm.MemberID {
	members := make([]fsm.MemberID, n)
	for i := range members {
		members[i] = fsm.MemberID(fmt.Sprintf("M%02d", i))
	}
	return members
}

// spread returns the smallest and largest number of replicas and of preferred leaders.
func spread(members []fsm.MemberID, partitions []fsm.Partition) (replicas, leaders [2]int) {
	held, led := map[fsm.MemberID]int{}, map[fsm.MemberID]int{}
	for _, part := range partitions {
		led[part.Replicas[0].Member]++
		for _, replica := range part.Replicas {
			held[replica.Member]++
		}
	}
	replicas, leaders = [2]int{1 << 30, 0}, [2]int{1 << 30, 0}
	for _, member := range members {
		replicas[0], replicas[1] = min(replicas[0], held[member]), max(replicas[1], held[member])
		leaders[0], leaders[1] = min(leaders[0], led[member]), max(leaders[1], led[member])
	}
	return replicas, leaders
}

// computeUniform computes a placement on members that differ only in their ids.
func computeUniform(members []fsm.MemberID, n, replication int, current []fsm.Partition) []fsm.Partition {
	return Compute(Spec{Candidates: Uniform(members), Partitions: n, Replication: replication, Current: current, Rebalance: true})
}

func TestComputeSpreadsReplicasAndLeaders(t *testing.T) {
	t.Parallel()
	for members := 1; members <= 9; members++ {
		for _, n := range []int{1, 4, 16, 17, 64} {
			for _, replication := range []int{1, 2, 3, 5} {
				names := memberNames(members)
				got := computeUniform(names, n, replication, nil)
				if len(got) != n {
					t.Fatalf("%d members: %d partitions placed, want %d", members, len(got), n)
				}
				for i, part := range got {
					seen := map[fsm.MemberID]bool{}
					for _, replica := range part.Replicas {
						if seen[replica.Member] {
							t.Fatalf("partition %d: %s twice", part.ID, replica.Member)
						}
						seen[replica.Member] = true
					}
					if part.ID != fsm.PartitionID(i+1) || len(seen) != min(replication, members) {
						t.Fatalf("partition %d at %d has %d replicas", part.ID, i, len(seen))
					}
				}
				replicas, leaders := spread(names, got)
				if replicas[1]-replicas[0] > 1 || leaders[1]-leaders[0] > 1 {
					t.Errorf("%d members, %d partitions, %d replicas: held %v, led %v", members, n, replication, replicas, leaders)
				}
			}
		}
	}
}

func TestComputeIgnoresOrderOfMembers(t *testing.T) {
	t.Parallel()
	forward := memberNames(5)
	backward := memberNames(5)
	for i := range backward {
		backward[i] = forward[len(forward)-1-i]
	}
	if diff := cmp.Diff(computeUniform(forward, 16, 3, nil), computeUniform(backward, 16, 3, nil)); diff != "" {
		t.Fatal(diff)
	}
}

func TestComputeIsStable(t *testing.T) {
	t.Parallel()
	members := memberNames(5)
	first := computeUniform(members, 16, 3, nil)
	if diff := cmp.Diff(first, computeUniform(members, 16, 3, first)); diff != "" {
		t.Fatal(diff)
	}
}

// moved counts the replicas that are in b and not in a.
func moved(a, b []fsm.Partition) (n int) {
	for i := range b {
		for _, replica := range b[i].Replicas {
			if !HoldsReplica(&a[i], replica.Member) {
				n++
			}
		}
	}
	return n
}

func TestComputeMovesAsLittleAsPossible(t *testing.T) {
	t.Parallel()
	before := computeUniform(memberNames(4), 16, 3, nil) // 12 replicas each
	grown := computeUniform(memberNames(5), 16, 3, before)
	if got := moved(before, grown); got != 9 { // 48 replicas on five members: the new one gets 9
		t.Errorf("a fifth member moves %d replicas, want 9", got)
	}
	shrunk := computeUniform(memberNames(3), 16, 3, before)
	if got := moved(before, shrunk); got != 12 { // the replicas of the fourth member
		t.Errorf("a lost member moves %d replicas, want 12", got)
	}
	for i := range shrunk {
		numbers := map[uint32]bool{}
		for _, replica := range append(before[i].Replicas, shrunk[i].Replicas...) {
			if !HoldsReplica(&before[i], replica.Member) && numbers[replica.Number] {
				t.Errorf("partition %d: number %d is used again", shrunk[i].ID, replica.Number)
			}
			numbers[replica.Number] = true
		}
	}
}

func TestComputeWithoutCandidates(t *testing.T) {
	t.Parallel()
	if got := computeUniform(nil, 4, 3, nil); got != nil {
		t.Fatalf("placed %v on nobody", got)
	}
}

// zoned returns members in zones a, b and c in turn.
func zoned(n int) []Candidate {
	candidates := Uniform(memberNames(n))
	for i := range candidates {
		candidates[i].Zone = string(rune('a' + i%3))
	}
	return candidates
}

// fewestZones returns the smallest number of zones that a partition is in.
func fewestZones(candidates []Candidate, partitions []fsm.Partition) int {
	zone := map[fsm.MemberID]string{}
	for _, s := range candidates {
		zone[s.ID] = s.Zone
	}
	fewest := 1 << 30
	for _, part := range partitions {
		zones := map[string]bool{}
		for _, replica := range part.Replicas {
			zones[zone[replica.Member]] = true
		}
		fewest = min(fewest, len(zones))
	}
	return fewest
}

func TestComputeSpreadsOverZones(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5, 6, 7, 9} {
		candidates := zoned(n)
		got := Compute(Spec{Candidates: candidates, Partitions: 16, Replication: 3, Rebalance: true})
		if zones := fewestZones(candidates, got); zones != 3 {
			t.Errorf("%d members: a partition lies in %d zones", n, zones)
		}
		// The members have no zones first and get them later: every partition moves into three zones.
		before := computeUniform(memberNames(n), 16, 3, nil)
		after := Compute(Spec{Candidates: candidates, Partitions: 16, Replication: 3, Current: before, Rebalance: true})
		if zones := fewestZones(candidates, after); zones != 3 {
			t.Errorf("%d members, told later: a partition lies in %d zones", n, zones)
		}
		if again := Compute(Spec{Candidates: candidates, Partitions: 16, Replication: 3, Current: after, Rebalance: true}); moved(after, again) != 0 {
			t.Errorf("%d members: a second look moves %d", n, moved(after, again))
		}
	}
	// The zones have different sizes: a member alone in its zone holds a replica of every partition.
	candidates := Uniform(memberNames(4))
	candidates[0].Zone, candidates[1].Zone, candidates[2].Zone, candidates[3].Zone = "a", "b", "b", "b"
	got := Compute(Spec{Candidates: candidates, Partitions: 12, Replication: 2, Rebalance: true})
	if zones := fewestZones(candidates, got); zones != 2 {
		t.Errorf("a partition lies in %d zones", zones)
	}
}

func TestComputeRespectsWeight(t *testing.T) {
	t.Parallel()
	candidates := Uniform(memberNames(4))
	candidates[0].Weight = 30 // three times the default
	got := Compute(Spec{Candidates: candidates, Partitions: 60, Replication: 1, Rebalance: true})
	held := map[fsm.MemberID]int{}
	for _, part := range got {
		held[part.Replicas[0].Member]++
	}
	if held["M00"] != 30 || held["M01"] != 10 || held["M02"] != 10 || held["M03"] != 10 {
		t.Errorf("held %v", held)
	}
	candidates[0].Weight = 0
	if again := Compute(Spec{Candidates: candidates, Partitions: 60, Replication: 1, Current: got, Rebalance: true}); moved(got, again) != 15 {
		t.Errorf("equal again: %d move, want 15", moved(got, again))
	}
}

func TestComputeReplacesDrainedAndGoneMembers(t *testing.T) {
	t.Parallel()
	before := computeUniform(memberNames(4), 16, 3, nil)
	candidates := Uniform(memberNames(5))
	candidates[1].AcceptsReplicas, candidates[1].AcceptsLeaders = false, false
	got := Compute(Spec{Candidates: candidates, Partitions: 16, Replication: 3, Current: before, Rebalance: true})
	for i, part := range got {
		if part.Replicas[0].Member == "M01" {
			t.Errorf("partition %d is led by a drained member", part.ID)
		}
		if HoldsReplica(&part, "M01") && !HoldsReplica(&before[i], "M01") {
			t.Errorf("partition %d goes to a drained member", part.ID)
		}
	}
	// With one member gone, only its replicas move.
	gone := slices.Delete(Uniform(memberNames(5)), 0, 1)
	got = Compute(Spec{Candidates: gone, Partitions: 16, Replication: 3, Current: before})
	for i, part := range got {
		switch had := HoldsReplica(&before[i], "M00"); {
		case HoldsReplica(&part, "M00") || len(part.Replicas) != 3:
			t.Errorf("partition %d: %v", part.ID, part.Replicas)
		case !had && !slices.Equal(part.Replicas, before[i].Replicas):
			t.Errorf("partition %d, which lacked nothing, changes", part.ID)
		case had && moved(before[i:i+1], got[i:i+1]) != 1:
			t.Errorf("partition %d moves more than one", part.ID)
		}
	}
	// If no member can take the replicas, partitions have fewer; without any member there is no placement.
	got = Compute(Spec{Candidates: Uniform(memberNames(4))[2:], Partitions: 16, Replication: 3, Current: before})
	for _, part := range got {
		if len(part.Replicas) != 2 {
			t.Errorf("partition %d has %d replicas", part.ID, len(part.Replicas))
		}
	}
	if got := Compute(Spec{Candidates: []Candidate{{ID: "M09"}}, Partitions: 16, Replication: 3, Current: before}); got != nil {
		t.Error("placed on nobody")
	}
}

// TestComputePlacesAddedPartitions checks that added partitions go to the least loaded members, and that
// existing ones stay.
func TestComputePlacesAddedPartitions(t *testing.T) {
	t.Parallel()
	before := computeUniform(memberNames(3), 4, 2, nil)
	got := Compute(Spec{Candidates: Uniform(memberNames(4)), Partitions: 8, Replication: 2, Current: before})
	for i := range before {
		if !slices.Equal(before[i].Replicas, got[i].Replicas) {
			t.Errorf("partition %d changes", got[i].ID)
		}
	}
	replicas, _ := spread(memberNames(4), got)
	if replicas[1]-replicas[0] > 1 {
		t.Errorf("held %v", replicas)
	}
}
