package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// placementQueryTimeout bounds the query to the catalog's leader for the placement of partitions.
const placementQueryTimeout = 2 * time.Second

// placementQuery asks for the placement of one partition, or of all partitions if it is 0.
type placementQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
}

// findPlacement asks a member with a replica of the catalog.
var findPlacement = rpc.Query[placementQuery, placement.Record]{Kind: rpc.QueryPlacement} //nolint:gochecknoglobals // never changed

// placementFromLeader asks the catalog's leader for the placement of partitions and the records of members, as
// of a moment after the call.
func (n *Node) placementFromLeader(ctx context.Context, id fsm.PartitionID) (all placement.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, placementQueryTimeout)
	defer cancel()
	all, err = findPlacement.Ask(ctx, n.router.Leader(fsm.CatalogPartition), placementQuery{Partition: id})
	if err != nil {
		return all, fmt.Errorf("query the placement of partitions: %w", err)
	}
	return all, nil
}

func (n *Node) readPlacement(ctx context.Context, q placementQuery) (all placement.Record, err error) {
	catalog := n.replicas.Local(fsm.CatalogPartition)
	if catalog == nil {
		return all, rpc.ErrNotLeader
	}
	err = catalog.Read(ctx, func(m partition.Machine) {
		catalog := raftgroup.Catalog(m)
		all.Partitions, all.Members, all.Level = catalog.Partitions(), catalog.Members(), catalog.FormatLevel()
	})
	if err == nil {
		status := catalog.Status()
		for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
			all.Joined = append(all.Joined, v.Member)
		}
	}
	if err == nil && q.Partition != fsm.CatalogPartition {
		if int64(q.Partition) > int64(len(all.Partitions)) {
			return placement.Record{}, fsm.EntityNotFound
		}
		all.Partitions = all.Partitions[q.Partition-1 : q.Partition]
	}
	return all, err
}
