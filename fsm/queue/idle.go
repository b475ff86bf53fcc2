package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// recordActivity records activity that changes nothing else (docs/requirements.md#e8).
func (q *Machine) recordActivity(c fsm.Touch) fsm.Result {
	x := q.byID[c.Entity]
	if x == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	x.lastActivity = q.times.Serving
	return fsm.Result{}
}

// recordUse records that an entity was used: messages were sent to it, received from it or settled,
// or a topic got a subscription. Clients read the time; idleness has a time of its own, because
// peeks and waiting receivers count for it.
func (q *Machine) recordUse(x *entityState) {
	x.lastUse = q.times.Wall
}

// idleDue returns the time at which the entity is deleted if it stays idle; 0 for never, as while
// it forwards (docs/requirements.md#e8) or holds messages for other entities: of transactions, or
// to publish.
func (x *entityState) idleDue() fsm.Instant {
	if x.settings.ForwardTo != "" || x.settings.ForwardDeadLettersTo != "" ||
		x.subs[fsm.TransferQueue].ix.Total() > 0 || x.subs[fsm.MainQueue].ix.Count(fsm.Pending) > 0 {
		return 0
	}
	return x.lastActivity.Expiry(x.settings.AutoDeleteOnIdle)
}

// scheduleIdle schedules the check for idleness. Activity moves its time and touches no timer.
func (q *Machine) scheduleIdle(x *entityState) {
	x.subs[fsm.MainQueue].ix.MoveTimer(&x.idleAt, x.idleDue(), index.IdleTimer)
}

// reportIdleShard tells the leader that a shard is idle, and again later.
func (q *Machine) reportIdleShard(x *entityState) {
	q.idleShards = append(q.idleShards, x.id)
	x.subs[fsm.MainQueue].ix.MoveTimer(&x.idleAt, q.times.Serving.After(idleReportInterval), index.IdleTimer)
}

// deleteIdle deletes an entity that was idle for too long. A tombstone remains until the entity is
// dropped by command: otherwise a PutEntity in flight would create it again.
func (q *Machine) deleteIdle(x *entityState) {
	q.deleteEntity(x)
	tombstoneOf := tombstone{id: x.id}
	if x.topic != nil {
		tombstoneOf.topic = x.topic.id
	}
	i, _ := q.findTombstone(x.id)
	q.tombstones = slices.Insert(slices.Clone(q.tombstones), i, tombstoneOf) // an image may share the old one
	q.deletedIdle = append(q.deletedIdle, x.id)
}

// tombstone represents an entity that was deleted automatically.
type tombstone struct{ id, topic fsm.EntityID }

func (q *Machine) findTombstone(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.tombstones, id, func(t tombstone, id fsm.EntityID) int { return cmp.Compare(t.id, id) })
}

// removeTombstones removes the tombstone of an entity, and those of its subscriptions: they are not
// dropped one by one when their topic is.
func (q *Machine) removeTombstones(id fsm.EntityID) {
	of := func(t tombstone) bool { return t.id == id || t.topic == id }
	if slices.ContainsFunc(q.tombstones, of) {
		q.tombstones = slices.DeleteFunc(slices.Clone(q.tombstones), of)
	}
}

// Tombstones returns, by id, the entities that were deleted because they were idle and not dropped
// by command since: their names have to be deleted from the catalog. A new leader calls it, because
// an [EffectIdle] may be lost with the old leader.
func (q *Machine) Tombstones() []fsm.EntityID {
	if len(q.tombstones) == 0 {
		return nil
	}
	list := make([]fsm.EntityID, len(q.tombstones))
	for i, t := range q.tombstones {
		list[i] = t.id
	}
	return list
}
