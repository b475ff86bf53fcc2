package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// sessions locks the sessions of entities, and returns the messages of those whose lock ends.
type sessions struct {
	*core
	*messages
}

// accept locks a session: the one named, or the one with the oldest ready message.
func (q *sessions) accept(c fsm.AcceptSession) fsm.Result {
	if c.Check() != fsm.OK {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	x, code := q.findSessionEntity(c.Entity)
	switch {
	case code != fsm.OK:
		return fsm.Result{Code: code}
	case !x.settings.Status.AllowsReceive():
		return fsm.Result{Code: fsm.EntityDisabled}
	case x.fence != 0 && !c.Named: // who waits is woken when the fence is lifted
		return fsm.Result{}
	case x.fence != 0:
		return fsm.Result{Code: fsm.ServerBusy}
	}
	s := x.sessions
	slot, found := s.find(c.ID)
	if !c.Named {
		if slot, found = s.oldestAvailable(); !found {
			return fsm.Result{}
		}
	}
	switch {
	case c.TakeOver:
		return q.takeOver(x, slot, found, c.Token)
	case found && s.at(slot).epoch != 0:
		return fsm.Result{Code: fsm.SessionCannotBeLocked}
	case !found:
		if slot, found = s.findOrAdd(c.ID, *q.arena.Generation()); !found {
			return fsm.Result{Code: fsm.QuotaExceeded}
		}
	}
	var token *fsm.SessionToken
	if c.Token != (fsm.SessionToken{}) {
		token = &c.Token
	}
	return q.grantSession(x, slot, token)
}

// grantSession gives a session a new lock.
func (q *sessions) grantSession(x *entityState, slot uint32, token *fsm.SessionToken) fsm.Result {
	x.grants++
	h := x.sessions.write(slot, *q.arena.Generation())
	h.epoch, h.until, h.token = x.grants, q.times.Serving.After(x.settings.LockDuration), token
	q.addSessionTimer(x, slot)
	x.sessions.update(slot, *q.arena.Generation())
	x.lastActivity = q.times.Serving
	return fsm.Result{Session: fsm.SessionLock{ID: h.id, Epoch: h.epoch}, Untils: []fsm.Instant{h.until}}
}

// takeOver replaces the lock of a session by a new one of the same token. Messages stay locked: they are locked under
// the session, not under one of its locks.
func (q *sessions) takeOver(x *entityState, slot uint32, found bool, token fsm.SessionToken) fsm.Result {
	s := x.sessions
	switch {
	case !found || s.at(slot).epoch == 0:
		return fsm.Result{Code: fsm.SessionLockLost}
	case s.at(slot).token == nil || *s.at(slot).token != token:
		return fsm.Result{Code: fsm.SessionCannotBeLocked}
	}
	sub := &x.subs[fsm.MainQueue]
	sub.ix.DropTimer(index.SessionTimer)
	s.expiredLocks = append(s.expiredLocks, s.at(slot).id)
	res := q.grantSession(x, slot, s.at(slot).token)
	sub.ix.RemoveStaleTimers()
	q.notifyReady(sub)
	return res
}

// repeatAccept answers an accept that was performed before with the lock as it is now.
func (q *sessions) repeatAccept(at fsm.Address, l fsm.SessionLock) fsm.Result {
	x, code := q.findSessionEntity(at.Entity)
	if code != fsm.OK {
		return fsm.Result{}
	}
	slot, ok := x.lockedSession(l)
	if !ok {
		return fsm.Result{}
	}
	return fsm.Result{Session: l, Untils: []fsm.Instant{x.sessions.at(slot).until}}
}

func (q *sessions) addSessionTimer(x *entityState, slot uint32) {
	h := x.sessions.at(slot)
	x.subs[fsm.MainQueue].ix.AddTimer(index.Timer{At: h.until, Number: fsm.SequenceNumber(slot), Epoch: uint32(h.epoch), Kind: index.SessionTimer})
}

// renewSession extends a session lock.
func (q *sessions) renewSession(c fsm.RenewSession) fsm.Result {
	x, code := q.usableSessionEntity(c.Entity)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	slot, ok := x.lockedSession(c.Lock)
	if !ok {
		return fsm.Result{Code: fsm.SessionLockLost}
	}
	return fsm.Result{Untils: []fsm.Instant{q.extendSession(x, slot)}}
}

// extendSession extends a session lock by the lock duration from now.
func (q *sessions) extendSession(x *entityState, slot uint32) fsm.Instant {
	x.lastActivity = q.times.Serving
	until := q.times.Serving.After(x.settings.LockDuration)
	h := x.sessions.at(slot)
	if h.until == until {
		return until
	}
	x.sessions.write(slot, *q.arena.Generation()).until = until
	sub := &x.subs[fsm.MainQueue]
	sub.ix.DropTimer(index.SessionTimer)
	q.addSessionTimer(x, slot)
	sub.ix.RemoveStaleTimers()
	return until
}

// releaseSession ends a session lock at the request of its holder.
func (q *sessions) releaseSession(c fsm.ReleaseSession) fsm.Result {
	x, code := q.findSessionEntity(c.Entity)
	if code != fsm.OK {
		return fsm.Result{}
	}
	if slot, ok := x.lockedSession(c.Lock); ok {
		sub := &x.subs[fsm.MainQueue]
		sub.ix.DropTimer(index.SessionTimer)
		q.endSession(x, slot, false)
		sub.ix.RemoveStaleTimers()
		x.lastActivity = q.times.Serving
	}
	return fsm.Result{}
}

// endSession returns the messages that are locked under a session, in order, and unlocks the
// session. Its timer is due, or the caller counts it as stale.
func (q *sessions) endSession(x *entityState, slot uint32, failed bool) {
	sub, s := &x.subs[fsm.MainQueue], x.sessions
	h := s.write(slot, *q.arena.Generation())
	h.epoch, h.until, h.token = 0, 0, nil
	if failed {
		s.expiredLocks = append(s.expiredLocks, h.id)
	}
	s.pin(slot) // its last message may expire during the return: the session is removed once, here
	for n := s.messages[slot].locked.first(); n != 0; n = s.messages[slot].locked.first() {
		at, found := sub.ix.Seek(n)
		if !found {
			panic("fsm: a session holds a message that is not there")
		}
		q.returnFromSession(sub, at, sub.ix.Get(at), failed)
	}
	s.unpin(slot, *q.arena.Generation())
	q.notifyReady(sub)
}

// dueAtOnce is the due time of a message that a pulse has to dead-letter, because the entry that ended its
// session had rewritten as many bytes as it may. A delay of redelivery ends later.
const dueAtOnce fsm.Instant = 1

// returnFromSession returns a message whose session has ended. A session may hold any number of messages
// with large patches, and their locks end now: those that the entry may not rewrite are not delivered any
// more, and the next pulses dead-letter them.
func (q *sessions) returnFromSession(sub *subqueue, at index.Cursor, rec index.Record, failed bool) {
	end := fsm.Settlement{Verb: fsm.Release}
	if failed {
		end.Verb = fsm.Abandon
	}
	if q.mayRewrite(sub, at, &rec, &end) {
		q.returnToQueue(sub, at, rec, failed, 0, fsm.Patch{})
		return
	}
	if failed {
		q.countDelivery(sub, &rec)
	}
	rec.Delay(dueAtOnce)
	sub.ix.Set(at, rec)
}

// receiverSession returns the session of a receiver, index.NoSession if the entity has no sessions. An
// entity with sessions requires a session lock, other entities refuse one.
func (sub *subqueue) receiverSession(l fsm.SessionLock) (session uint32, code fsm.Code) {
	switch {
	case sub.ix.DeliversBySession() != (l.Epoch != 0):
		return index.NoSession, fsm.NotAllowed
	case !sub.ix.DeliversBySession():
		return index.NoSession, fsm.OK
	}
	slot, ok := sub.entity.lockedSession(l)
	if !ok {
		return index.NoSession, fsm.SessionLockLost
	}
	return slot, fsm.OK
}

// readyCount counts the messages for receivers that are ready in a session, or in a sub-queue without sessions.
func (sub *subqueue) readyCount(session uint32) uint64 {
	if session == index.NoSession {
		return sub.readyToReceive()
	}
	return uint64(sub.entity.sessions.messages[session].ready.count())
}

// oldestReady finds the first of them.
func (sub *subqueue) oldestReady(session uint32) (index.Cursor, bool) {
	switch {
	case session == index.NoSession && sub.forwardsReady():
		return sub.ix.NextHeld(0, true)
	case session == index.NoSession:
		return sub.ix.FirstReady()
	}
	return sub.ix.Seek(sub.entity.sessions.messages[session].ready.first()) // 0 is never found
}

// settableState finds the session whose state a command sets, unless its lock has ended or the state is too large.
func (q *sessions) settableState(c *fsm.SetSessionState) (x *entityState, slot uint32, code fsm.Code) {
	if x, code = q.usableSessionEntity(c.Entity); code != fsm.OK {
		return x, 0, code
	}
	slot, ok := x.lockedSession(c.Lock)
	switch {
	case !ok:
		return x, 0, fsm.SessionLockLost
	case len(c.State) > int(x.settings.MaxMessageBytes):
		return x, 0, fsm.MessageTooLarge
	}
	return x, slot, fsm.OK
}

// setState stores the state of a session for its holder.
func (q *sessions) setState(c fsm.SetSessionState) fsm.Result {
	x, slot, code := q.settableState(&c)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	old := x.sessions.at(slot).state
	if x.quotaBytes()-uint64(old.Size)+uint64(len(c.State)) > x.settings.MaxBytes {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	h := x.sessions.write(slot, *q.arena.Generation())
	if h.updated != 0 {
		q.bodies.Release(old)
	}
	h.state, h.updated = fsm.Ref{}, 0
	if !c.Clear {
		h.state, h.updated = q.bodies.Append(stateOwner(x.id, slot), c.State), max(q.times.Wall, 1)
	}
	x.sessions.bytes += uint64(h.state.Size) - uint64(old.Size)
	x.lastActivity = q.times.Serving
	return fsm.Result{}
}

// SessionState returns the location of the state of a locked session, and whether there is one.
// SessionLockLost if the session is not locked with this lock.
func (q *sessions) SessionState(id fsm.EntityID, l fsm.SessionLock) (at fsm.Ref, set bool, code fsm.Code) {
	x, code := q.findSessionEntity(id)
	if code != fsm.OK {
		return fsm.Ref{}, false, code
	}
	slot, ok := x.lockedSession(l)
	if !ok {
		return fsm.Ref{}, false, fsm.SessionLockLost
	}
	h := x.sessions.at(slot)
	return h.state, h.updated != 0, fsm.OK
}

// SessionLockEnd returns the end of the lock of a session as clients see it, 0 if the session is not locked
// with this lock.
func (q *sessions) SessionLockEnd(id fsm.EntityID, l fsm.SessionLock) fsm.Instant {
	x, code := q.findSessionEntity(id)
	if code != fsm.OK {
		return 0
	}
	slot, ok := x.lockedSession(l)
	if !ok {
		return 0
	}
	return q.times.OnWall(x.sessions.at(slot).until)
}

// Sessions lists up to most sessions of an entity in the order of their slots, without the first
// skip: with a time those whose state was set after it, without one (0) those that have messages in
// the main queue or a state. False if the entity does not exist or has no sessions.
func (q *sessions) Sessions(id fsm.EntityID, updatedAfter fsm.Instant, skip, most int) ([]fsm.Session, bool) {
	x, code := q.findSessionEntity(id)
	if code != fsm.OK {
		return nil, false
	}
	var found []fsm.Session
	s := x.sessions
	for slot := range s.top {
		if len(found) >= most {
			break
		}
		h, line := s.at(slot), &s.messages[slot]
		meant := h.updated != 0 || line.all.count() > 0
		if updatedAfter > 0 {
			meant = h.updated > updatedAfter
		}
		if !h.used || !meant {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		found = append(found, fsm.Session{
			ID: h.id, Messages: uint64(line.all.count()), Ready: uint64(line.ready.count()),
			Until: q.times.OnWall(h.until), Updated: h.updated, Bytes: uint64(h.state.Size),
		})
	}
	return found, true
}

// AvailableSessions returns the number of sessions that an AcceptSession without a name could lock.
func (q *sessions) AvailableSessions(id fsm.EntityID) uint64 {
	if x := q.byID[id]; x != nil && x.sessions != nil {
		return uint64(x.sessions.available)
	}
	return 0
}

// PeekSession is Peek for the messages of one session.
func (q *sessions) PeekSession(id fsm.EntityID, session string, from fsm.SequenceNumber, most int) []fsm.Delivery {
	x, code := q.findSessionEntity(id)
	if code != fsm.OK || most <= 0 {
		return nil
	}
	slot, ok := x.sessions.find(session)
	if !ok {
		return nil
	}
	most = min(most, peekMax)
	sub, all := &x.subs[fsm.MainQueue], x.sessions.messages[slot].all.live()
	first, _ := slices.BinarySearch(all, from)
	var found []fsm.Delivery
	for _, n := range all[first:] {
		at, _ := sub.ix.Seek(n)
		if rec := sub.ix.Get(at); rec.State() != fsm.Deleting && len(found) < most {
			found = append(found, q.peeked(sub, n, &rec, sub.ix.Patch(at)))
		}
	}
	return found
}

// sessionsUsed returns the number of sessions that have messages or state, or are locked.
func (x *entityState) sessionsUsed() uint64 {
	if x.sessions == nil {
		return 0
	}
	return uint64(x.sessions.count)
}

// sessionEffects adds effects for locked sessions with messages for their holders, and for sessions
// that can be accepted.
func (sub *subqueue) sessionEffects(effects []fsm.Effect) []fsm.Effect {
	s := sub.entity.sessions
	for _, slot := range s.readyChanged {
		line, h := &s.messages[slot], s.at(slot)
		line.readyChanged = false
		if n := line.ready.count(); n > 0 && h.epoch != 0 {
			effects = append(effects, fsm.Effect{Address: sub.address, Session: h.id, Ready: uint64(n)})
		}
	}
	s.readyChanged = s.readyChanged[:0]
	for _, id := range s.expiredLocks {
		effects = append(effects, fsm.Effect{Address: sub.address, Session: id, Kind: fsm.EffectSessionLost})
	}
	s.expiredLocks = nil
	if s.available > 0 {
		effects = append(effects, fsm.Effect{Address: sub.address, Ready: uint64(s.available), Kind: fsm.EffectSession})
	}
	return effects
}
