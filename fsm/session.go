package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/filter"
)

// sessionStates is where the states of sessions lie as far as bodies are concerned: the
// owner of a state is (entity, sessionStates, slot). Nobody can attach to it.
const sessionStates SubQueue = 255

// What a message is dead-lettered with that came to an entity with sessions on a way that
// cannot refuse it, word for word as in the cloud.
const (
	reasonNoSession      = "Session ID is null"
	descriptionNoSession = "Session enabled entity doesn't allow a message whose session identifier is null."
)

// sessionful finds an entity that has sessions.
func (q *Queues) sessionful(id EntityID) (*queue, Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, EntityNotFound
	case x.sessions == nil:
		return nil, NotAllowed
	}
	return x, OK
}

// holds finds a session by its lock. Only the epoch says whether it is still held.
func (x *queue) holds(l SessionLock) (slot uint32, ok bool) {
	slot, found := x.sessions.find(l.ID)
	return slot, found && l.Epoch != 0 && x.sessions.at(slot).epoch == l.Epoch
}

// accept locks a session: the one named, or the one with the oldest ready message.
func (q *Queues) accept(c AcceptSession) Result {
	if !checkSession(c.ID) {
		return Result{Code: InvalidArgument}
	}
	x, code := q.sessionful(c.Entity)
	switch {
	case code != OK:
		return Result{Code: code}
	case !x.settings.Status.receives():
		return Result{Code: EntityDisabled}
	}
	s := x.sessions
	slot, found := s.find(c.ID)
	if !c.Named {
		if slot, found = s.next(); !found {
			return Result{}
		}
	}
	switch {
	case found && s.at(slot).epoch != 0:
		return Result{Code: SessionCannotBeLocked}
	case !found:
		if slot, found = s.open(c.ID, q.arena.era); !found {
			return Result{Code: QuotaExceeded}
		}
	}
	x.grants++
	h := s.write(slot, q.arena.era)
	h.epoch, h.until = x.grants, q.clock.After(x.settings.LockDuration)
	q.armSession(x, slot)
	s.settle(slot, q.arena.era)
	x.active = q.clock
	return Result{Session: SessionLock{ID: h.id, Epoch: h.epoch}, Untils: []Instant{h.until}}
}

// accepted answers an accept that was performed before: with the grant as it stands.
func (q *Queues) accepted(at Address, l SessionLock) Result {
	x, code := q.sessionful(at.Entity)
	if code != OK {
		return Result{}
	}
	slot, ok := x.holds(l)
	if !ok {
		return Result{}
	}
	return Result{Session: l, Untils: []Instant{x.sessions.at(slot).until}}
}

func (q *Queues) armSession(x *queue, slot uint32) {
	h := x.sessions.at(slot)
	q.arm(&x.subs[MainQueue], alarm{at: h.until, number: SequenceNumber(slot), epoch: uint32(h.epoch), kind: alarmSession})
}

// sessionStands says whether an alarm is that of a session lock.
func (x *queue) sessionStands(a alarm) bool {
	if x.sessions == nil || a.number >= SequenceNumber(x.sessions.top) {
		return false
	}
	h := x.sessions.at(uint32(a.number))
	return h.epoch != 0 && uint32(h.epoch) == a.epoch && h.until == a.at
}

// renewSession extends a session lock.
func (q *Queues) renewSession(c RenewSession) Result {
	x, code := q.sessionful(c.Entity)
	if code != OK {
		return Result{Code: code}
	}
	slot, ok := x.holds(c.Lock)
	if !ok {
		return Result{Code: SessionLockLost}
	}
	return Result{Untils: []Instant{q.extendSession(x, slot)}}
}

// extendSession lets a session lock end a lock duration from now.
func (q *Queues) extendSession(x *queue, slot uint32) Instant {
	x.active = q.clock
	until := q.clock.After(x.settings.LockDuration)
	h := x.sessions.at(slot)
	if h.until == until {
		return until
	}
	x.sessions.write(slot, q.arena.era).until = until
	sub := &x.subs[MainQueue]
	sub.alarms.stale++
	q.armSession(x, slot)
	q.tidy(sub)
	return until
}

// releaseSession ends a session lock for its holder.
func (q *Queues) releaseSession(c ReleaseSession) Result {
	x, code := q.sessionful(c.Entity)
	if code != OK {
		return Result{}
	}
	if slot, ok := x.holds(c.Lock); ok {
		sub := &x.subs[MainQueue]
		sub.alarms.stale++
		q.endSession(x, slot, false)
		q.tidy(sub)
		x.active = q.clock
	}
	return Result{}
}

