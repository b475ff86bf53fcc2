package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// idleness deletes entities that nobody uses.
type idleness struct {
	*core
	*fences
	*registry

	deletedIdle []fsm.EntityID // entities that were deleted since the last Effects
	idleShards  []fsm.EntityID // shards that were found idle since the last Effects
}

// recordActivity records activity that changes nothing else (docs/requirements.md#e8).
func (q *idleness) recordActivity(c fsm.Touch) fsm.Result {
	x := q.byID[c.Entity]
	if x == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	x.lastActivity = q.times.Serving
	return fsm.Result{}
}

// idleReportInterval is how often a shard that is idle says so: the first report may be lost, or another shard may not
// have answered.
const idleReportInterval = fsm.Millis(60 * 1000)

// reportIdleShard tells the leader that a shard is idle, and again later.
func (q *idleness) reportIdleShard(x *entityState) {
	q.idleShards = append(q.idleShards, x.id)
	x.subs[fsm.MainQueue].ix.MoveTimer(&x.idleAt, q.times.Serving.After(idleReportInterval), index.IdleTimer)
}

// deleteIdle deletes an entity that was idle for too long. A tombstone remains until the entity is
// dropped by command: otherwise a PutEntity in flight would create it again.
func (q *idleness) deleteIdle(x *entityState) {
	q.deleteEntity(x)
	tombstoneOf := tombstone{id: x.id}
	if x.topic != nil {
		tombstoneOf.topic = x.topic.id
	}
	i, _ := q.findTombstone(x.id)
	q.tombstones = slices.Insert(slices.Clone(q.tombstones), i, tombstoneOf) // an image may share the old one
	q.deletedIdle = append(q.deletedIdle, x.id)
}

// Tombstones returns, by id, the entities that were deleted because they were idle and not dropped
// by command since: their names have to be deleted from the catalog. A new leader calls it, because
// an [EffectIdle] may be lost with the old leader.
func (q *idleness) Tombstones() []fsm.EntityID {
	if len(q.tombstones) == 0 {
		return nil
	}
	list := make([]fsm.EntityID, len(q.tombstones))
	for i, t := range q.tombstones {
		list[i] = t.id
	}
	return list
}

// applyFence performs one step. index is that of the entry, and names a new round.
func (q *idleness) applyFence(c fsm.FenceIdle, index uint64) fsm.Result {
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

// IsIdle reports whether an entity can be deleted because it is idle, and whether there is such an entity.
func (q *idleness) IsIdle(id fsm.EntityID) (idle, found bool) {
	x := q.byID[id]
	return x != nil && q.isIdle(x), x != nil
}

// fences refuses commands for shards that may be deleted.
type fences struct {
	*core

	fenced []fsm.EntityID // shards that are fenced; sorted, derived
}

// setFence sets the fence of a shard, or removes it: then receivers that wait look for messages again.
func (q *fences) setFence(x *entityState, round uint64) {
	i, found := slices.BinarySearch(q.fenced, x.id)
	switch {
	case round != 0 && !found:
		q.fenced = slices.Insert(q.fenced, i, x.id)
	case round == 0 && found:
		q.fenced = slices.Delete(q.fenced, i, i+1)
		for sub := range x.subs {
			q.notifyReady(&x.subs[sub])
		}
	}
	x.fence = round
}

// FencedShards returns the shards that are fenced, by id. The leader lifts a fence that nobody uses any more.
func (q *fences) FencedShards() []fsm.FencedShard {
	list := make([]fsm.FencedShard, len(q.fenced))
	for i, id := range q.fenced {
		list[i] = fsm.FencedShard{Entity: id, Round: q.byID[id].fence}
	}
	return list
}

// tombstone represents an entity that was deleted automatically.
type tombstone struct{ id, topic fsm.EntityID }

func (q *registry) findTombstone(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.tombstones, id, func(t tombstone, id fsm.EntityID) int { return cmp.Compare(t.id, id) })
}

// removeTombstones removes the tombstone of an entity, and those of its subscriptions: they are not
// dropped one by one when their topic is.
func (q *registry) removeTombstones(id fsm.EntityID) {
	of := func(t tombstone) bool { return t.id == id || t.topic == id }
	if slices.ContainsFunc(q.tombstones, of) {
		q.tombstones = slices.DeleteFunc(slices.Clone(q.tombstones), of)
	}
}
