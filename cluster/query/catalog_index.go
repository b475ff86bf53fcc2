package query

import (
	"context"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// CatalogIndex asks the leader of the catalog for the index that it has applied, once a quorum has confirmed that it leads.
var CatalogIndex = rpc.Query[struct{}, uint64]{Kind: rpc.QueryCatalogIndex}

// catalogIndex answers CatalogIndex.
func (d Replicas) catalogIndex(ctx context.Context) (uint64, error) {
	if err := d.Read(ctx, fsm.CatalogPartition, func(partition.Machine) {}); err != nil {
		return 0, err
	}
	return d.CatalogApplied(), nil
}

// CatalogApplied returns the index that this member's replica of the catalog has applied, 0 when none is open.
func (d Replicas) CatalogApplied() uint64 {
	if group := d.Local(fsm.CatalogPartition); group != nil {
		return group.Status().Applied
	}
	return 0
}
