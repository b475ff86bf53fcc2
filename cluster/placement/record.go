package placement

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// Record is what the catalog's leader knows about partitions and members. Members of neighbouring releases
// exchange it.
type Record struct {
	Partitions []fsm.Partition `json:"Partitions"`
	Members    []fsm.Member    `json:"Members"`
	// Joined are the members that hold the catalog. Other processes that gossip lists may not belong to the
	// cluster.
	Joined []fsm.MemberID `json:"Joined"`
}

// Member returns the record of a member, or an empty record with its id.
func (r *Record) Member(id fsm.MemberID) fsm.Member {
	if at := slices.IndexFunc(r.Members, func(m fsm.Member) bool { return m.ID == id }); at >= 0 {
		return r.Members[at]
	}
	return fsm.Member{ID: id}
}
