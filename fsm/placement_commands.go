package fsm

import "encoding/binary"

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

func (SetMember) command() {}

// replicaBytesMin is the fewest bytes a replica takes: member, number.
const replicaBytesMin = 2

func appendReplicas(dst []byte, replicas []Replica) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(replicas)))
	for _, replica := range replicas {
		dst = appendString(dst, string(replica.Member))
		dst = binary.AppendUvarint(dst, uint64(replica.Number))
	}
	return dst
}

func (r *reader) replicas() []Replica {
	replicas := make([]Replica, r.count(replicaBytesMin))
	for i := range replicas {
		replicas[i] = Replica{Member: MemberID(r.string()), Number: r.uint32()}
	}
	return replicas
}

// The flags of a member.
const (
	memberDrained byte = 1 << 0
	memberRemoved byte = 1 << 1

	memberFlagsKnown = memberDrained | memberRemoved
)

func appendMember(dst []byte, m *Member) []byte {
	dst = appendString(dst, string(m.ID))
	dst = appendString(appendString(dst, m.Name), m.Zone)
	dst = binary.AppendUvarint(dst, uint64(m.Weight))
	var flags byte
	if m.Drained {
		flags |= memberDrained
	}
	if m.Removed {
		flags |= memberRemoved
	}
	return append(dst, flags)
}

func (r *reader) member() Member {
	m := Member{ID: MemberID(r.string()), Name: r.string(), Zone: r.string(), Weight: r.uint32()}
	flags := r.byte()
	if flags&^memberFlagsKnown != 0 {
		r.fail(errFlag)
	}
	m.Drained, m.Removed = flags&memberDrained != 0, flags&memberRemoved != 0
	return m
}

func appendMembers(dst []byte, members []MemberID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(members)))
	for _, member := range members {
		dst = appendString(dst, string(member))
	}
	return dst
}

func (r *reader) members() []MemberID {
	members := make([]MemberID, r.count(1))
	for i := range members {
		members[i] = MemberID(r.string())
	}
	return members
}

func appendPlacePartition(dst []byte, c PlacePartition) []byte {
	return appendBool(appendMembers(binary.AppendUvarint(dst, uint64(c.Partition)), c.Members), c.Paused)
}

func appendAddPartitions(dst []byte, c AddPartitions) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.Partitions)))
	for _, members := range c.Partitions {
		dst = appendMembers(dst, members)
	}
	return dst
}

func (r *reader) addPartitions() AddPartitions {
	c := AddPartitions{Partitions: make([][]MemberID, r.count(1))}
	for i := range c.Partitions {
		c.Partitions[i] = r.members()
	}
	return c
}

func (PlacePartition) command()  {}
func (PartitionPlaced) command() {}
func (AddPartitions) command()   {}
