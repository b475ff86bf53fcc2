package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// purge deletes ready messages, lowest number first.
func (q *receiving) purge(c fsm.PurgeMessages) fsm.Result {
	if code := c.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	sub, code := q.usableSubQueue(c.Address)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	var res fsm.Result
	next := fsm.SequenceNumber(0)
	// Expired messages are not purged but expire, and may be dead-lettered; there may be many of
	// them, so they are bounded too.
	for expired := 0; res.Count < uint64(c.Max) && expired < fsm.PulseMessagesMax; {
		at, found := sub.ix.NextReady(next)
		if !found {
			break
		}
		next = sub.ix.Number(at) + 1
		rec := sub.ix.Get(at)
		if c.Before != 0 && rec.Enqueued() >= c.Before {
			if rec.IsRedriven() {
				continue
			}
			break // the following ones were enqueued later
		}
		if sub.ix.DeliversBySession() && sub.entity.sessions.at(sub.ix.Session(at)).epoch != 0 {
			continue // its session is locked
		}
		if sub.ix.Expired(&rec, q.times.Wall) {
			expired++
			if q.mayExpire(sub, at) {
				q.expire(sub, at, rec, fsm.Patch{})
			}
			continue // the next pulse expires it
		}
		q.deleteMessage(sub, at, &rec, &sub.entity.totals.Removed)
		res.Count++
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	return res
}

// purgeScanMax bounds the messages that PurgeableInSession reads: those that a purge can remove,
// and as many that were redriven and are too young.
const purgeScanMax = 2 * fsm.CommandPurgeMax

// PurgeableInSession returns how to remove the first ready messages of a session that were enqueued
// before a time (0: all), at most so many. lock is the lock under which the session is held, with
// Epoch 0 if it is not locked. reach is the number of ready messages, from the oldest on, that have
// to be locked to include all of those; 0 if there are none. Codes: EntityNotFound, NotAllowed
// without sessions.
func (q *receiving) PurgeableInSession(id fsm.EntityID, session string, before fsm.Instant, most int) (lock fsm.SessionLock, reach int, code fsm.Code) {
	x, code := q.findSessionEntity(id)
	if code != fsm.OK {
		return fsm.SessionLock{}, 0, code
	}
	slot, found := x.sessions.find(session)
	if !found {
		return fsm.SessionLock{}, 0, fsm.OK
	}
	sub, live, matches := &x.subs[fsm.MainQueue], 0, 0
	ready := x.sessions.messages[slot].ready.live()
	for _, n := range ready[:min(len(ready), purgeScanMax)] {
		if matches >= most {
			break
		}
		at, _ := sub.ix.Seek(n)
		rec := sub.ix.Get(at)
		if sub.ix.Expired(&rec, q.times.Wall) {
			continue // a lock does not deliver it
		}
		live++
		if before == 0 || rec.Enqueued() < before {
			matches++
			reach = live
		} else if !rec.IsRedriven() {
			break // the following ones were enqueued later
		}
	}
	if h := x.sessions.at(slot); h.epoch != 0 {
		lock = fsm.SessionLock{ID: h.id, Epoch: h.epoch}
	}
	return lock, reach, fsm.OK
}

// settleUnlocked settles messages that nobody has locked. A message that has expired is left to the next pulse.
func (q *receiving) settleUnlocked(c fsm.SettleUnlocked) fsm.Result {
	if code := c.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	sub, code := q.usableSubQueue(c.Address)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	var res fsm.Result
	for _, n := range c.Sequences {
		at, found := sub.ix.Seek(n)
		if !found {
			continue
		}
		rec := sub.ix.Get(at)
		switch {
		case !c.States.Has(rec.State()), rec.State() != fsm.Scheduled && sub.ix.Expired(&rec, q.times.Wall):
			continue
		case c.Verb == fsm.Complete:
			q.deleteMessage(sub, at, &rec, &sub.entity.totals.Removed)
		default:
			rec.Return()
			sub.ix.Set(at, rec)
			q.notifyReady(sub)
		}
		res.Count++
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	return res
}

// redrive moves dead letters back to the main queue. It stops at the first one whose patches the entry may not rewrite.
func (q *receiving) redrive(c fsm.RedriveMessages) fsm.Result {
	if code := c.Check(); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	dead, code := q.usableSubQueue(fsm.Address{Entity: c.Entity, Sub: fsm.DeadLetterQueue})
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	x := dead.entity
	var res fsm.Result
	for _, n := range c.Sequences {
		at, found := dead.ix.Seek(n)
		if !found {
			continue
		}
		rec := dead.ix.Get(at)
		switch {
		case rec.State() != fsm.Ready, dead.ix.Session(at) == index.Sessionless:
		case dead.ix.Expired(&rec, q.times.Wall):
			q.expire(dead, at, rec, fsm.Patch{})
		case !q.mayRewritePatches(dead, at):
			res.Sequence = n
		default:
			q.redriveOne(x, at, rec)
			res.Count++
		}
		if res.Sequence != 0 {
			break
		}
	}
	dead.ix.RemoveStaleTimers()
	x.subs[fsm.MainQueue].ix.RemoveStaleTimers()
	x.lastActivity = q.times.Serving
	return res
}

// redriveOne moves one dead letter back under its old number, see moveNumber. Its time to live starts again.
func (q *receiving) redriveOne(x *entityState, at index.Cursor, rec index.Record) {
	from, to := &x.subs[fsm.DeadLetterQueue], &x.subs[fsm.MainQueue]
	n, patches := from.ix.Number(at), from.ix.Patch(at)
	session := from.ix.Session(at)
	from.entity.sessions.pin(session)
	defer from.entity.sessions.unpin(session, *q.arena.Generation())
	from.ix.Remove(at)
	x.totals.Redriven++
	rec.Redrive(q.times.Wall)
	n = q.moveNumber(to, n, &rec)
	at = to.ix.Insert(n, rec, session)
	if patches != (fsm.Ref{}) {
		if kept := withoutReasons(q.patches(patches)); len(kept) > 0 {
			owner := fsm.Owner{Address: to.address, Sequence: n, Patch: true}
			to.ix.SetPatch(at, q.bodies.Append(owner, fsm.AppendPatches(nil, kept)))
		}
		q.bodies.Release(patches)
	}
	q.notifyReady(to)
}

// withoutReasons removes the reasons of dead-lettering from patches.
func withoutReasons(patches []fsm.Patch) []fsm.Patch {
	kept := patches[:0]
	for _, p := range patches {
		p.DeadLetter, p.Reason, p.Description = false, "", ""
		if len(p.Properties) > 0 || len(p.Changes) > 0 || p.Enqueued != 0 || p.Source != "" {
			kept = append(kept, p)
		}
	}
	return kept
}
