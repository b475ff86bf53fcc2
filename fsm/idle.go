package fsm

import "slices"

// touch notes activity that leaves no other trace (E.8).
func (q *Queues) touch(c Touch) Result {
	x := q.byID[c.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	x.active = q.clock
	return Result{}
}

// idleDue is when the queue deletes itself if nothing happens; 0 if never.
func (x *queue) idleDue() Instant { return expiry(x.active, x.settings.AutoDeleteOnIdle) }

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
// dropped by command: else a PutQueue on its way would make it again.
func (q *Queues) goIdle(x *queue) {
	q.remove(x)
	i, _ := slices.BinarySearch(q.gone, x.id)
	q.gone = slices.Insert(slices.Clone(q.gone), i, x.id) // an image may share the old one
	q.idled = append(q.idled, x.id)
}

// bury clears the tombstone of a queue.
func (q *Queues) bury(id EntityID) {
	if i, found := slices.BinarySearch(q.gone, id); found {
		q.gone = slices.Delete(slices.Clone(q.gone), i, i+1)
	}
}

// Gone returns the queues that deleted themselves for being idle and were not dropped by
// command since, by id: their names are to be deleted from the catalog. A new leader
// asks, because an [EffectIdle] may be lost with the old one.
func (q *Queues) Gone() []EntityID { return slices.Clone(q.gone) }
