package query

import (
	"context"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition"
)

// EntityIn is an entity in a message partition.
type EntityIn struct {
	Partition fsm.PartitionID `json:"Partition"`
	Entity    fsm.EntityID    `json:"Entity"`
}

// Entity returns where an entity is.
func Entity(at fsm.EntityRef) EntityIn { return EntityIn{at.Partition, at.ID} }

// In returns the partition.
func (q EntityIn) In() fsm.PartitionID { return q.Partition }

// Read is a query that the leader of a partition answers from its state machine alone.
type Read[Q, R any] struct {
	rpc.Query[Q, R]

	partition func(Q) fsm.PartitionID
	look      func(partition.Machine, Q) (R, error)
}

// OfCatalog returns a query that the leader of the catalog answers.
func OfCatalog[Q, R any](kind rpc.QueryKind, look func(*catalog.Machine, Q) (R, error)) Read[Q, R] {
	return Read[Q, R]{
		rpc.Query[Q, R]{Kind: kind},
		func(Q) fsm.PartitionID { return fsm.CatalogPartition },
		func(m partition.Machine, q Q) (R, error) { return look(raftgroup.Catalog(m), q) },
	}
}

// OfQueues returns a query that the leader of the message partition in its arguments answers.
func OfQueues[Q interface{ In() fsm.PartitionID }, R any](kind rpc.QueryKind, look func(*queue.Machine, Q) (R, error)) Read[Q, R] {
	return Read[Q, R]{
		rpc.Query[Q, R]{Kind: kind},
		Q.In,
		func(m partition.Machine, q Q) (reply R, err error) {
			if queues := raftgroup.Queues(m); queues != nil {
				return look(queues, q)
			}
			return reply, fsm.InvalidArgument // the catalog
		},
	}
}

// Found returns EntityNotFound for a value that is not there.
func Found[R any](value R, found bool) (R, error) {
	if !found {
		return value, fsm.EntityNotFound
	}
	return value, nil
}

// Leaders finds the leaders of partitions.
type Leaders interface {
	// Leader returns an Asker that asks the leader of a partition. Its errors wrap an fsm.Code.
	Leader(id fsm.PartitionID) rpc.Asker
}

// At asks the leader. An error wraps an fsm.Code.
func (a Read[Q, R]) At(ctx context.Context, r Leaders, q Q) (R, error) {
	return a.Ask(ctx, r.Leader(a.partition(q)), q)
}

// Answer reads this member's replica, which has to lead.
func (a Read[Q, R]) Answer(ctx context.Context, d Replicas, q Q) (reply R, err error) {
	var refused error
	err = d.Read(ctx, a.partition(q), func(m partition.Machine) { reply, refused = a.look(m, q) })
	if err == nil {
		err = refused
	}
	return reply, err
}

// Register registers the handler of the query.
func (a Read[Q, R]) Register(h rpc.Handlers, d Replicas) {
	a.Handle(h, func(ctx context.Context, q Q) (R, error) { return a.Answer(ctx, d, q) })
}
