package fsm

// Member is the catalog's record of a process. Only members whose properties were set have one; for
// the others the zero value with their ID applies.
type Member struct {
	ID   MemberID `json:"ID"`
	Name string   `json:"Name"` // the name it last reported, for display; at most 64 bytes
	// Zone is its location, such as an availability zone: replicas of a partition are spread over
	// zones. "" is a zone too. At most 64 bytes.
	Zone string `json:"Zone"`
	// Weight is its share of replicas relative to other members, 1 to 100; 0 stands for 10.
	Weight uint32 `json:"Weight"`
	// Drained members lead no partitions and get no further replicas.
	Drained bool `json:"Drained"`
	// Removed members hold no replicas and never come back: their replicas were moved or given up.
	Removed bool `json:"Removed"`
}

// SetMember records a member. Result: nothing. InvalidArgument if a removed member would come back.
type SetMember struct{ Member Member }

// PlacePartition sets the planned placement of a partition. The leader of the partition adds and
// removes replicas one at a time and confirms the end with PartitionPlaced. The command can be
// repeated at any time with other members; with the current members it cancels the move.
type PlacePartition struct {
	Partition PartitionID
	Members   []MemberID // 1 to partitionReplicaMax, each once; the first is the preferred leader
	Paused    bool       // the move is paused in its current state
}

// PartitionPlaced is proposed by the leader of a partition when its voters are those of its Target:
// other replicas no longer belong to the partition. PreconditionFails if the target has changed
// since.
type PartitionPlaced struct {
	Partition PartitionID
	Replicas  []Replica
}

// AddPartitions adds partitions to the cluster: they get the next ids in order, and their replicas
// have number 1. Result: Count, the number of partitions.
type AddPartitions struct{ Partitions [][]MemberID }

func (SetMember) command()       {}
func (PlacePartition) command()  {}
func (PartitionPlaced) command() {}
func (AddPartitions) command()   {}
