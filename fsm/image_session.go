package fsm

import "math"

// sessions writes the sessions of an entity by slot, without what follows from its messages.
func (w *imageWriter) sessions(x *frozenEntity) {
	w.uvarint(x.grants)
	count := 0
	for _, page := range x.sessions {
		for i := range page.slots {
			if page.slots[i].used {
				count++
			}
		}
	}
	w.count(count)
	next := 0
	for p, page := range x.sessions {
		for i := range page.slots {
			h, slot := &page.slots[i], p*sessionPageSlots+i
			if !h.used {
				continue
			}
			w.count(slot - next)
			next = slot + 1
			w.string(h.id)
			w.uvarint(h.epoch)
			w.instant(h.until)
			w.token(h.token)
			w.instant(h.updated)
			if h.updated != 0 {
				w.ref(h.state)
			}
			w.flushIfFull()
		}
	}
}

// sessionOf writes the session of a record: 0 for none, else the slot + 1.
func (w *imageWriter) sessionOf(slot uint32) {
	if slot == sessionless {
		w.byte(0)
		return
	}
	w.uvarint(uint64(slot) + 1)
}

// sessions reads the sessions into an entity that has none yet.
func (r *imageReader) sessions(q *Queues, x *entityState) {
	s := x.sessions
	x.grants = r.uvarint()
	r.repeat(sessionsMax, func() {
		slot := uint64(s.top) + r.uvarint()
		h := sessionRecord{id: r.string(sessionIDBytesMax), epoch: r.uvarint(), until: r.instant(), token: r.token(), updated: r.instant(), used: true}
		if h.updated != 0 {
			h.state = r.ref()
		}
		_, twice := s.find(h.id)
		r.require(slot < sessionsMax && !twice && h.epoch <= x.grants && (h.epoch == 0) == (h.until == 0) && (h.epoch != 0 || h.token == nil))
		if r.failed() {
			return
		}
		for ; uint64(s.top) < slot; s.top++ {
			s.free.push(freeSlot(s.top))
		}
		s.top++
		s.fillSlot(uint32(slot), h, q.arena.generation)
		s.bytes += uint64(h.state.Size)
	})
}

// token writes the token of a lock.
func (w *imageWriter) token(token *SessionToken) {
	if token == nil {
		w.byte(0)
		return
	}
	w.byte(1)
	for _, b := range token {
		w.byte(b)
	}
}

// token reads the token of a lock, nil for none.
func (r *imageReader) token() *SessionToken {
	has := r.byte()
	r.require(has <= 1)
	if has != 1 {
		return nil
	}
	token := new(SessionToken)
	for i := range token {
		token[i] = r.byte()
	}
	r.require(*token != SessionToken{})
	return token
}

// sessionOf reads the session of a record, noSession if the entity has no sessions.
func (r *imageReader) sessionOf(sub *subqueue, rec *record) uint32 {
	s := sub.entity.sessions
	if s == nil {
		return noSession
	}
	n := r.uvarintMax(math.MaxUint32)
	if n == 0 {
		r.require(!sub.ix.main)
		return sessionless
	}
	slot := uint32(n - 1)
	r.require(slot < s.top && s.at(slot).used)
	if !r.failed() && sub.ix.main && rec.state == Locked {
		r.require(s.at(slot).epoch != 0)
	}
	return slot
}

// sessionsUsed checks, after all messages are read, that every session has a reason to exist, and
// derives the rest.
func (r *imageReader) sessionsUsed(q *Queues, x *entityState) {
	s := x.sessions
	for slot := range s.top {
		h, line := s.at(slot), &s.messages[slot]
		if !h.used {
			continue
		}
		r.require(line.all.count() > 0 || line.otherCount > 0 || h.epoch != 0 || h.updated != 0)
		if r.failed() {
			return
		}
		s.update(slot, q.arena.generation)
		if h.epoch != 0 {
			q.addSessionTimer(x, slot)
		}
	}
}

// eachState calls visit for the session states of an image.
func eachState(id EntityID, pages []*sessionPage, visit func(Owner, Ref)) {
	for p, page := range pages {
		for i := range page.slots {
			if h := &page.slots[i]; h.updated != 0 {
				visit(stateOwner(id, uint32(p*sessionPageSlots+i)), h.state)
			}
		}
	}
}

// stateRefs calls visit for the session states of an entity; the result of visit replaces the
// reference.
func (q *Queues) stateRefs(x *entityState, visit func(Owner, Ref) Ref) {
	for slot := range x.sessions.top {
		h := x.sessions.at(slot)
		if h.updated == 0 {
			continue
		}
		if ref := visit(stateOwner(x.id, slot), h.state); ref != h.state {
			x.sessions.write(slot, q.arena.generation).state = ref
		}
	}
}

func stateOwner(id EntityID, slot uint32) Owner {
	return Owner{Address: Address{Entity: id, Sub: sessionStates}, Sequence: SequenceNumber(slot)}
}

// holdsState reports whether the state at ref, stored for owner, is still that of its session.
func (q *Queues) holdsState(owner Owner, ref Ref) bool {
	x := q.byID[owner.Entity]
	if x == nil || x.sessions == nil || owner.Sequence >= SequenceNumber(x.sessions.top) {
		return false
	}
	h := x.sessions.at(uint32(owner.Sequence))
	return h.updated != 0 && h.state == ref
}

// releaseStates releases the states of one page.
func (q *Queues) releaseStates(page *sessionPage) {
	for i := range page.slots {
		if h := &page.slots[i]; h.updated != 0 {
			q.bodies.Release(h.state)
		}
	}
}
