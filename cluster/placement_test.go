package cluster

import (
	"fmt"
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

func TestPlaceSpreadsReplicasAndLeaders(t *testing.T) {
	t.Parallel()
	for members := 1; members <= 9; members++ {
		for _, n := range []int{1, 4, 16, 17, 64} {
			for _, replication := range []int{1, 2, 3, 5} {
				names := memberNames(members)
				got := place(names, n, replication, nil)
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

func TestPlaceIgnoresTheOrderOfMembers(t *testing.T) {
	t.Parallel()
	forward := memberNames(5)
	backward := memberNames(5)
	for i := range backward {
		backward[i] = forward[len(forward)-1-i]
	}
	if diff := cmp.Diff(place(forward, 16, 3, nil), place(backward, 16, 3, nil)); diff != "" {
		t.Fatal(diff)
	}
}

func TestPlaceAgainMovesNothing(t *testing.T) {
	t.Parallel()
	members := memberNames(5)
	first := place(members, 16, 3, nil)
	if diff := cmp.Diff(first, place(members, 16, 3, first)); diff != "" {
		t.Fatal(diff)
	}
}

// moved counts replicas that are in b and not in a.
func moved(a, b []fsm.Partition) (n int) {
	for i := range b {
		for _, replica := range b[i].Replicas {
			if !holdsReplica(&a[i], replica.Member) {
				n++
			}
		}
	}
	return n
}

func TestPlaceMovesAsLittleAsPossible(t *testing.T) {
	t.Parallel()
	before := place(memberNames(4), 16, 3, nil) // 12 replicas each
	grown := place(memberNames(5), 16, 3, before)
	if got := moved(before, grown); got != 9 { // 48 replicas over five: the newcomer gets 9
		t.Errorf("a fifth member moves %d replicas, want 9", got)
	}
	shrunk := place(memberNames(3), 16, 3, before)
	if got := moved(before, shrunk); got != 12 { // what the fourth held
		t.Errorf("a lost member moves %d replicas, want 12", got)
	}
	for i := range shrunk {
		numbers := map[uint32]bool{}
		for _, replica := range append(before[i].Replicas, shrunk[i].Replicas...) {
			if !holdsReplica(&before[i], replica.Member) && numbers[replica.Number] {
				t.Errorf("partition %d: number %d is used again", shrunk[i].ID, replica.Number)
			}
			numbers[replica.Number] = true
		}
	}
}

func TestPlaceNobody(t *testing.T) {
	t.Parallel()
	if got := place(nil, 4, 3, nil); got != nil {
		t.Fatalf("placed %v on nobody", got)
	}
}
