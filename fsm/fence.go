package fsm

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm/planted"
)

// idleReportInterval is how often a shard that is idle says so: the first report may be lost, or another shard may not
// have answered.
const idleReportInterval = Millis(60 * 1000)

// isShard reports whether the entity is a shard of a partitioned one. A subscription is one if its topic is.
func (x *entityState) isShard() bool {
	if x.topic != nil {
		x = x.topic
	}
	return x.settings.EnablePartitioning
}

// isIdle reports whether the entity was not used for so long that it can be deleted.
func (q *Queues) isIdle(x *entityState) bool {
	due := x.idleDue()
	return due != 0 && due <= q.times.Serving
}

// fenced returns ServerBusy for an entity that has a fence.
func (x *entityState) fenced() Code {
	if x.fence != 0 {
		return ServerBusy
	}
	return OK
}

// fencedAt returns ServerBusy if there is such an entity and it has a fence.
func (q *Queues) fencedAt(id EntityID) Code {
	if x := q.byID[id]; x != nil {
		return x.fenced()
	}
	return OK
}

// applyFence performs one step. index is that of the entry, and names a new round.
func (q *Queues) applyFence(c FenceIdle, index uint64) Result {
	if c.check() != OK {
		return Result{Code: InvalidArgument}
	}
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		return Result{Code: EntityNotFound}
	case !x.isShard():
		return Result{Code: NotAllowed}
	}
	isIdle := q.isIdle(x) || planted.Active(planted.SkipSecondLook)
	switch c.Step {
	case FenceSet:
		if !isIdle || c.Round < x.fence {
			return Result{Code: PreconditionFails}
		}
		q.setFence(x, cmp.Or(c.Round, index))
		return Result{Serial: x.fence}
	case FenceLift:
		if x.fence == c.Round {
			q.setFence(x, 0)
		}
	case FenceDelete:
		if !isIdle || x.fence != c.Round {
			return Result{Code: PreconditionFails}
		}
		q.deleteIdle(x)
	}
	return Result{}
}

// setFence sets the fence of a shard, or removes it: then receivers that wait look for messages again.
func (q *Queues) setFence(x *entityState, round uint64) {
	i, found := slices.BinarySearch(q.fences, x.id)
	switch {
	case round != 0 && !found:
		q.fences = slices.Insert(q.fences, i, x.id)
	case round == 0 && found:
		q.fences = slices.Delete(q.fences, i, i+1)
		for sub := range x.subs {
			q.notifyReady(&x.subs[sub])
		}
	}
	x.fence = round
}

// FencedShards returns the shards that are fenced, by id. The leader lifts a fence that nobody uses any more.
func (q *Queues) FencedShards() []FencedShard {
	list := make([]FencedShard, len(q.fences))
	for i, id := range q.fences {
		list[i] = FencedShard{id, q.byID[id].fence}
	}
	return list
}

// IsIdle reports whether an entity can be deleted because it is idle, and whether there is such an entity.
func (q *Queues) IsIdle(id EntityID) (idle, found bool) {
	x := q.byID[id]
	return x != nil && q.isIdle(x), x != nil
}
