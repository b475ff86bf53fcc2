package placement

import "github.com/peeklock/peeklock/fsm"

// Record is what the catalog's leader knows about partitions and members. Members of neighbouring releases
// exchange it.
type Record struct {
	Partitions []fsm.Partition `json:"Partitions"`
	Members    []fsm.Member    `json:"Members"`
	// Joined are the members that hold the catalog. Other processes that gossip lists may not belong to the
	// cluster.
	Joined []fsm.MemberID `json:"Joined"`
}
