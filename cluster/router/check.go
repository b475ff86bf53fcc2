package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/shards"
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

// Check asks whether operations of a transaction at an entity can succeed: settlements under some locks (1000), or,
// without locks, sends. done receives one code per lock, or one: OK, MessageLockLost, SessionLockLost or
// EntityNotFound. They are OK too when no leader, or one of an older release, answers within two seconds: Transact
// decides. Check does not block. It calls done before it returns when this member can answer: it leads the partition
// of the locks, or its catalog has the entity. A refusal is as of a leader that a quorum has confirmed.
func (r *Router) Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	switch {
	case len(locks) == 0:
		r.checkEntity(at.ID, done)
	case len(at.Shards) > 0:
		r.checkShards(at, locks, done)
	default:
		r.checkLocks(at, locks, done)
	}
}

// checkEntity is Check for sends. The catalog of this member may lack an entity that was just created.
func (r *Router) checkEntity(id fsm.EntityID, done func([]fsm.Code)) {
	if _, found := r.KnownEntity(id); found {
		done([]fsm.Code{fsm.OK})
		return
	}
	r.checkLater(1, done, func(ctx context.Context) ([]fsm.Code, error) {
		_, err := r.EntityByID(ctx, id)
		if errors.Is(err, fsm.EntityNotFound) {
			return []fsm.Code{fsm.EntityNotFound}, nil
		}
		return []fsm.Code{fsm.OK}, err
	})
}

// checkLocks is Check for settlements at an entity that is not partitioned, or at one shard.
func (r *Router) checkLocks(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	q := locksQuery{Partition: at.Partition, Address: at.Address(), Locks: locks}
	if codes, ok := (queryHandler{r.replicas}).allHeld(q); ok {
		done(codes)
		return
	}
	r.checkLater(len(locks), done, func(ctx context.Context) ([]fsm.Code, error) {
		return locksHeld.Ask(ctx, r.Leader(at.Partition), q)
	})
}

// checkLater calls ask in a goroutine, and done with its n codes. A failure refuses nothing.
func (r *Router) checkLater(n int, done func([]fsm.Code), ask func(context.Context) ([]fsm.Code, error)) {
	unknown := make([]fsm.Code, n)
	if !r.transport.Go(func(ctx context.Context) {
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

// checkShards is Check for settlements at a partitioned entity: done is called when all shards have answered.
func (r *Router) checkShards(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	codes := lockLostCodes(len(locks))
	groups := shards.Positions(at, len(locks), func(i int) fsm.SequenceNumber { return locks[i].Sequence })
	remaining := newCountdown(len(groups), func() { done(codes) })
	for shard, positions := range groups {
		some := make([]fsm.LockID, len(positions))
		for i, position := range positions {
			some[i] = locks[position]
			_, some[i].Sequence = shards.Split(some[i].Sequence)
		}
		r.checkLocks(shards.Ref(at, shard), some, func(got []fsm.Code) {
			for i, position := range positions {
				codes[position] = got[i]
			}
			remaining.partDone()
		})
	}
}

// allHeld reports whether this member leads a partition and all locks are held there. No quorum confirms that: a lock
// that is held here and has ended under a newer leader is refused by Transact.
func (d queryHandler) allHeld(q locksQuery) (codes []fsm.Code, ok bool) {
	group := d.Local(q.Partition)
	if group == nil || !group.Status().IsLeader {
		return nil, false
	}
	group.View(func(m partition.Machine) { codes = raftgroup.Queues(m).CheckLocks(q.Address, q.Locks) })
	return codes, !slices.ContainsFunc(codes, func(code fsm.Code) bool { return code != fsm.OK })
}

// locks answers which locks are held.
func (d queryHandler) locks(ctx context.Context, q locksQuery) ([]fsm.Code, error) {
	if q.Partition == fsm.CatalogPartition || len(q.Locks) > checkLocksMax {
		return nil, fsm.InvalidArgument
	}
	codes, ok := d.allHeld(q)
	if ok {
		return codes, nil
	}
	err := d.Read(ctx, q.Partition, func(m partition.Machine) { codes = raftgroup.Queues(m).CheckLocks(q.Address, q.Locks) })
	return codes, err
}
