package fsm

import (
	"fmt"
	"math"
	"strconv"
)

// What a message is dead-lettered with when its deliveries are used up, word for word
// as in the cloud.
const (
	reasonDeliveryCount      = "MaxDeliveryCountExceeded"
	descriptionDeliveryCount = "Message could not be consumed after %s delivery attempts."
)

// send stores messages at the tail: all or none.
func (q *Queues) send(id EntityID, messages []sent) Result {
	if !within(len(messages), commandMessagesMax) {
		return Result{Code: InvalidArgument}
	}
	x := q.byID[id]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	for i := range messages {
		if len(messages[i].id) > messageIDBytesMax {
			return Result{Code: InvalidArgument}
		}
		if uint64(len(messages[i].payload)) > uint64(x.settings.MaxMessageBytes) {
			return Result{Code: MessageTooLarge}
		}
	}
	sub := &x.subs[MainQueue]
	first := x.last + 1
	for i := range messages {
		x.last++
		body := q.bodies.Append(Owner{Address: sub.address, Sequence: x.last}, messages[i].payload)
		sub.ix.insert(x.last, record{body: body, enqueued: q.clock, state: Ready})
	}
	q.raise(sub)
	return Result{Sequence: first}
}

// delivery is the message at a cursor as it is given out.
func (sub *subqueue) delivery(at cursor, rec *record) Delivery {
	return newDelivery(sub.ix.number(at), rec, sub.ix.patch(at))
}

func newDelivery(n SequenceNumber, rec *record, patch Ref) Delivery {
	return Delivery{
		Lock:        LockID{Sequence: n, Epoch: rec.epoch},
		State:       rec.state,
		Attempts:    uint32(rec.attempts),
		Enqueued:    rec.enqueued,
		LockedUntil: rec.deadline,
		Body:        rec.body,
		Patch:       patch,
	}
}

// lock gives out the oldest ready messages. remembered says that the answer will be:
// giving for good without remembering would lose the messages with the first answer
// that gets lost.
func (q *Queues) lock(c LockMessages, remembered bool) Result {
	if checkLock(c) != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	sub := q.find(c.Address)
	if sub == nil {
		return Result{Code: EntityNotFound}
	}
	n := min(uint64(c.Max), sub.ix.counts[Ready])
	if n == 0 {
		return Result{}
	}
	deliveries := make([]Delivery, 0, n)
	size := uint64(0)
	for range n {
		at, _ := sub.ix.firstReady()
		rec := sub.ix.get(at)
		if size += uint64(rec.body.Size); size > uint64(c.MaxBytes) && len(deliveries) > 0 {
			break
		}
		deliveries = append(deliveries, q.grant(sub, at, rec, c.Delete))
	}
	return Result{Deliveries: deliveries}
}

// grant gives out one message, ready or deferred: under a lock, or for good.
func (q *Queues) grant(sub *subqueue, at cursor, rec record, forGood bool) Delivery {
	rec.epoch++
	if forGood {
		rec.state = Taken
	} else {
		rec.state = Locked
		rec.deadline = q.clock.After(q.byID[sub.address.Entity].settings.LockDuration)
	}
	sub.ix.set(at, rec)
	if !forGood {
		q.arm(sub, alarm{at: rec.deadline, number: sub.ix.number(at), epoch: rec.epoch})
	}
	return sub.delivery(at, &rec)
}

// fetch gives out deferred messages by number. One that is asked for twice is given
// once: it is not deferred any more the second time.
func (q *Queues) fetch(c FetchDeferred, remembered bool) Result {
	if checkFetch(c) != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	sub := q.find(c.Address)
	if sub == nil {
		return Result{Code: EntityNotFound}
	}
	var res Result
	for _, n := range c.Sequences {
		at, found := sub.ix.seek(n)
		if !found {
			continue
		}
		if rec := sub.ix.get(at); rec.state == Deferred {
			rec.flags |= fromDeferred
			res.Deliveries = append(res.Deliveries, q.grant(sub, at, rec, c.Delete))
		}
	}
	return res
}

// held finds a message by its lock. Only the epoch says whether a lock is still held;
// a clock never does.
func (sub *subqueue) held(l LockID) (at cursor, rec record, ok bool) {
	at, found := sub.ix.seek(l.Sequence)
	if !found {
		return at, rec, false
	}
	rec = sub.ix.get(at)
	return at, rec, rec.state == Locked && rec.epoch == l.Epoch
}

