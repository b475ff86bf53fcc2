package fsm

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm/fields"
)

// MemberID identifies a member permanently: it is drawn at the first start on an empty data
// directory, stored there, and never reused. It is text so that it can be a Raft address.
type MemberID string

// Replica is one replica of a partition. Number is unique within the partition and never reused: a
// member whose disk was wiped gets another replica.
type Replica struct {
	Member MemberID `json:"Member"`
	Number uint32   `json:"Number"`
}

// Partition is the catalog's record of a Raft group. The first replica is the preferred leader.
type Partition struct {
	ID       PartitionID `json:"ID"`
	Replicas []Replica   `json:"Replicas"`
	Formed   bool        `json:"Formed"` // a leader was seen: from now on no member bootstraps the group again
	// Target is the planned placement, nil if it is the current one. Until it is reached, members
	// hold the replicas of both lists. A replica that is in both is the same replica.
	Target []Replica `json:"Target"`
	Paused bool      `json:"Paused"` // the move to Target is paused
	Last   uint32    `json:"Last"`   // highest number ever assigned to a replica of it
}

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

// Valid reports whether all fields of a member are within their limits.
func (m *Member) Valid() bool {
	return validMember(m.ID) && len(m.Name) <= memberTextBytesMax && utf8.ValidString(m.Name) &&
		len(m.Zone) <= memberTextBytesMax && utf8.ValidString(m.Zone) && m.Weight <= memberWeightMax
}

func validMember(id MemberID) bool { return id != "" && len(id) <= memberIDBytesMax }

// validMembers reports whether a partition can have replicas on these members: each once.
func validMembers(members []MemberID) bool {
	if !Within(len(members), PartitionReplicaMax) {
		return false
	}
	for i, id := range members {
		if !validMember(id) || slices.Contains(members[:i], id) {
			return false
		}
	}
	return true
}

// ValidReplicas reports whether a partition can have these replicas: no two on one member.
func ValidReplicas(replicas []Replica, most int) bool {
	if !Within(len(replicas), most) {
		return false
	}
	for i, replica := range replicas {
		if _, twice := ReplicaOn(replicas[:i], replica.Member); twice || !validMember(replica.Member) {
			return false
		}
	}
	return true
}

// ReplicaOn finds the replica on a member.
func ReplicaOn(replicas []Replica, member MemberID) (Replica, bool) {
	if i := slices.IndexFunc(replicas, func(r Replica) bool { return r.Member == member }); i >= 0 {
		return replicas[i], true
	}
	return Replica{}, false
}

// SameReplicas reports whether two lists without duplicates contain the same replicas.
func SameReplicas(a, b []Replica) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(r Replica) bool { return !slices.Contains(b, r) })
}

// HeldReplicas returns the replicas that members hold: those of a partition, then those of its
// target that are not among them.
func (p *Partition) HeldReplicas() []Replica {
	list := slices.Clone(p.Replicas)
	for _, replica := range p.Target {
		if !slices.Contains(list, replica) {
			list = append(list, replica)
		}
	}
	return list
}

// HasMember reports whether a member has a replica of the partition, or is to have one.
func (p *Partition) HasMember(member MemberID) bool {
	_, now := ReplicaOn(p.Replicas, member)
	_, then := ReplicaOn(p.Target, member)
	return now || then
}

// PlacementHash returns a hash of the replicas and the planned placement of a partition, never 0.
func (p *Partition) PlacementHash() uint64 {
	var b []byte
	for _, replicas := range [2][]Replica{p.Replicas, p.Target} {
		b = binary.AppendUvarint(b, uint64(len(replicas)))
		for _, r := range replicas {
			b = binary.AppendUvarint(b, uint64(len(r.Member)))
			b = binary.AppendUvarint(append(b, r.Member...), uint64(r.Number))
		}
	}
	return max(1, xxhash.Sum64(fields.AppendBool(b, p.Paused)))
}