// endSession gives back what is locked under a session, in order, and lets the session go.
// Its alarm has rung or is counted as stale by the caller.
func (q *Queues) endSession(x *queue, slot uint32, failed bool) {
	sub, s := &x.subs[MainQueue], x.sessions
	h := s.write(slot, q.arena.era)
	h.epoch, h.until = 0, 0
	if failed {
		s.lost = append(s.lost, h.id)
	}
	s.pin(slot) // its last message may expire on the way back: it is let go once, here
	for n := s.lines[slot].held.first(); n != 0; n = s.lines[slot].held.first() {
		at, found := sub.ix.seek(n)
		if !found {
			panic("fsm: a session holds a message that is not there")
		}
		q.giveBack(sub, at, sub.ix.get(at), failed, 0, Patch{})
	}
	s.unpin(slot, q.arena.era)
	q.raise(sub)
}

// asked is the session that a receiver asks in, noSession where there are none. Who holds
// no session cannot ask where there are, and the other way round.
func (sub *subqueue) asked(l SessionLock) (session uint32, code Code) {
	switch {
	case sub.grouped() != (l.Epoch != 0):
		return noSession, NotAllowed
	case !sub.grouped():
		return noSession, OK
	}
	slot, ok := sub.of.holds(l)
	if !ok {
		return noSession, SessionLockLost
	}
	return slot, OK
}

// readyIn counts the ready messages of a session, or of a sub-queue without sessions.
func (sub *subqueue) readyIn(session uint32) uint64 {
	if session == noSession {
		return sub.ix.counts[Ready]
	}
	return uint64(sub.of.sessions.lines[session].ready.count())
}

// oldest finds the first of them.
func (sub *subqueue) oldest(session uint32) (cursor, bool) {
	if session == noSession {
		return sub.ix.firstReady()
	}
	return sub.ix.seek(sub.of.sessions.lines[session].ready.first()) // 0 is never there
}

// setState keeps the state of a session that the asker holds.
func (q *Queues) setState(c SetSessionState) Result {
	x, code := q.sessionful(c.Entity)
	if code != OK {
		return Result{Code: code}
	}
	slot, ok := x.holds(c.Lock)
	if !ok {
		return Result{Code: SessionLockLost}
	}
	old := x.sessions.at(slot).state
	switch {
	case len(c.State) > int(x.settings.MaxMessageBytes):
		return Result{Code: MessageTooLarge}
	case x.held()-uint64(old.Size)+uint64(len(c.State)) > x.settings.MaxBytes:
		return Result{Code: QuotaExceeded}
	}
	h := x.sessions.write(slot, q.arena.era)
	if h.updated != 0 {
		q.bodies.Release(old)
	}
	h.state, h.updated = Ref{}, 0
	if !c.Clear {
		h.state, h.updated = q.bodies.Append(stateOwner(x.id, slot), c.State), max(q.clock, 1)
	}
	x.sessions.bytes += uint64(h.state.Size) - uint64(old.Size)
	x.active = q.clock
	return Result{}
}

// SessionState is the state of a session that the asker holds: where it lies, and whether
// there is one. SessionLockLost when it is not held under this lock.
func (q *Queues) SessionState(id EntityID, l SessionLock) (at Ref, set bool, code Code) {
	x, code := q.sessionful(id)
	if code != OK {
		return Ref{}, false, code
	}
	slot, ok := x.holds(l)
	if !ok {
		return Ref{}, false, SessionLockLost
	}
	h := x.sessions.at(slot)
	return h.state, h.updated != 0, OK
}

// Sessions lists up to most sessions of an entity in the order of their slots, without the
// first skip of those meant: with a moment those whose state was set after it, without one
// (0) those that have messages in the main queue or a state. False when the entity is not
// there or has no sessions.
func (q *Queues) Sessions(id EntityID, updatedAfter Instant, skip, most int) ([]Session, bool) {
	x, code := q.sessionful(id)
	if code != OK {
		return nil, false
	}
	var found []Session
	s := x.sessions
	for slot := range s.top {
		if len(found) >= most {
			break
		}
		h, line := s.at(slot), &s.lines[slot]
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
		found = append(found, Session{
			ID: h.id, Messages: uint64(line.all.count()), Ready: uint64(line.ready.count()),
			Until: h.until, Updated: h.updated, Bytes: uint64(h.state.Size),
		})
	}
	return found, true
}

// AvailableSessions is the number of sessions that an AcceptSession without a name could
// give.
func (q *Queues) AvailableSessions(id EntityID) uint64 {
	if x := q.byID[id]; x != nil && x.sessions != nil {
		return uint64(x.sessions.available)
	}
	return 0
}

