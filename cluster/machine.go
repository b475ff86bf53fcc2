package cluster

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// newMachine is the machine of a partition: the catalog's, or that of messages.
func newMachine(id fsm.PartitionID) func(fsm.Bodies) partition.Machine {
	if id == fsm.CatalogPartition {
		return func(fsm.Bodies) partition.Machine { return fsm.NewCatalog() }
	}
	return func(bodies fsm.Bodies) partition.Machine { return fsm.NewQueues(bodies) }
}

// catalogOf is the machine as a catalog; nil when it is not one.
func catalogOf(m partition.Machine) *fsm.Catalog {
	catalog, _ := m.(*fsm.Catalog)
	return catalog
}

// queuesOf is the machine as one of messages; nil when it is not one.
func queuesOf(m partition.Machine) *fsm.Queues {
	queues, _ := m.(*fsm.Queues)
	return queues
}
