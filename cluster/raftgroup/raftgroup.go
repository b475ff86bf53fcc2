package raftgroup

import (
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// CatalogReplica is the number of every replica of the catalog: a member whose disk was
// wiped has another member id, so the number need not distinguish them.
const CatalogReplica = 1

// ReplicaID returns the permanent name of a replica in raft.
func ReplicaID(member fsm.MemberID, number uint32) string {
	return string(member) + "." + strconv.FormatUint(uint64(number), 10)
}

// ReplicaMember returns the member in the name of a replica; "" where the name has none.
func ReplicaMember(name string) fsm.MemberID {
	at := strings.LastIndexByte(name, '.')
	return fsm.MemberID(name[:max(0, at)])
}

// NewMachine returns the constructor of a partition's state machine: a catalog or message queues.
func NewMachine(id fsm.PartitionID) func(fsm.Bodies) partition.Machine {
	if id == fsm.CatalogPartition {
		return func(fsm.Bodies) partition.Machine { return fsm.NewCatalog() }
	}
	return func(bodies fsm.Bodies) partition.Machine { return fsm.NewQueues(bodies) }
}

// Catalog returns the state machine as a catalog; nil when it is none.
func Catalog(m partition.Machine) *fsm.Catalog {
	catalog, _ := m.(*fsm.Catalog)
	return catalog
}

// Queues returns the state machine as message queues; nil when it is none.
func Queues(m partition.Machine) *fsm.Queues {
	queues, _ := m.(*fsm.Queues)
	return queues
}
