package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// SetMember records a member. Result: nothing. InvalidArgument if a removed member would come back.
type SetMember struct{ Member Member }

// PlacePartition sets the planned placement of a partition. The leader of the partition adds and
// removes replicas one at a time and confirms the end with PartitionPlaced. The command can be
// repeated at any time with other members; with the current members it cancels the move.
type PlacePartition struct {
	Partition PartitionID
	Members   []MemberID // 1 to PartitionReplicaMax, each once; the first is the preferred leader
	Paused    bool       // the move is paused in its current state
	// Seen is Partition.PlacementHash of the record from which Members and Paused were derived. The
	// command is refused as Stale if the record has changed since, so that two callers that have read
	// the same placement do not overwrite each other. 0 compares nothing.
	Seen uint64
}

// PartitionPlaced is proposed by the leader of a partition when its voters are those of its Target:
// other replicas no longer belong to the partition. PreconditionFails if the target has changed
// since.
type PartitionPlaced struct {
	Partition PartitionID
	Replicas  []Replica
}

// ReplaceReplica is proposed by the leader of a partition for a replica that has lost entries of its log: the replica
// no longer belongs to the partition, and another one on the same member becomes part of the planned placement, with a
// number that the partition never had. PreconditionFails if it is the only replica.
type ReplaceReplica struct {
	Partition PartitionID
	Replica   Replica
}

// AddPartitions adds partitions to the cluster: they get the next ids in order, and their replicas
// have number 1. Result: Count, the number of partitions.
type AddPartitions struct{ Partitions [][]MemberID }

// replicaBytesMin is the minimum size of a replica: member, number.
const replicaBytesMin = 2

func (SetMember) kind() Kind                           { return KindSetMember }
func (c SetMember) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c SetMember) Check() Code { return CodeIf(c.Member.Valid()) }

func (c *SetMember) fields(x *fields.Codec) {
	c.Member.Fields(x)
}

func (PlacePartition) kind() Kind                           { return KindPlacePartition }
func (c PlacePartition) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c PlacePartition) Check() Code {
	return CodeIf(c.Partition != CatalogPartition && validMembers(c.Members))
}

func (c *PlacePartition) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Partition)
	fieldMembers(x, &c.Members)
	fields.Bool(x, &c.Paused)
	fields.Fixed64(x, &c.Seen)
}

func (PartitionPlaced) kind() Kind                           { return KindPartitionPlaced }
func (c PartitionPlaced) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c PartitionPlaced) Check() Code {
	return CodeIf(c.Partition != CatalogPartition && ValidReplicas(c.Replicas, PartitionReplicaMax))
}

func (c *PartitionPlaced) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Partition)
	FieldReplicas(x, &c.Replicas)
}

func (ReplaceReplica) kind() Kind                           { return KindReplaceReplica }
func (c ReplaceReplica) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c ReplaceReplica) Check() Code {
	return CodeIf(c.Partition != CatalogPartition && validMember(c.Replica.Member))
}

func (c *ReplaceReplica) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Partition)
	fields.Text(x, &c.Replica.Member)
	fields.Uint32(x, &c.Replica.Number)
}

func (AddPartitions) kind() Kind                           { return KindAddPartitions }
func (c AddPartitions) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c AddPartitions) Check() Code {
	return CodeIf(Within(len(c.Partitions), PartitionsMax) &&
		!slices.ContainsFunc(c.Partitions, func(members []MemberID) bool { return !validMembers(members) }))
}

func (c *AddPartitions) fields(x *fields.Codec) {
	for i := range fields.Len(x, &c.Partitions, 1) {
		fieldMembers(x, &c.Partitions[i])
	}
}

// Fields lists the fields of the record for the codec.
func (m *Member) Fields(x *fields.Codec) {
	fields.Text(x, &m.ID)
	fields.Text(x, &m.Name)
	fields.Text(x, &m.Zone)
	fields.Uint32(x, &m.Weight)
	fields.Flags(x, &m.Drained, &m.Removed)
}

func fieldMembers(x *fields.Codec, members *[]MemberID) {
	for i := range fields.Len(x, members, 1) {
		fields.Text(x, &(*members)[i])
	}
}

// FieldReplicas lists a list of replicas for the codec.
func FieldReplicas(x *fields.Codec, replicas *[]Replica) {
	for i := range fields.Len(x, replicas, replicaBytesMin) {
		fields.Text(x, &(*replicas)[i].Member)
		fields.Uint32(x, &(*replicas)[i].Number)
	}
}
