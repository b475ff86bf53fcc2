package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	checkWithin   = 2 * time.Second // for the answer to a Check
	checkLocksMax = 1000            // locks of one query: what a transaction may settle
)

// locksQuery asks which locks of a sub-queue are held. The reply has one code per lock.
type locksQuery struct {
	Partition fsm.PartitionID `json:"Partition"`
	Address   fsm.Address     `json:"Address"`
	Locks     []fsm.LockID    `json:"Locks"`
}

// locksHeld asks which locks of a sub-queue are held.
var locksHeld = rpc.Query[locksQuery, []fsm.Code]{Kind: rpc.QueryLocks}

// checkEntity checks that an entity exists. The catalog of this member may lack an entity that was just created.
func (s *single) checkEntity(id fsm.EntityID, done func([]fsm.Code)) {
	if _, found := s.KnownEntity(id); found {
		done([]fsm.Code{fsm.OK})
		return
	}
	s.checkLater(1, done, func(ctx context.Context) ([]fsm.Code, error) {
		_, err := s.EntityByID(ctx, id)
		if errors.Is(err, fsm.EntityNotFound) {
			return []fsm.Code{fsm.EntityNotFound}, nil
		}
		return []fsm.Code{fsm.OK}, err
	})
}

// check checks that locks are held.
func (s *single) check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	q := locksQuery{Partition: at.Partition, Address: at.Address(), Locks: locks}
	if codes, ok := s.allHeld(q); ok {
		done(codes)
		return
	}
	s.checkLater(len(locks), done, func(ctx context.Context) ([]fsm.Code, error) {
		return locksHeld.Ask(ctx, s.Leader(at.Partition), q)
	})
}

// checkLater calls ask in a goroutine, and done with its n codes. A failure refuses nothing.
func (s *single) checkLater(n int, done func([]fsm.Code), ask func(context.Context) ([]fsm.Code, error)) {
	unknown := make([]fsm.Code, n)
	if !s.transport.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, checkWithin)
		defer cancel()
		codes, err := ask(ctx)
		if err != nil || len(codes) != n {
			codes = unknown
		}
		done(codes)
	}) {
		done(unknown)
	}
}

// allHeld reports whether this member leads a partition and all locks are held there. No quorum confirms that: a lock
// that is held here and has ended under a newer leader is refused by Transact.
func (s *single) allHeld(q locksQuery) (codes []fsm.Code, ok bool) {
	group := s.replicas.Local(q.Partition)
	if group == nil || !group.Status().IsLeader {
		return nil, false
	}
	group.View(func(m partition.Machine) { codes = raftgroup.Queues(m).CheckLocks(q.Address, q.Locks) })
	return codes, !slices.ContainsFunc(codes, func(code fsm.Code) bool { return code != fsm.OK })
}

// answerLocks answers which locks are held.
func (s *single) answerLocks(ctx context.Context, q locksQuery) ([]fsm.Code, error) {
	if q.Partition == fsm.CatalogPartition || len(q.Locks) > checkLocksMax {
		return nil, fsm.InvalidArgument
	}
	codes, ok := s.allHeld(q)
	if ok {
		return codes, nil
	}
	err := s.replicas.Read(ctx, q.Partition, func(m partition.Machine) { codes = raftgroup.Queues(m).CheckLocks(q.Address, q.Locks) })
	return codes, err
}
