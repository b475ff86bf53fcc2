package queue

import (
	"fmt"
	"strconv"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// Bounds of what settlements write in one entry.
const (
	// rewriteBytesMax bounds the patches that settlements, redrives, ends of sessions, and messages that expire outside
	// of pulses make one entry read and write again: once an entry has rewritten so
	// many bytes, it begins no further such message.
	rewriteBytesMax = 8 << 20
	// addedBytesMax bounds the properties and reasons that settlements add to messages in one entry, those that they
	// share counted for each: once an entry has added so many bytes, it begins no further such settlement. A
	// command holds an outcome once for all its locks.
	addedBytesMax = 32 << 20
)

// Reason and description of a message that reached MaxDeliveryCount, exactly as in Azure Service
// Bus.
const (
	reasonDeliveryCount      = "MaxDeliveryCountExceeded"
	descriptionDeliveryCount = "Message could not be consumed after %s delivery attempts."
)

// lostCode returns the code of a transaction that settles a lock that has ended.
func (sub *subqueue) lostCode(l fsm.LockID) fsm.Code {
	if _, found := sub.ix.Seek(l.Sequence); found && sub.ix.DeliversBySession() {
		return fsm.SessionLockLost // the message still exists: it was returned with its session
	}
	return fsm.MessageLockLost
}

// settle ends locks, each independently.
func (q *Machine) settle(c fsm.SettleMessages) fsm.Result {
	if !fsm.Within(len(c.Settlements), fsm.CommandSettlementsMax) || !c.Address.Valid() {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	sub, code := q.usableSubQueue(c.Address)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	codes := make([]fsm.Code, len(c.Settlements))
	for i := range c.Settlements {
		codes[i] = q.settleOne(sub, &c.Settlements[i], false)
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
	return fsm.Result{Codes: codes}
}

// settleable finds the message of a settlement, if it can be performed. counted means that what it
// rewrites was counted before.
func (q *Machine) settleable(sub *subqueue, s *fsm.Settlement, counted bool) (at index.Cursor, rec index.Record, code fsm.Code) {
	if !fsm.ValidSettlement(s) || s.Until > q.times.Wall.After(fsm.DelayMax) {
		return at, rec, fsm.InvalidArgument
	}
	at, rec, ok := sub.ix.FindLocked(s.Lock)
	switch {
	case !ok:
		return at, rec, fsm.MessageLockLost
	case s.Verb == fsm.DeadLetter && sub.address.Sub != fsm.MainQueue:
		return at, rec, fsm.NotAllowed
	case !counted && !q.mayRewrite(sub, at, &rec, s):
		return at, rec, fsm.ServerBusy
	case s.Verb != fsm.Complete && !q.patchFits(sub.ix.Patch(at), s.Properties):
		return at, rec, fsm.InvalidArgument
	}
	return at, rec, fsm.OK
}

// mayRewrite reports whether a settlement leaves the patches of its message as they are, or the entry
// may rewrite them and add those of the settlement, whose bytes it counts for each lock.
func (q *Machine) mayRewrite(sub *subqueue, at index.Cursor, rec *index.Record, s *fsm.Settlement) bool {
	if !q.addsPatch(sub, rec, s) {
		return true
	}
	if q.added >= addedBytesMax || !q.mayRewritePatches(sub, at) {
		return false
	}
	q.added += uint64(len(s.Properties) + len(s.Reason) + len(s.Description))
	return true
}

// mayExpire reports whether an expired message is deleted, or the entry may rewrite its patches.
func (q *Machine) mayExpire(sub *subqueue, at index.Cursor) bool {
	return !sub.keepsExpired() || q.mayRewritePatches(sub, at)
}

// mayRewritePatches reports whether the entry may rewrite the patches of a message, and counts their
// bytes: all patches of a message are one body, up to a MiB, which is read and written again.
func (q *Machine) mayRewritePatches(sub *subqueue, at index.Cursor) bool {
	size := uint64(sub.ix.Patch(at).Size)
	if size == 0 {
		return true
	}
	if q.rewritten >= rewriteBytesMax {
		return false
	}
	q.rewritten += size
	return true
}

// addsPatch reports whether a settlement can add a patch to its message: properties, or a reason why
// it is dead-lettered.
func (q *Machine) addsPatch(sub *subqueue, rec *index.Record, s *fsm.Settlement) bool {
	if s.Verb == fsm.Complete {
		return false
	}
	counts, returns := s.Verb == fsm.Abandon || s.Verb == fsm.Defer, s.Verb == fsm.Abandon || s.Verb == fsm.Release
	return len(s.Properties)+len(s.Reason)+len(s.Description) > 0 ||
		counts && sub.reachesMaxDeliveries(uint32(rec.FailedDeliveries())+1) || returns && sub.keepsExpired() && sub.ix.Expired(rec, q.times.Wall)
}

// settleOne performs one settlement. counted is that of settleable.
func (q *Machine) settleOne(sub *subqueue, s *fsm.Settlement, counted bool) fsm.Code {
	at, rec, code := q.settleable(sub, s, counted)
	if code != fsm.OK {
		return code
	}
	patch := fsm.Patch{Properties: s.Properties}
	if rec.Deadline() != 0 {
		sub.ix.DropTimer(index.LockTimer)
	}
	switch s.Verb {
	case fsm.Complete:
		q.deleteMessage(sub, at, &rec)
	case fsm.Abandon:
		q.returnToQueue(sub, at, rec, true, s.Until, patch)
	case fsm.Release:
		q.returnToQueue(sub, at, rec, false, 0, patch)
	case fsm.Defer:
		q.deferMessage(sub, at, rec, patch)
	case fsm.DeadLetter:
		patch.Reason, patch.Description = s.Reason, s.Description
		patch.DeadLetter = s.Reason != "" || s.Description != ""
		q.deadLetter(sub.entity, at, rec, patch)
	}
	return fsm.OK
}

// deferMessage ends a lock and keeps the message for receivers that ask for its number. The
// delivery counts, as in Azure Service Bus, and the last one allowed sends the message to the dead-letter queue.
func (q *Machine) deferMessage(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	if q.countDelivery(sub, &rec) {
		q.deadLetterExceeded(sub, at, rec, patch)
		return
	}
	rec.Defer()
	sub.ix.Set(at, rec)
	q.addPatch(sub, at, patch)
}

// countDelivery counts a delivery that did not settle the message, and reports whether it was the last one allowed.
// Only the main queue counts.
func (q *Machine) countDelivery(sub *subqueue, rec *index.Record) (last bool) {
	if sub.address.Sub == fsm.MainQueue {
		rec.CountFailedDelivery()
	}
	return sub.reachesMaxDeliveries(uint32(rec.FailedDeliveries()))
}

// reachesMaxDeliveries reports whether a message with so many failed deliveries is dead-lettered. Other
// sub-queues than the main queue allow any number.
func (sub *subqueue) reachesMaxDeliveries(failed uint32) bool {
	return sub.address.Sub == fsm.MainQueue && failed >= sub.entity.settings.MaxDeliveryCount
}

// deadLetterExceeded moves a message to the dead-letter queue because it was delivered too often.
func (q *Machine) deadLetterExceeded(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	patch.DeadLetter, patch.Reason = true, reasonDeliveryCount
	patch.Description = fmt.Sprintf(descriptionDeliveryCount, strconv.Itoa(int(rec.FailedDeliveries())))
	q.deadLetter(sub.entity, at, rec, patch)
}

// returnToQueue ends a lock without settling the message: the message returns to where it was
// locked, at once or after a delay. An expired message expires now (docs/requirements.md#e3). A
// failed delivery is counted, and the last one allowed sends the message to the dead-letter queue
// instead, in the same apply.
func (q *Machine) returnToQueue(sub *subqueue, at index.Cursor, rec index.Record, failed bool, until fsm.Instant, patch fsm.Patch) {
	last := failed && q.countDelivery(sub, &rec)
	if sub.ix.Expired(&rec, q.times.Wall) {
		q.expire(sub, at, rec, patch)
		return
	}
	if last {
		q.deadLetterExceeded(sub, at, rec, patch)
		return
	}
	rec.Return()
	if rec.IsFromDeferred() {
		rec.Defer()
	} else if until = q.retryAt(sub, &rec, failed, until); until > q.times.Wall {
		rec.Delay(until)
	}
	sub.ix.Set(at, rec)
	q.addPatch(sub, at, patch)
	if rec.State() == fsm.Ready {
		q.notifyReady(sub)
	}
}

// deadLetter moves a message from the main queue to the dead-letter queue.
func (q *Machine) deadLetter(x *entityState, at index.Cursor, rec index.Record, patch fsm.Patch) {
	q.moveToSubQueue(&x.subs[fsm.MainQueue], &x.subs[fsm.DeadLetterQueue], at, rec, patch)
}

// moveToSubQueue moves a message to another sub-queue of its entity, where it is ready under its
// old number, see moveNumber, with its old failed deliveries. Its body stays where it is: the owner stored beside it
// still names the old sub-queue, and [Machine.Holds] takes that into account.
func (q *Machine) moveToSubQueue(from, to *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	n, patches, session := from.ix.Number(at), from.ix.Patch(at), from.ix.Session(at)
	from.entity.sessions.pin(session)
	defer from.entity.sessions.unpin(session, *q.arena.Generation())
	from.ix.Remove(at)
	rec.MoveToDeadLetters(q.times.Wall, to.entity.settings.DeadLetterTimeToLive)
	moved := q.moveNumber(to, n, &rec)
	at = to.ix.Insert(moved, rec, session)
	if patches != (fsm.Ref{}) {
		if moved != n {
			patches = q.rewriteBody(fsm.Owner{Address: to.address, Sequence: moved, Patch: true}, patches)
		}
		to.ix.SetPatch(at, patches)
	}
	q.addPatch(to, at, patch)
	q.notifyReady(to)
}

// moveNumber returns the number under which a message moves to another sub-queue of its entity: its own, or the next one
// if a message there has it. No command leads to that (see usableNumber), and if one did, no message would be lost. A new
// number needs a new owner beside the body.
func (q *Machine) moveNumber(to *subqueue, n fsm.SequenceNumber, rec *index.Record) fsm.SequenceNumber {
	if _, taken := to.ix.Seek(n); !taken {
		return n
	}
	to.entity.last++
	n = to.entity.last
	if !rec.IsCopy() {
		rec.SetBody(q.rewriteBody(fsm.Owner{Address: to.address, Sequence: n}, rec.Body()))
	}
	return n
}

// rewriteBody writes a body again for another owner, and returns where it is.
func (q *Machine) rewriteBody(owner fsm.Owner, old fsm.Ref) fsm.Ref {
	body := q.bodies.Append(owner, q.bodies.Read(old))
	q.bodies.Release(old)
	return body
}

// addPatch adds a patch to a message. All patches of a message are one body, which is rewritten: it
// happens rarely, and the record stays small.
func (q *Machine) addPatch(sub *subqueue, at index.Cursor, p fsm.Patch) {
	if !p.DeadLetter && len(p.Properties) == 0 {
		return
	}
	old := sub.ix.Patch(at)
	var body []byte
	if old != (fsm.Ref{}) {
		body = q.bodies.Read(old)
	}
	body = fsm.JoinPatches(body, &p)
	owner := fsm.Owner{Address: sub.address, Sequence: sub.ix.Number(at), Patch: true}
	sub.ix.SetPatch(at, q.bodies.Append(owner, body))
	if old != (fsm.Ref{}) {
		q.bodies.Release(old)
	}
}

// patchFits reports whether properties can be added to the patches at old: together no more than
// PropertiesBytesMax. Reasons do not count, otherwise a message with the maximum of properties
// could not be dead-lettered.
func (q *Machine) patchFits(old fsm.Ref, properties []byte) bool {
	if len(properties) == 0 || old == (fsm.Ref{}) {
		return true
	}
	patches := q.patches(old)
	total := len(properties)
	for i := range patches {
		total += len(patches[i].Properties)
	}
	return total <= fsm.PropertiesBytesMax
}

// renew extends locks that are held, each independently.
func (q *Machine) renew(c fsm.RenewLocks) fsm.Result {
	if c.Check() != fsm.OK {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	sub, code := q.usableSubQueue(c.Address)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	res := fsm.Result{Codes: make([]fsm.Code, len(c.Locks)), Untils: make([]fsm.Instant, len(c.Locks))}
	until := q.times.Serving.After(sub.entity.settings.LockDuration)
	for i, l := range c.Locks {
		at, rec, ok := sub.ix.FindLocked(l)
		if !ok {
			res.Codes[i] = fsm.MessageLockLost
			continue
		}
		if sub.ix.DeliversBySession() {
			res.Untils[i] = q.extendSession(sub.entity, sub.ix.Session(at))
			continue
		}
		res.Untils[i] = until
		if rec.Deadline() == until {
			continue
		}
		rec.Extend(until)
		sub.ix.Set(at, rec)
		sub.ix.DropTimer(index.LockTimer)
		sub.ix.AddLockTimer(l.Sequence, &rec)
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	return res
}
