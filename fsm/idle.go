package fsm

import (
	"cmp"
	"slices"
)

// recordActivity notes activity that leaves no other trace (docs/requirements.md#e8).
func (q *Queues) recordActivity(c Touch) Result {
	x := q.byID[c.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	x.lastActivity = q.clock
	return Result{}
}

// idleDue is when the queue deletes itself if nothing happens; 0 if never, as when it
// forwards (docs/requirements.md#e8), or has messages that others are to get: of transactions, or to publish.
func (x *entityState) idleDue() Instant {
	if x.settings.ForwardTo != "" || x.settings.ForwardDeadLettersTo != "" ||
		x.subs[TransferQueue].ix.total() > 0 || x.subs[MainQueue].ix.counts[Pending] > 0 {
		return 0
	}
	return expiry(x.lastActivity, x.settings.AutoDeleteOnIdle)
}

// scheduleIdle sees to it that the queue is looked at by the time at which it is idle.
// Activity moves that moment away and touches no timer.
func (q *Queues) scheduleIdle(x *entityState) {
	q.setEntityTimer(x, &x.idleAt, x.idleDue(), timerIdle)
}

// setEntityTimer arms an timer that concerns a whole queue, unless one stands that rings by
// then. A when of 0 leaves none.
func (q *Queues) setEntityTimer(x *entityState, standing *Instant, when Instant, kind timerKind) {
	if *standing != 0 && when != 0 && *standing <= when || *standing == when {
		return
	}
	main := &x.subs[MainQueue]
	if *standing != 0 {
		main.timers.stale++
	}
	if *standing = when; when != 0 {
		q.addTimer(main, timer{at: when, number: lastNumber, kind: kind})
	}
}

// deleteIdle deletes a queue that was idle for too long. A tombstone stays until the queue is
// dropped by command: else a PutEntity on its way would make it again.
func (q *Queues) deleteIdle(x *entityState) {
	q.deleteEntity(x)
	tombstoneOf := tombstone{id: x.id}
	if x.topic != nil {
		tombstoneOf.topic = x.topic.id
	}
	i, _ := q.findTombstone(x.id)
	q.tombstones = slices.Insert(slices.Clone(q.tombstones), i, tombstoneOf) // an image may share the old one
	q.deletedIdle = append(q.deletedIdle, x.id)
}

// tombstone is left of an entity that deleted itself.
type tombstone struct{ id, topic EntityID }

func (q *Queues) findTombstone(id EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.tombstones, id, func(t tombstone, id EntityID) int { return cmp.Compare(t.id, id) })
}

// removeTombstones clears the tombstone of an entity, and those of subscriptions of it: they are not
// dropped one by one when their topic is.
func (q *Queues) removeTombstones(id EntityID) {
	of := func(t tombstone) bool { return t.id == id || t.topic == id }
	if slices.ContainsFunc(q.tombstones, of) {
		q.tombstones = slices.DeleteFunc(slices.Clone(q.tombstones), of)
	}
}

// Tombstones returns the queues that deleted themselves for being idle and were not dropped by
// command since, by id: their names are to be deleted from the catalog. A new leader
// asks, because an [EffectIdle] may be lost with the old one.
func (q *Queues) Tombstones() []EntityID {
	if len(q.tombstones) == 0 {
		return nil
	}
	list := make([]EntityID, len(q.tombstones))
	for i, t := range q.tombstones {
		list[i] = t.id
	}
	return list
}
