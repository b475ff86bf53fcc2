package client

import (
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// canWrite reports whether every member can read a command of a format level, as far as this member's catalog knows.
func canWrite(transport Transport, level uint32) bool {
	if level <= 1 {
		return true
	}
	known := uint32(0)
	replicasOf(transport).ViewCatalog(func(c *catalog.Machine) { known = c.FormatLevel() })
	return level <= known
}

// belowLevel returns the answer to a command that the cluster cannot write: ServerBusy while this member does not know
// the level.
func belowLevel(transport Transport) fsm.Code {
	if !replicasOf(transport).CatalogLoaded() {
		return fsm.ServerBusy
	}
	return fsm.InvalidArgument
}

func replicasOf(transport Transport) query.Replicas {
	return query.Replicas{Local: transport.LocalReplica}
}
