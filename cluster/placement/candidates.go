package placement

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// Underloaded returns the candidates that hold fewer replicas than their share of total by more
// than one. A share is proportional to the weight, and at most one replica of each partition.
func Underloaded(candidates []Candidate, placed []fsm.Partition, total int) (list []fsm.MemberID) {
	held, weights := ReplicaCounts(placed), int64(0)
	for i := range candidates {
		weights += int64(cmp.Or(candidates[i].Weight, defaultWeight))
	}
	for i := range candidates {
		have := int64(held[candidates[i].ID]) + 1
		if have < int64(len(placed)) && have*weights < int64(total)*int64(cmp.Or(candidates[i].Weight, defaultWeight)) {
			list = append(list, candidates[i].ID)
		}
	}
	return list
}

// Among keeps the candidates that are in members. It reuses the candidates slice.
func Among(members []fsm.MemberID, candidates []Candidate) []Candidate {
	return slices.DeleteFunc(candidates, func(s Candidate) bool { return !slices.Contains(members, s.ID) })
}

// defaultWeight is the weight of a member for which none is configured.
const defaultWeight = 10

// Candidate is a member that may hold replicas.
type Candidate struct {
	ID     fsm.MemberID
	Zone   string
	Weight uint32 // its share of replicas relative to other members; 0 means defaultWeight
	// AcceptsReplicas allows new replicas on the member. Replicas that it holds stay in any case.
	AcceptsReplicas bool
	AcceptsLeaders  bool // may be a preferred leader
}

// Uniform returns candidates that differ in nothing but their id.
func Uniform(members []fsm.MemberID) []Candidate {
	candidates := make([]Candidate, len(members))
	for i, member := range members {
		candidates[i] = Candidate{ID: member, AcceptsReplicas: true, AcceptsLeaders: true}
	}
	return candidates
}
