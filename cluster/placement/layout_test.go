package placement

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

func layout(parts ...string) (placed []fsm.Partition) {
	for i, members := range parts {
		p := fsm.Partition{ID: fsm.PartitionID(i + 1), Formed: true}
		for j, m := range members {
			p.Replicas = append(p.Replicas, fsm.Replica{Member: fsm.MemberID(m), Number: uint32(j + 1)})
		}
		placed = append(placed, p)
	}
	return placed
}

// TestUnderloadedFindsMembersBelowTheirShare checks that only members that hold fewer replicas than their share
// by more than one are returned.
func TestUnderloadedFindsMembersBelowTheirShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		candidates []Candidate
		placed     []fsm.Partition
		total      int
		want       []fsm.MemberID
	}{
		{"all have theirs", Uniform(members("abc")), layout("abc", "bca", "cab"), 9, nil},
		{"a new one", Uniform(members("abcd")), layout("abc", "bca", "cab", "abc"), 12, members("d")},
		{"one less than its share", Uniform(members("abcd")), layout("abc", "bca", "cab", "abd", "bad", "abc", "abc", "bcd"), 16, nil},
		{"two less than its share", Uniform(members("abcd")), layout("abc", "bca", "cab", "abd", "bad", "abc", "abc", "bca"), 24, members("d")},
		{"a single partition cannot be shared", Uniform(members("abcd")), layout("abc"), 3, nil},
		{"by weight", []Candidate{{ID: "a"}, {ID: "b", Weight: 40}}, layout("a", "a", "a", "b", "b"), 5, members("b")},
		{"a share is one of each at most", []Candidate{{ID: "a", Weight: 100}, {ID: "b"}}, layout("ab", "ab"), 4, nil},
		{"replicas that are still to be made", Uniform(members("abc")), layout("a", "a", "a"), 9, members("bc")},
	} {
		if got := Underloaded(c.candidates, c.placed, c.total); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func members(letters string) (ids []fsm.MemberID) {
	for _, l := range letters {
		ids = append(ids, fsm.MemberID(l))
	}
	return ids
}

// TestReplacementsOfDeadMember checks that the replicas of a dead member go to others if most replicas of the
// partition are alive and another member can take the replica.
func TestReplacementsOfDeadMember(t *testing.T) {
	t.Parallel()
	alive := func(id fsm.MemberID) bool { return id != "a" && id != "x" }
	placed := layout("abc", "bcd", "ax", "bad", "cab", "abc", "a")
	placed[3].Target = layout("bcd")[0].Replicas // a move already takes it off the dead member
	placed[4].Target, placed[4].Paused = layout("abd")[0].Replicas, true
	placed[5].Formed = false
	candidates := slices.DeleteFunc(Uniform(members("abcdx")), func(s Candidate) bool { return s.ID == "a" })
	for i := range candidates {
		candidates[i].AcceptsReplicas = alive(candidates[i].ID)
	}
	wanted := Compute(Spec{Candidates: candidates, Partitions: len(placed), Replication: 3, Current: Settled(placed)})
	moves := Replacements("a", placed, wanted, alive)
	if len(moves) != 1 || moves[0].ID != 1 || !SameMembers(Members(moves[0].Replicas), members("bcd")) {
		t.Errorf("moves %v", moves)
	}
	// No member can take the replica.
	few := Compute(Spec{Candidates: candidates[:2], Partitions: 1, Replication: 3, Current: placed[:1]})
	if moves := Replacements("a", placed[:1], few, alive); len(moves) != 0 {
		t.Errorf("moves %v with nobody to take them", moves)
	}
}
