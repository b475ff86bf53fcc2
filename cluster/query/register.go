package query

import (
	"context"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// CatalogIndex asks the leader of the catalog for the index that it has applied, once a quorum has confirmed that it leads.
var CatalogIndex = rpc.Query[struct{}, uint64]{Kind: rpc.QueryCatalogIndex} //nolint:gochecknoglobals // never changed

// StatusOfReplica asks a member for the status of its replica of a partition.
var StatusOfReplica = rpc.Query[StatusQuery, raftgroup.Status]{Kind: rpc.QueryStatus} //nolint:gochecknoglobals // never changed

// StatusQuery asks for the status of the replica of a partition.
type StatusQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
}

// Register registers the handlers of StatusOfReplica and CatalogIndex.
func (d Replicas) Register(h rpc.Handlers) {
	CatalogIndex.Handle(h, func(ctx context.Context, _ struct{}) (uint64, error) { return d.catalogIndex(ctx) })
	StatusOfReplica.Handle(h, func(_ context.Context, q StatusQuery) (raftgroup.Status, error) { return d.Status(q.Partition) })
}

// catalogIndex answers CatalogIndex.
func (d Replicas) catalogIndex(ctx context.Context) (uint64, error) {
	if err := d.Read(ctx, fsm.CatalogPartition, func(partition.Machine) {}); err != nil {
		return 0, err
	}
	return d.CatalogApplied(), nil
}
