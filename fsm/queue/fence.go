package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// idleReportInterval is how often a shard that is idle says so: the first report may be lost, or another shard may not
// have answered.
const idleReportInterval = fsm.Millis(60 * 1000)

// isShard reports whether the entity is a shard of a partitioned one. A subscription is one if its topic is.
func (x *entityState) isShard() bool {
	if x.topic != nil {
		x = x.topic
	}
	return x.settings.EnablePartitioning
}

// isIdle reports whether the entity was not used for so long that it can be deleted.
func (q *Machine) isIdle(x *entityState) bool {
	due := x.idleDue()
	return due != 0 && due <= q.times.Serving
}

// fenced returns ServerBusy for an entity that has a fence.
func (x *entityState) fenced() fsm.Code {
	if x.fence != 0 {
		return fsm.ServerBusy
	}
	return fsm.OK
}

// fencedAt returns ServerBusy if there is such an entity and it has a fence.
func (q *Machine) fencedAt(id fsm.EntityID) fsm.Code {
	if x := q.byID[id]; x != nil {
		return x.fenced()
	}
	return fsm.OK
}

// applyFence performs one step. index is that of the entry, and names a new round.
func (q *Machine) applyFence(c fsm.FenceIdle, index uint64) fsm.Result {
	if c.Check() != fsm.OK {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		return fsm.Result{Code: fsm.EntityNotFound}
	case !x.isShard():
		return fsm.Result{Code: fsm.NotAllowed}
	}
	isIdle := q.isIdle(x)
	switch c.Step {
	case fsm.FenceSet:
		if !isIdle || c.Round < x.fence {
			return fsm.Result{Code: fsm.PreconditionFails}
		}
		q.setFence(x, cmp.Or(c.Round, index))
		return fsm.Result{Serial: x.fence}
	case fsm.FenceLift:
		if x.fence == c.Round {
			q.setFence(x, 0)
		}
	case fsm.FenceDelete:
		if !isIdle || x.fence != c.Round {
			return fsm.Result{Code: fsm.PreconditionFails}
		}
		q.deleteIdle(x)
	}
	return fsm.Result{}
}

// setFence sets the fence of a shard, or removes it: then receivers that wait look for messages again.
func (q *Machine) setFence(x *entityState, round uint64) {
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
func (q *Machine) FencedShards() []fsm.FencedShard {
	list := make([]fsm.FencedShard, len(q.fences))
	for i, id := range q.fences {
		list[i] = fsm.FencedShard{Entity: id, Round: q.byID[id].fence}
	}
	return list
}

// IsIdle reports whether an entity can be deleted because it is idle, and whether there is such an entity.
func (q *Machine) IsIdle(id fsm.EntityID) (idle, found bool) {
	x := q.byID[id]
	return x != nil && q.isIdle(x), x != nil
}
