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
	// Level is the format level of the cluster, 0 before the catalog is loaded.
	Level uint32 `json:"Level"`
}

// Place returns the command that gives a partition of the record another placement. The
// catalog refuses it as Stale if the placement of the partition has changed since the record was read.
func (r *Record) Place(id fsm.PartitionID, members []fsm.MemberID, paused bool) fsm.PlacePartition {
	command := fsm.PlacePartition{Partition: id, Members: members, Paused: paused}
	at := slices.IndexFunc(r.Partitions, func(p fsm.Partition) bool { return p.ID == id })
	if at >= 0 {
		command.Seen = r.Partitions[at].PlacementHash()
	}
	return command
}

// Member returns the record of a member, or an empty record with its id.
func (r *Record) Member(id fsm.MemberID) fsm.Member {
	if at := slices.IndexFunc(r.Members, func(m fsm.Member) bool { return m.ID == id }); at >= 0 {
		return r.Members[at]
	}
	return fsm.Member{ID: id}
}

// IsRetired reports whether a replica no longer belongs to a partition. The number distinguishes a record that
// knows of the replica's removal from a record that is older than the replica.
func IsRetired(part *fsm.Partition, replica fsm.Replica) bool {
	return replica.Number <= part.Last && !slices.Contains(part.Replicas, replica) && !slices.Contains(part.Target, replica)
}
