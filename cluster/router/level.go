package router

import (
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// canWrite reports whether every member can read a command of a format level, as far as this member's catalog knows.
func (p *partitionClient) canWrite(level uint32) bool {
	if level <= 1 {
		return true
	}
	group := p.transport.LocalReplica(fsm.CatalogPartition)
	if group == nil {
		return false
	}
	known := uint32(0)
	group.View(func(m partition.Machine) { known = raftgroup.Catalog(m).FormatLevel() })
	return level <= known
}

// belowLevel returns the answer to a command that the cluster cannot write: ServerBusy while this member does not know
// the level.
func (p *partitionClient) belowLevel() fsm.Code {
	if !catalogLoaded(p.transport) {
		return fsm.ServerBusy
	}
	return fsm.InvalidArgument
}
