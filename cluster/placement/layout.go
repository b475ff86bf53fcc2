package placement

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// Settled returns the placement in which all running moves are complete.
func Settled(parts []fsm.Partition) []fsm.Partition {
	layout := slices.Clone(parts)
	for i := range layout {
		if layout[i].Target != nil {
			layout[i].Replicas, layout[i].Target = layout[i].Target, nil
		}
	}
	return layout
}

// Members returns the members of replicas, in order.
func Members(replicas []fsm.Replica) []fsm.MemberID {
	members := make([]fsm.MemberID, len(replicas))
	for i, r := range replicas {
		members[i] = r.Member
	}
	return members
}

// SameMembers reports whether a and b, without repetitions, hold the same members in any order.
func SameMembers(a, b []fsm.MemberID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(id fsm.MemberID) bool { return !slices.Contains(b, id) })
}

// HoldsReplica reports whether member holds a replica of part. The target of a move does not count.
func HoldsReplica(part *fsm.Partition, member fsm.MemberID) bool {
	return slices.ContainsFunc(part.Replicas, func(r fsm.Replica) bool { return r.Member == member })
}

// HoldsAny reports whether a member holds, or is to hold, a replica of any of the partitions.
func HoldsAny(placed []fsm.Partition, member fsm.MemberID) bool {
	return slices.ContainsFunc(placed, func(p fsm.Partition) bool { _, held := FindReplica(&p, member); return held })
}

// FindReplica returns the replica of a partition that a member holds, or is to hold.
func FindReplica(part *fsm.Partition, member fsm.MemberID) (fsm.Replica, bool) {
	for _, replica := range slices.Concat(part.Replicas, part.Target) {
		if replica.Member == member {
			return replica, true
		}
	}
	return fsm.Replica{}, false
}

// ReplicaCounts counts the replicas that each member holds.
func ReplicaCounts(placed []fsm.Partition) map[fsm.MemberID]int {
	count := make(map[fsm.MemberID]int)
	for i := range placed {
		for _, r := range placed[i].Replicas {
			count[r.Member]++
		}
	}
	return count
}

// Replacements returns the partitions of wanted that replace a replica of the member gone and whose move can
// succeed: most of their replicas are alive, and another member can take the replica. Paused moves are left
// out.
func Replacements(gone fsm.MemberID, placed, wanted []fsm.Partition, alive func(fsm.MemberID) bool) (moves []fsm.Partition) {
	for i := range wanted {
		now := &placed[i]
		layout := Settled(placed[i : i+1])[0]
		if !HoldsReplica(&layout, gone) || now.Paused || !now.Formed || len(wanted[i].Replicas) < len(layout.Replicas) {
			continue
		}
		here := 0
		for _, r := range now.Replicas {
			if alive(r.Member) {
				here++
			}
		}
		if 2*here > len(now.Replicas) {
			moves = append(moves, wanted[i])
		}
	}
	return moves
}
