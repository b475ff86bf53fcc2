package raftgroup

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition"
)

// NewMachine returns the constructor of a partition's state machine: a catalog or message queues.
func NewMachine(id fsm.PartitionID) func(fsm.Bodies) partition.Machine {
	if id == fsm.CatalogPartition {
		return func(fsm.Bodies) partition.Machine { return catalog.New() }
	}
	return func(bodies fsm.Bodies) partition.Machine { return queue.New(bodies) }
}

// Catalog returns the state machine as a catalog; nil when it is none.
func Catalog(m partition.Machine) *catalog.Machine {
	catalog, _ := m.(*catalog.Machine)
	return catalog
}

// Queues returns the state machine as message queues; nil when it is none.
func Queues(m partition.Machine) *queue.Machine {
	queues, _ := m.(*queue.Machine)
	return queues
}

// NewEpoch returns 64 random bits, never 0: an epoch of forwarding that no partition had before.
func NewEpoch() uint64 {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(bits[:]))
}