// ReadySession is the number of messages that a LockMessages under a session lock could
// give; 0 when the lock has ended.
func (q *Queues) ReadySession(id EntityID, session string) uint64 {
	if x := q.byID[id]; x != nil && x.sessions != nil {
		if slot, found := x.sessions.find(session); found {
			return uint64(x.sessions.lines[slot].ready.count())
		}
	}
	return 0
}

// PeekSession is Peek for the messages of one session.
func (q *Queues) PeekSession(id EntityID, session string, from SequenceNumber, most int) []Delivery {
	x, code := q.sessionful(id)
	if code != OK || most <= 0 {
		return nil
	}
	slot, ok := x.sessions.find(session)
	if !ok {
		return nil
	}
	most = min(most, peekMax)
	sub, all := &x.subs[MainQueue], x.sessions.lines[slot].all.live()
	first, _ := slices.BinarySearch(all, from)
	var found []Delivery
	for _, n := range all[first:] {
		at, _ := sub.ix.seek(n)
		if rec := sub.ix.get(at); rec.state != Taken && len(found) < most {
			found = append(found, sub.delivery(at, &rec))
		}
	}
	return found
}

// sessionsUsed is the number of sessions that hold messages or state, or are held.
func (x *queue) sessionsUsed() uint64 {
	if x.sessions == nil {
		return 0
	}
	return uint64(x.sessions.count)
}

// group makes an empty entity one whose messages belong to sessions.
func (q *Queues) group(x *queue) {
	x.sessions = newSessions(q.arena.era)
	for i := range x.subs {
		x.subs[i].ix.sessions, x.subs[i].ix.main = x.sessions, SubQueue(i) == MainQueue
	}
}

// grouped says whether messages here are given out by session.
func (sub *subqueue) grouped() bool { return sub.ix.main }

// session is the slot of the session that a message was admitted with, noSession where
// there are none.
func (q *Queues) session(x *queue, m *sent) uint32 {
	if x.sessions == nil {
		return noSession
	}
	slot, _ := q.slot(x, m.session, m.hasSession)
	return slot
}

// slot is that of a session, which is made if need be: sessionless, and false, for none.
func (q *Queues) slot(x *queue, session []byte, has bool) (slot uint32, ok bool) {
	if !has {
		return sessionless, false
	}
	if slot, found := x.sessions.slots[string(session)]; found {
		return slot, true
	}
	if slot, ok = x.sessions.open(string(session), q.arena.era); !ok {
		return sessionless, false
	}
	return slot, true
}

// rejectSessionless dead-letters a message that came without a session on a way that
// cannot refuse it. Its number is that given last.
func (q *Queues) rejectSessionless(x *queue, rec record, patches []byte) {
	sub := &x.subs[DeadLetterQueue]
	rec.rots = rotting(q.clock, x.settings.DeadLetterTimeToLive)
	at := q.insertIn(sub, x.last, rec, sessionless)
	q.patched(sub, at, mustJoin(patches, &Patch{DeadLetter: true, Reason: reasonNoSession, Description: descriptionNoSession}))
	q.raise(sub)
}

// slotOfCopy is the session of a copy that a subscription gets: what the action at hand
// has made of it, else what the message was sent with.
func (q *Queues) slotOfCopy(x *queue, c *copying) (slot uint32, ok bool) {
	s := &q.subject
	if len(s.changes) == 0 && c.hasSession {
		return q.slot(x, c.session, true)
	}
	v, found := s.System(filter.SessionID)
	if !found || v.Kind() != filter.KindText || len(v.AsText()) > sessionIDBytesMax {
		return sessionless, false
	}
	return q.slot(x, []byte(v.AsText()), true)
}

// lockEnd is when the lock on a message ends.
func (sub *subqueue) lockEnd(n SequenceNumber, rec *record) Instant {
	if !sub.grouped() {
		return rec.deadline
	}
	at, _ := sub.ix.seek(n)
	return sub.of.sessions.at(sub.ix.session(at)).until
}

// groupEffects says which held sessions have something for their holders, and whether there
// are sessions to accept.
func (sub *subqueue) groupEffects(effects []Effect) []Effect {
	s := sub.of.sessions
	for _, slot := range s.raised {
		line, h := &s.lines[slot], s.at(slot)
		line.raised = false
		if n := line.ready.count(); n > 0 && h.epoch != 0 {
			effects = append(effects, Effect{Address: sub.address, Session: h.id, Ready: uint64(n)})
		}
	}
	s.raised = s.raised[:0]
	for _, id := range s.lost {
		effects = append(effects, Effect{Address: sub.address, Session: id, Kind: EffectSessionLost})
	}
	s.lost = nil
	if s.available > 0 {
		effects = append(effects, Effect{Address: sub.address, Ready: uint64(s.available), Kind: EffectSession})
	}
	return effects
}
