package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// settle ends locks, each independently.
func (q *receiving) settle(c fsm.SettleMessages) fsm.Result {
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
func (q *receiving) settleable(sub *subqueue, s *fsm.Settlement, counted bool) (at index.Cursor, rec index.Record, code fsm.Code) {
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
	case s.Grows() && !sub.entity.hasSpaceFor(uint64(len(s.Properties))):
		return at, rec, fsm.QuotaExceeded
	}
	return at, rec, fsm.OK
}

// settleOne performs one settlement. counted is that of settleable.
func (q *receiving) settleOne(sub *subqueue, s *fsm.Settlement, counted bool) fsm.Code {
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
		q.deleteMessage(sub, at, &rec, &sub.entity.totals.Completed)
	case fsm.Abandon:
		sub.entity.totals.Abandoned++
		q.returnToQueue(sub, at, rec, true, s.Until, patch)
	case fsm.Release:
		q.returnToQueue(sub, at, rec, false, 0, patch)
	case fsm.Defer:
		q.deferMessage(sub, at, rec, patch)
	case fsm.DeadLetter:
		patch.Reason, patch.Description = s.Reason, s.Description
		patch.DeadLetter = s.Reason != "" || s.Description != ""
		q.deadLetter(sub.entity, at, rec, patch, totals.ByReceiver)
	}
	return fsm.OK
}

// deferMessage ends a lock and keeps the message for receivers that ask for its number. The
// delivery counts, as in Azure Service Bus, and the last one allowed sends the message to the dead-letter queue.
func (q *receiving) deferMessage(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	if q.countDelivery(sub, &rec) {
		q.deadLetterExceeded(sub, at, rec, patch)
		return
	}
	rec.Defer()
	sub.entity.totals.Deferred++
	sub.ix.Set(at, rec)
	q.addPatch(sub, at, patch)
}

// patchFits reports whether properties can be added to the patches at old: together no more than
// PropertiesBytesMax. Reasons do not count, otherwise a message with the maximum of properties
// could not be dead-lettered.
func (q *receiving) patchFits(old fsm.Ref, properties []byte) bool {
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
func (q *receiving) renew(c fsm.RenewLocks) fsm.Result {
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
