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

// send stores messages at the tail: all or none, duplicates left out.
func (q *Queues) send(id EntityID, messages []sent) Result {
	x, code := q.admit(id, messages)
	if code != OK {
		return Result{Code: code}
	}
	sub := &x.subs[MainQueue]
	first := x.last + 1
	var res Result
	for i := range messages {
		if q.repeats(x, messages[i].id) {
			if res.Sequences == nil {
				res.Sequences = make([]SequenceNumber, len(messages))
				for j := range i {
					res.Sequences[j] = first + SequenceNumber(j)
				}
			}
			continue
		}
		n := q.store(x, &messages[i])
		if res.Sequences != nil {
			res.Sequences[i] = n
		}
	}
	if x.last >= first {
		res.Sequence = first
	}
	if x.window != nil {
		x.window.sweep(q.clock, x.settings.DuplicateWindow, sweepPerSend*len(messages), q.arena.era)
		q.expectSweep(x)
	}
	q.tidy(sub)
	x.active = q.clock
	return res
}

// admit checks everything about a send before anything is changed.
func (q *Queues) admit(id EntityID, messages []sent) (*queue, Code) {
	if !within(len(messages), commandMessagesMax) {
		return nil, InvalidArgument
	}
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, EntityNotFound
	case !x.settings.Status.sends():
		return nil, EntityDisabled
	}
	size := uint64(0)
	for i := range messages {
		m := &messages[i]
		if len(m.id) > messageIDBytesMax || !validTime(m.ttl, m.at) {
			return nil, InvalidArgument
		}
		if uint64(len(m.payload)) > uint64(x.settings.MaxMessageBytes) {
			return nil, MessageTooLarge
		}
		size += uint64(len(m.payload))
	}
	held := x.subs[MainQueue].ix.bytes + x.subs[DeadLetterQueue].ix.bytes
	if held+size > x.settings.MaxBytes && held+q.uniqueBytes(x, messages) > x.settings.MaxBytes {
		return nil, QuotaExceeded
	}
	if w := x.window; w != nil && w.tail-w.head+uint64(len(messages)) > windowIDsMax {
		return nil, QuotaExceeded
	}
	return x, OK
}

// store puts one message at the tail.
func (q *Queues) store(x *queue, m *sent) SequenceNumber {
	sub := &x.subs[MainQueue]
	x.last++
	rec := record{enqueued: q.clock, state: Ready}
	rec.body = q.bodies.Append(Owner{Address: sub.address, Sequence: x.last}, m.payload)
	if m.at > q.clock {
		rec.state, rec.deadline, rec.expires = Scheduled, m.at, Instant(m.ttl)
	} else {
		rec.expires = expiry(q.clock, x.life(m.ttl))
		q.raise(sub)
	}
	q.insert(sub, x.last, rec)
	return x.last
}

// delivery is the message at a cursor as it is given out.
func (sub *subqueue) delivery(at cursor, rec *record) Delivery {
	return sub.newDelivery(sub.ix.number(at), rec, sub.ix.patch(at))
}

func (sub *subqueue) newDelivery(n SequenceNumber, rec *record, patch Ref) Delivery {
	d := Delivery{
		Lock:     LockID{Sequence: n, Epoch: rec.epoch},
		State:    rec.state,
		Attempts: uint32(rec.attempts),
		Enqueued: rec.enqueued,
		Body:     rec.body,
		Patch:    patch,
	}
	switch {
	case sub.address.Sub == DeadLetterQueue:
	case rec.state == Scheduled && rec.flags&delayed == 0:
		d.Expires = expiry(rec.deadline, sub.of.life(Millis(rec.expires)))
	default:
		d.Expires = rec.expires
	}
	if rec.state == Locked {
		d.LockedUntil = rec.deadline
	}
	return d
}

// receivable finds the sub-queue that a receiver asks.
func (q *Queues) receivable(a Address) (*subqueue, Code) {
	sub := q.find(a)
	switch {
	case sub == nil:
		return nil, EntityNotFound
	case !sub.of.settings.Status.receives():
		return nil, EntityDisabled
	}
	return sub, OK
}

// lock gives out the oldest ready messages. remembered says that the answer will be:
// giving for good without remembering would lose the messages with the first answer
// that gets lost. What has expired is not given out even if no pulse came yet; when there
// is very much of that, the rest is left to the next lock.
func (q *Queues) lock(c LockMessages, remembered bool) Result {
	if checkLock(c) != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	sub, code := q.receivable(c.Address)
	if code != OK {
		return Result{Code: code}
	}
	n := min(uint64(c.Max), sub.ix.counts[Ready])
	if n == 0 {
		return Result{}
	}
	deliveries := make([]Delivery, 0, n)
	size, expired := uint64(0), 0
	for uint64(len(deliveries)) < n {
		at, found := sub.ix.firstReady()
		if !found {
			break
		}
		rec := sub.ix.get(at)
		if q.expired(sub, &rec) {
			if expired == pulseMessagesMax {
				q.raise(sub)
				break
			}
			expired++
			q.expire(sub, at, rec, Patch{})
			continue
		}
		if size += uint64(rec.body.Size); size > uint64(c.MaxBytes) && len(deliveries) > 0 {
			break
		}
		deliveries = append(deliveries, q.grant(sub, at, rec, c.Delete))
	}
	q.tidy(sub)
	if len(deliveries) == 0 {
		return Result{}
	}
	sub.of.active = q.clock
	return Result{Deliveries: deliveries}
}

