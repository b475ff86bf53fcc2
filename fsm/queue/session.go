package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/index"
)

// sessionStates is the sub-queue in the owner of a session state: (entity, sessionStates, slot). It
// is not addressable.
const sessionStates fsm.SubQueue = 255

// Reason and description of a message without a session that was forwarded to an entity with
// sessions, exactly as in Azure Service Bus.
const (
	reasonNoSession      = "Session ID is null"
	descriptionNoSession = "Session enabled entity doesn't allow a message whose session identifier is null."
)

// findSessionEntity finds an entity that has sessions.
func (q *Machine) findSessionEntity(id fsm.EntityID) (*entityState, fsm.Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, fsm.EntityNotFound
	case x.sessions == nil:
		return nil, fsm.NotAllowed
	}
	return x, fsm.OK
}

// usableSessionEntity is findSessionEntity for commands that a fence refuses.
func (q *Machine) usableSessionEntity(id fsm.EntityID) (*entityState, fsm.Code) {
	x, code := q.findSessionEntity(id)
	if code == fsm.OK {
		code = x.fenced()
	}
	return x, code
}

// lockedSession finds a session by its lock. Only the epoch decides whether it is still locked.
func (x *entityState) lockedSession(l fsm.SessionLock) (slot uint32, ok bool) {
	slot, found := x.sessions.find(l.ID)
	if !found || l.Epoch == 0 {
		return slot, false
	}
	h := x.sessions.at(slot)
	return slot, h.epoch == l.Epoch
}