// settle ends locks, each for itself.
func (q *Queues) settle(c SettleMessages) Result {
	if !within(len(c.Settlements), commandSettlementsMax) || !c.Address.valid() {
		return Result{Code: InvalidArgument}
	}
	x := q.byID[c.Address.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	sub := &x.subs[c.Address.Sub]
	codes := make([]Code, len(c.Settlements))
	for i := range c.Settlements {
		codes[i] = q.settleOne(x, sub, &c.Settlements[i])
	}
	q.tidy(sub)
	return Result{Codes: codes}
}

func (q *Queues) settleOne(x *queue, sub *subqueue, s *Settlement) Code {
	if !validSettlement(s) {
		return InvalidArgument
	}
	at, rec, ok := sub.held(s.Lock)
	if !ok {
		return MessageLockLost
	}
	if s.Verb == DeadLetter && sub.address.Sub == DeadLetterQueue {
		return NotAllowed
	}
	if s.Verb != Complete && !q.patchFits(sub.ix.patch(at), s.Properties) {
		return InvalidArgument
	}
	patch := Patch{Properties: s.Properties}
	sub.alarms.stale++
	switch s.Verb {
	case Complete:
		q.discard(sub, at, &rec)
	case Abandon:
		q.giveBack(x, sub, at, rec, true, patch)
	case Release:
		q.giveBack(x, sub, at, rec, false, patch)
	case Defer:
		rec.state, rec.deadline, rec.flags = Deferred, 0, rec.flags&^fromDeferred
		sub.ix.set(at, rec)
		q.patch(sub, at, patch)
	case DeadLetter:
		patch.Reason, patch.Description = s.Reason, s.Description
		patch.DeadLetter = s.Reason != "" || s.Description != ""
		q.deadLetter(x, at, rec, patch)
	}
	return OK
}

// giveBack ends a lock without settling the message: it returns to where the lock was
// made from. A failed attempt counts, and the last one allowed sends the message to
// the dead-letter queue instead, in the same apply. In the dead-letter queue attempts
// count on and nothing follows from them.
func (q *Queues) giveBack(x *queue, sub *subqueue, at cursor, rec record, failed bool, patch Patch) {
	if failed && rec.attempts < math.MaxUint16 {
		rec.attempts++
	}
	if failed && sub.address.Sub == MainQueue && uint32(rec.attempts) >= x.settings.MaxDeliveryCount {
		patch.DeadLetter, patch.Reason = true, reasonDeliveryCount
		patch.Description = fmt.Sprintf(descriptionDeliveryCount, strconv.Itoa(int(rec.attempts)))
		q.deadLetter(x, at, rec, patch)
		return
	}
	rec.state = Ready
	if rec.flags&fromDeferred != 0 {
		rec.state, rec.flags = Deferred, rec.flags&^fromDeferred
	}
	rec.deadline = 0
	sub.ix.set(at, rec)
	q.patch(sub, at, patch)
	if rec.state == Ready {
		q.raise(sub)
	}
}

// deadLetter moves a message from the main queue to the dead-letter queue, where it is
// ready under its old number and with its old attempts. Its body stays where it is:
// the owner stored beside it still names the main queue, and [Queues.Holds] knows.
func (q *Queues) deadLetter(x *queue, at cursor, rec record, patch Patch) {
	from, to := &x.subs[MainQueue], &x.subs[DeadLetterQueue]
	n, patches := from.ix.number(at), from.ix.patch(at)
	from.ix.remove(at)
	rec.state, rec.deadline, rec.flags = Ready, 0, 0
	at = to.ix.insert(n, rec)
	if patches != (Ref{}) {
		to.ix.setPatch(at, patches)
	}
	q.patch(to, at, patch)
	q.raise(to)
}

// patch adds a patch to a message. All patches of a message are one body, which is
// written anew: it happens rarely, and the record stays small.
func (q *Queues) patch(sub *subqueue, at cursor, p Patch) {
	if !p.DeadLetter && len(p.Properties) == 0 {
		return
	}
	old := sub.ix.patch(at)
	var body []byte
	if old == (Ref{}) {
		body = AppendPatches(nil, []Patch{p})
	} else {
		body = appendPatch(append([]byte(nil), q.bodies.Read(old)...), &p)
	}
	owner := Owner{Address: sub.address, Sequence: sub.ix.number(at), Patch: true}
	sub.ix.setPatch(at, q.bodies.Append(owner, body))
	if old != (Ref{}) {
		q.bodies.Release(old)
	}
}

// patchFits says whether properties may be added to the patches at old: together no
// more than propertiesBytesMax. Reasons do not count, else a message whose properties
// are full could not be dead-lettered.
func (q *Queues) patchFits(old Ref, properties []byte) bool {
	if len(properties) == 0 || old == (Ref{}) {
		return true
	}
	patches, err := DecodePatches(q.bodies.Read(old))
	if err != nil {
		panic(fmt.Sprintf("fsm: body at %v is not what was written there: %v", old, err))
	}
	total := len(properties)
	for i := range patches {
		total += len(patches[i].Properties)
	}
	return total <= propertiesBytesMax
}

// renew extends locks that are held, each for itself.
func (q *Queues) renew(c RenewLocks) Result {
	if checkRenew(c) != OK {
		return Result{Code: InvalidArgument}
	}
	x := q.byID[c.Address.Entity]
	if x == nil {
		return Result{Code: EntityNotFound}
	}
	sub := &x.subs[c.Address.Sub]
	res := Result{Codes: make([]Code, len(c.Locks)), Untils: make([]Instant, len(c.Locks))}
	until := q.clock.After(x.settings.LockDuration)
	for i, l := range c.Locks {
		at, rec, ok := sub.held(l)
		if !ok {
			res.Codes[i] = MessageLockLost
			continue
		}
		res.Untils[i] = until
		if rec.deadline == until {
			continue
		}
		rec.deadline = until
		sub.ix.set(at, rec)
		sub.alarms.stale++
		q.arm(sub, alarm{at: until, number: l.Sequence, epoch: l.Epoch})
	}
	q.tidy(sub)
	return res
}
