package query

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition"
)

// Replicas are the replicas of this member, from which it answers queries.
type Replicas struct {
	// Local returns the replica of a partition, or nil when none is open.
	Local func(fsm.PartitionID) rpc.Group
	// Name returns the raft name of the open replica of a partition; nil in tests.
	Name func(fsm.PartitionID) string
}

// ViewCatalog calls a function with this member's replica of the catalog, if it is open. It does not block.
func (d Replicas) ViewCatalog(look func(*catalog.Machine)) {
	if group := d.Local(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			if c := raftgroup.Catalog(m); c != nil {
				look(c)
			}
		})
	}
}

// CatalogLoaded reports whether this member's replica of the catalog has loaded the cluster. It does not block.
func (d Replicas) CatalogLoaded() (loaded bool) {
	d.ViewCatalog(func(c *catalog.Machine) { loaded = c.ClusterID() != "" })
	return loaded
}

// Status reads the local replica, whether it leads or not.
func (d Replicas) Status(id fsm.PartitionID) (raftgroup.Status, error) {
	group := d.Local(id)
	if group == nil {
		return raftgroup.Status{}, fsm.EntityNotFound
	}
	s := group.Status()
	reply := raftgroup.Status{
		IsLeader: s.IsLeader, Leader: s.Leader, Term: s.Term, Applied: s.Applied, Halted: s.Halted != nil,
		Commit: s.Commit, Live: s.LiveBytes, Removed: s.Removed, Voters: s.Voters, Nonvoters: s.Nonvoters,
		Uncommitted: !s.ConfigurationCommitted,
	}
	reply.Transferring = s.Transferring
	reply.Last, reply.OldestWrite, reply.WriteMedian = s.LastIndex, s.Latency.Oldest, s.Latency.Median
	if catalog := d.Local(fsm.CatalogPartition); s.IsLeader && catalog != nil {
		reply.Catalog = catalog.Status().Applied
	}
	if d.Name != nil {
		reply.Replica = d.Name(id)
	}
	group.View(func(m partition.Machine) {
		if queues := raftgroup.Queues(m); queues != nil {
			reply.Entities, reply.Messages = queues.Entities(), queues.Messages()
		}
		if catalog := raftgroup.Catalog(m); catalog != nil {
			reply.Entities = catalog.Entities()
		}
	})
	return reply, nil
}

// Read calls a function with a state machine at its leader, as of the call or later. It returns ServerBusy for a
// catalog whose cluster is still being bootstrapped: that it contains nothing yet is no answer.
func (d Replicas) Read(ctx context.Context, id fsm.PartitionID, look func(partition.Machine)) error {
	group := d.Local(id)
	if group == nil {
		return rpc.ErrNotLeader
	}
	starting := false
	err := group.Read(ctx, func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		if starting = catalog != nil && catalog.ClusterID() == ""; !starting {
			look(m)
		}
	})
	if err == nil && starting {
		return fmt.Errorf("the cluster is starting: %w", fsm.ServerBusy)
	}
	return err
}

// CatalogApplied returns the index that this member's replica of the catalog has applied, 0 when none is open.
func (d Replicas) CatalogApplied() uint64 {
	if group := d.Local(fsm.CatalogPartition); group != nil {
		return group.Status().Applied
	}
	return 0
}