// accept locks a session: the one named, or the one with the oldest ready message.
func (q *Machine) accept(c fsm.AcceptSession) fsm.Result {
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
func (q *Machine) grantSession(x *entityState, slot uint32, token *fsm.SessionToken) fsm.Result {
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
func (q *Machine) takeOver(x *entityState, slot uint32, found bool, token fsm.SessionToken) fsm.Result {
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
func (q *Machine) repeatAccept(at fsm.Address, l fsm.SessionLock) fsm.Result {
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

func (q *Machine) addSessionTimer(x *entityState, slot uint32) {
	h := x.sessions.at(slot)
	x.subs[fsm.MainQueue].ix.AddTimer(index.Timer{At: h.until, Number: fsm.SequenceNumber(slot), Epoch: uint32(h.epoch), Kind: index.SessionTimer})
}

// isCurrent reports whether a timer is that of a current session lock.
func (s *sessionTable) isCurrent(a index.Timer) bool {
	if s == nil || a.Number >= fsm.SequenceNumber(s.top) {
		return false
	}
	h := s.at(uint32(a.Number))
	return h.epoch != 0 && uint32(h.epoch) == a.Epoch && h.until == a.At
}

// renewSession extends a session lock.
func (q *Machine) renewSession(c fsm.RenewSession) fsm.Result {
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
func (q *Machine) extendSession(x *entityState, slot uint32) fsm.Instant {
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
func (q *Machine) releaseSession(c fsm.ReleaseSession) fsm.Result {
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
func (q *Machine) endSession(x *entityState, slot uint32, failed bool) {
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
func (q *Machine) returnFromSession(sub *subqueue, at index.Cursor, rec index.Record, failed bool) {
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

// readyCount counts the ready messages of a session, or of a sub-queue without sessions.
func (sub *subqueue) readyCount(session uint32) uint64 {
	if session == index.NoSession {
		return sub.ix.Count(fsm.Ready)
	}
	return uint64(sub.entity.sessions.messages[session].ready.count())
}

// oldestReady finds the first of them.
func (sub *subqueue) oldestReady(session uint32) (index.Cursor, bool) {
	if session == index.NoSession {
		return sub.ix.FirstReady()
	}
	return sub.ix.Seek(sub.entity.sessions.messages[session].ready.first()) // 0 is never found
}

// settableState finds the session whose state a command sets, unless its lock has ended or the state is too large.
func (q *Machine) settableState(c *fsm.SetSessionState) (x *entityState, slot uint32, code fsm.Code) {
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
func (q *Machine) setState(c fsm.SetSessionState) fsm.Result {
	x, slot, code := q.settableState(&c)
	if code != fsm.OK {
		return fsm.Result{Code: code}
	}
	old := x.sessions.at(slot).state
	if x.storedBytes()-uint64(old.Size)+uint64(len(c.State)) > x.settings.MaxBytes {
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
func (q *Machine) SessionState(id fsm.EntityID, l fsm.SessionLock) (at fsm.Ref, set bool, code fsm.Code) {
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
func (q *Machine) SessionLockEnd(id fsm.EntityID, l fsm.SessionLock) fsm.Instant {
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
func (q *Machine) Sessions(id fsm.EntityID, updatedAfter fsm.Instant, skip, most int) ([]fsm.Session, bool) {
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
func (q *Machine) AvailableSessions(id fsm.EntityID) uint64 {
	if x := q.byID[id]; x != nil && x.sessions != nil {
		return uint64(x.sessions.available)
	}
	return 0
}

// ReadySession returns the number of messages that a LockMessages under a session lock could
// deliver; 0 if there is no such session.
func (q *Machine) ReadySession(id fsm.EntityID, session string) uint64 {
	if x := q.byID[id]; x != nil && x.sessions != nil {
		if slot, found := x.sessions.find(session); found {
			return uint64(x.sessions.messages[slot].ready.count())
		}
	}
	return 0
}

// PeekSession is Peek for the messages of one session.
func (q *Machine) PeekSession(id fsm.EntityID, session string, from fsm.SequenceNumber, most int) []fsm.Delivery {
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

// enableSessions makes an empty entity one with sessions.
func (q *Machine) enableSessions(x *entityState) {
	x.sessions = newSessionTable(*q.arena.Generation())
	for i := range x.subs {
		x.subs[i].ix.EnableSessions(x.sessions)
	}
}

// messageSession returns the slot of the session of an admitted message, index.NoSession if the entity
// has no sessions.
func (q *Machine) messageSession(x *entityState, m *sentMessage) uint32 {
	if x.sessions == nil {
		return index.NoSession
	}
	slot, _ := q.sessionSlot(x, m.session, m.hasSession)
	return slot
}

// sessionSlot returns the slot of a session, which is added if necessary: index.Sessionless and false for
// none.
func (q *Machine) sessionSlot(x *entityState, session []byte, has bool) (slot uint32, ok bool) {
	if !has {
		return index.Sessionless, false
	}
	if slot, found := x.sessions.slots[string(session)]; found {
		return slot, true
	}
	if slot, ok = x.sessions.findOrAdd(string(session), *q.arena.Generation()); !ok {
		return index.Sessionless, false
	}
	return slot, true
}

// deadLetterSessionless dead-letters a message without a session that cannot be refused. Its number
// is the last one assigned.
func (q *Machine) deadLettersessionless(x *entityState, rec index.Record, patches []byte) {
	sub := &x.subs[fsm.DeadLetterQueue]
	rec.SetDeadLetterExpiry(q.times.Wall, x.settings.DeadLetterTimeToLive)
	at := sub.ix.Insert(x.last, rec, index.Sessionless)
	q.storePatches(sub, at, fsm.JoinPatches(patches, &fsm.Patch{DeadLetter: true, Reason: reasonNoSession, Description: descriptionNoSession}))
	q.notifyReady(sub)
}

// copySessionSlot returns the session of a copy for a subscription: the one set by the current
// action, else that of the message.
func (q *Machine) copySessionSlot(x *entityState, c *fanOutContext) (slot uint32, ok bool) {
	s := &q.evaluated
	if !s.Changed() && c.hasSession {
		return q.sessionSlot(x, c.session, true)
	}
	v := s.System(filter.SessionID)
	if v.Kind() != filter.KindText || len(v.AsText()) > fsm.SessionIDBytesMax {
		return index.Sessionless, false
	}
	return q.sessionSlot(x, []byte(v.AsText()), true)
}

// lockEnd returns the end of the lock of a message.
func (sub *subqueue) lockEnd(n fsm.SequenceNumber, rec *index.Record) fsm.Instant {
	if !sub.ix.DeliversBySession() {
		return rec.Deadline()
	}
	at, _ := sub.ix.Seek(n)
	return sub.entity.sessions.at(sub.ix.Session(at)).until
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
