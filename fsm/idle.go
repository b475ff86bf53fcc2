package fsm

import (
	"cmp"
	"slices"
)

// touch notes activity that leaves no other trace (docs/requirements.md#e8).
func (q *Queues) touch(c Touch) Result {
	x := q.byID[c.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	x.active = q.clock
	return Result{}
}

// idleDue is when the queue deletes itself if nothing happens; 0 if never, as when it
// forwards (docs/requirements.md#e8), or has messages that others are to get: of transactions, or to publish.
func (x *queue) idleDue() Instant {
	if x.settings.ForwardTo != "" || x.settings.ForwardDeadLettersTo != "" ||
		x.subs[TransferQueue].ix.total() > 0 || x.subs[MainQueue].ix.counts[Pending] > 0 {
		return 0
	}
	return expiry(x.active, x.settings.AutoDeleteOnIdle)
}

// expectIdle sees to it that the queue is looked at by the time at which it is idle.
// Activity moves that moment away and touches no alarm.
func (q *Queues) expectIdle(x *queue) {
	q.expect(x, &x.idleAt, x.idleDue(), alarmIdle)
}

// expect arms an alarm that concerns a whole queue, unless one stands that rings by
// then. A when of 0 leaves none.
func (q *Queues) expect(x *queue, standing *Instant, when Instant, kind alarmKind) {
	if *standing != 0 && when != 0 && *standing <= when || *standing == when {
		return
	}
	main := &x.subs[MainQueue]
	if *standing != 0 {
		main.alarms.stale++
	}
	if *standing = when; when != 0 {
		q.arm(main, alarm{at: when, number: lastNumber, kind: kind})
	}
}

// goIdle deletes a queue that was idle for too long. A tombstone stays until the queue is
// dropped by command: else a PutEntity on its way would make it again.
func (q *Queues) goIdle(x *queue) {
	q.remove(x)
	stone := tombstone{id: x.id}
	if x.topic != nil {
		stone.topic = x.topic.id
	}
	i, _ := q.grave(x.id)
	q.gone = slices.Insert(slices.Clone(q.gone), i, stone) // an image may share the old one
	q.idled = append(q.idled, x.id)
}

// tombstone is left of an entity that deleted itself.
type tombstone struct{ id, topic EntityID }

func (q *Queues) grave(id EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.gone, id, func(t tombstone, id EntityID) int { return cmp.Compare(t.id, id) })
}

// bury clears the tombstone of an entity, and those of subscriptions of it: they are not
// dropped one by one when their topic is.
func (q *Queues) bury(id EntityID) {
	of := func(t tombstone) bool { return t.id == id || t.topic == id }
	if slices.ContainsFunc(q.gone, of) {
		q.gone = slices.DeleteFunc(slices.Clone(q.gone), of)
	}
}

// Gone returns the queues that deleted themselves for being idle and were not dropped by
// command since, by id: their names are to be deleted from the catalog. A new leader
// asks, because an [EffectIdle] may be lost with the old one.
func (q *Queues) Gone() []EntityID {
	if len(q.gone) == 0 {
		return nil
	}
	list := make([]EntityID, len(q.gone))
	for i, t := range q.gone {
		list[i] = t.id
	}
	return list
}
