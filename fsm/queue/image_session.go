package queue

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// sessions writes the sessions of an entity by slot, without what follows from its messages.
func (w *imageWriter) sessions(x *frozenEntity) {
	w.Uvarint(x.grants)
	count := 0
	for _, page := range x.sessions {
		for i := range page.slots {
			if page.slots[i].used {
				count++
			}
		}
	}
	w.Count(count)
	next := 0
	for p, page := range x.sessions {
		for i := range page.slots {
			h, slot := &page.slots[i], p*sessionPageSlots+i
			if !h.used {
				continue
			}
			w.Count(slot - next)
			next = slot + 1
			w.Text(h.id)
			w.Uvarint(h.epoch)
			w.Instant(h.until)
			w.token(h.token)
			w.Instant(h.updated)
			if h.updated != 0 {
				w.Ref(h.state)
			}
			w.FlushIfFull()
		}
	}
}

// sessionOf writes the session of a record: 0 for none, else the slot + 1.
func (w *imageWriter) sessionOf(slot uint32) {
	if slot == index.Sessionless {
		w.Byte(0)
		return
	}
	w.Uvarint(uint64(slot) + 1)
}

// sessions reads the sessions into an entity that has none yet.
func (r *imageReader) sessions(q *Machine, x *entityState) {
	s := x.sessions
	x.grants = r.Uvarint()
	r.Repeat(sessionsMax, func() {
		slot := uint64(s.top) + r.Uvarint()
		h := sessionRecord{id: r.Text(fsm.SessionIDBytesMax), epoch: r.Uvarint(), until: r.Instant(), token: r.token(), updated: r.Instant(), used: true}
		if h.updated != 0 {
			h.state = r.Ref()
		}
		_, twice := s.find(h.id)
		r.Require(slot < sessionsMax && !twice && h.epoch <= x.grants && (h.epoch == 0) == (h.until == 0) && (h.epoch != 0 || h.token == nil))
		if r.Failed() {
			return
		}
		for ; uint64(s.top) < slot; s.top++ {
			s.free.Push(freeSlot(s.top))
		}
		s.top++
		s.fillSlot(uint32(slot), h, *q.arena.Generation())
		s.bytes += uint64(h.state.Size)
	})
}

// token writes the token of a lock.
func (w *imageWriter) token(token *fsm.SessionToken) {
	if token == nil {
		w.Byte(0)
		return
	}
	w.Byte(1)
	for _, b := range token {
		w.Byte(b)
	}
}

// token reads the token of a lock, nil for none.
func (r *imageReader) token() *fsm.SessionToken {
	has := r.Byte()
	r.Require(has <= 1)
	if has != 1 {
		return nil
	}
	token := new(fsm.SessionToken)
	for i := range token {
		token[i] = r.Byte()
	}
	r.Require(*token != fsm.SessionToken{})
	return token
}

// sessionOf reads the session of a record, index.NoSession if the entity has no sessions.
func (r *imageReader) sessionOf(sub *subqueue, rec *index.Record) uint32 {
	s := sub.entity.sessions
	if s == nil {
		return index.NoSession
	}
	n := r.UvarintMax(math.MaxUint32)
	if n == 0 {
		r.Require(!sub.ix.DeliversBySession())
		return index.Sessionless
	}
	slot := uint32(n - 1)
	r.Require(slot < s.top && s.at(slot).used)
	if !r.Failed() && sub.ix.DeliversBySession() && rec.State() == fsm.Locked {
		r.Require(s.at(slot).epoch != 0)
	}
	return slot
}

// sessionsUsed checks, after all messages are read, that every session has a reason to exist, and
// derives the rest.
func (r *imageReader) sessionsUsed(q *Machine, x *entityState) {
	s := x.sessions
	for slot := range s.top {
		h, line := s.at(slot), &s.messages[slot]
		if !h.used {
			continue
		}
		r.Require(line.all.count() > 0 || line.otherCount > 0 || h.epoch != 0 || h.updated != 0)
		if r.Failed() {
			return
		}
		if r.stream != nil {
			continue
		}
		s.update(slot, *q.arena.Generation())
		if h.epoch != 0 {
			q.addSessionTimer(x, slot)
		}
	}
}

// eachState calls visit for the session states of an image.
func eachState(id fsm.EntityID, pages []*sessionPage, visit func(fsm.Owner, fsm.Ref)) {
	for p, page := range pages {
		for i := range page.slots {
			if h := &page.slots[i]; h.updated != 0 {
				visit(stateOwner(id, uint32(p*sessionPageSlots+i)), h.state)
			}
		}
	}
}
