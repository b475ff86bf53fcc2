package fsm

// Member is a process as operators see it. The catalog knows those that something was said
// of: the others are as the zero value says, with their ID.
type Member struct {
	ID   MemberID `json:"ID"`
	Name string   `json:"Name"` // as it last called itself, for people; at most 64 bytes
	// Zone is where it stands, such as an availability zone: replicas of a partition are
	// spread over zones. "" is a zone too. At most 64 bytes.
	Zone string `json:"Zone"`
	// Weight is its share of replicas against that of the others, 1 to 100; 0 stands for 10.
	Weight uint32 `json:"Weight"`
	// Drained members lead nothing and get no further replicas.
	Drained bool `json:"Drained"`
	// Removed members hold nothing and never come back: their replicas were moved or given up.
	Removed bool `json:"Removed"`
}

// SetMember records what is to be known of a member. Result: nothing. InvalidArgument when
// a removed one would come back.
type SetMember struct{ Member Member }

// PlacePartition says where a partition shall lie. The replicas come and go one at a time,
// by whoever leads the partition (PartitionPlaced); it can be asked again at any time, with
// other members or with those that are there, which cancels.
type PlacePartition struct {
	Partition PartitionID
	Members   []MemberID // 1 to partitionReplicaMax, each once; the first is the preferred leader
	Paused    bool       // the move waits as it stands
}

// PartitionPlaced is said by the leader of a partition when its voters are those of its
// Target: what is not among them is no replica any more. PreconditionFails when the target
// is another by now.
type PartitionPlaced struct {
	Partition PartitionID
	Replicas  []Replica
}

// AddPartitions makes the cluster grow: the partitions get the next ids in order.
// Their replicas have number 1. Result: Count, the partitions that there are.
type AddPartitions struct{ Partitions [][]MemberID }

func (SetMember) command()       {}
func (PlacePartition) command()  {}
func (PartitionPlaced) command() {}
func (AddPartitions) command()   {}