// grant gives out one message, ready or deferred: under a lock, or for good.
func (q *Queues) grant(sub *subqueue, at cursor, rec record, forGood bool) Delivery {
	rec.epoch++
	if forGood {
		rec.state = Taken
	} else {
		rec.state = Locked
		rec.deadline = q.clock.After(sub.of.settings.LockDuration)
	}
	sub.ix.set(at, rec)
	if !forGood {
		q.arm(sub, alarm{at: rec.deadline, number: sub.ix.number(at), epoch: rec.epoch, kind: alarmLock})
	}
	return sub.delivery(at, &rec)
}

// fetch gives out deferred messages by number. One that is asked for twice is given
// once: it is not deferred any more the second time. One whose life has ended meanwhile
// expires now.
func (q *Queues) fetch(c FetchDeferred, remembered bool) Result {
	if checkFetch(c) != OK || (c.Delete && !remembered) {
		return Result{Code: InvalidArgument}
	}
	sub, code := q.receivable(c.Address)
	if code != OK {
		return Result{Code: code}
	}
	var res Result
	expired := 0
	for _, n := range c.Sequences {
		at, found := sub.ix.seek(n)
		if !found {
			continue
		}
		rec := sub.ix.get(at)
		switch {
		case rec.state != Deferred:
		case !q.expired(sub, &rec):
			rec.flags |= fromDeferred
			res.Deliveries = append(res.Deliveries, q.grant(sub, at, rec, c.Delete))
		case expired < pulseMessagesMax:
			expired++
			q.expire(sub, at, rec, Patch{})
		}
	}
	q.tidy(sub)
	sub.of.active = q.clock
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
		codes[i] = q.settleOne(sub, &c.Settlements[i])
	}
	q.tidy(sub)
	x.active = q.clock
	return Result{Codes: codes}
}

func (q *Queues) settleOne(sub *subqueue, s *Settlement) Code {
	if !validSettlement(s) || s.Until > q.clock.After(delayMax) {
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
		q.giveBack(sub, at, rec, true, s.Until, patch)
	case Release:
		q.giveBack(sub, at, rec, false, 0, patch)
	case Defer:
		rec.state, rec.deadline, rec.flags = Deferred, 0, rec.flags&^fromDeferred
		sub.ix.set(at, rec)
		q.patch(sub, at, patch)
	case DeadLetter:
		patch.Reason, patch.Description = s.Reason, s.Description
		patch.DeadLetter = s.Reason != "" || s.Description != ""
		q.deadLetter(sub.of, at, rec, patch)
	}
	return OK
}

// giveBack ends a lock without settling the message: it returns to where the lock was
// made from, at once or when it was put off to. A message whose life has ended meanwhile
// expires now (E.3). A failed attempt counts, and the last one allowed sends the message
// to the dead-letter queue instead, in the same apply. In the dead-letter queue attempts
// count on and nothing follows from them.
func (q *Queues) giveBack(sub *subqueue, at cursor, rec record, failed bool, until Instant, patch Patch) {
	if failed && rec.attempts < math.MaxUint16 {
		rec.attempts++
	}
	if q.expired(sub, &rec) {
		q.expire(sub, at, rec, patch)
		return
	}
	if failed && sub.address.Sub == MainQueue && uint32(rec.attempts) >= sub.of.settings.MaxDeliveryCount {
		patch.DeadLetter, patch.Reason = true, reasonDeliveryCount
		patch.Description = fmt.Sprintf(descriptionDeliveryCount, strconv.Itoa(int(rec.attempts)))
		q.deadLetter(sub.of, at, rec, patch)
		return
	}
	rec.state, rec.deadline = Ready, 0
	if rec.flags&fromDeferred != 0 {
		rec.state, rec.flags = Deferred, rec.flags&^fromDeferred
	} else if until = q.putOff(sub, &rec, failed, until); until > q.clock {
		rec.state, rec.deadline, rec.flags = Scheduled, until, rec.flags|delayed
	}
	q.change(sub, at, rec)
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
	rec.state, rec.deadline, rec.flags = Ready, 0, rec.flags&redriven
	rec.rots = rotting(q.clock, x.settings.DeadLetterTimeToLive)
	at = q.insert(to, n, rec)
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
	patches := q.patches(old)
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
		q.arm(sub, alarm{at: until, number: l.Sequence, epoch: l.Epoch, kind: alarmLock})
	}
	q.tidy(sub)
	x.active = q.clock
	return res
}
