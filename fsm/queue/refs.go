package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// releases releases the bodies of deleted entities, in steps.
type releases struct {
	*core

	// pendingReleases are the bodies of deleted entities that are not released yet. They are local
	// to this replica and no part of its state.
	pendingReleases []pendingRelease
}

// Refs calls visit for every body reference in the order of [Image]; the result replaces the
// reference. Sizes must not change.
func (q *core) Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref) {
	for _, x := range q.entities {
		for i := range x.subs {
			x.subs[i].ix.MoveRefs(visit)
		}
		if x.sessions != nil {
			q.stateRefs(x, visit)
		}
	}
}

// locate finds the message that references a body. The owner stored beside a body may name another
// sub-queue: a message that is dead-lettered keeps its body.
func (q *core) locate(owner fsm.Owner, ref fsm.Ref) (*index.Index, index.Cursor, bool) {
	x := q.byID[owner.Entity]
	if x == nil {
		return nil, index.Cursor{}, false
	}
	for i := range x.subs {
		ix := &x.subs[i].ix
		if at, found := ix.FindRef(owner, ref); found {
			return ix, at, true
		}
	}
	return nil, index.Cursor{}, false
}

// Holds reports whether the body at ref, stored for owner, is still referenced.
func (q *core) Holds(owner fsm.Owner, ref fsm.Ref) bool {
	if owner.Sub == sessionStates {
		return q.holdsState(owner, ref)
	}
	_, _, found := q.locate(owner, ref)
	return found
}

// Move records that the body at from, stored for owner, is now at to. It returns false, and changes
// nothing, if the body is no longer referenced.
func (q *core) Move(owner fsm.Owner, from, to fsm.Ref) bool {
	if owner.Sub == sessionStates {
		held := q.holdsState(owner, from)
		if held {
			q.byID[owner.Entity].sessions.write(uint32(owner.Sequence), *q.arena.Generation()).state = to
		}
		return held
	}
	ix, at, found := q.locate(owner, from)
	switch {
	case !found:
		return false
	case owner.Patch:
		ix.SetPatch(at, to)
	default:
		ix.SetBody(at, to)
	}
	return true
}

// Numbers of bodies of deleted entities that are released at a time.
const (
	releasesPerApply = 256
	releasesPerPulse = 8192
)

// pendingRelease is the rest of a deleted sub-queue: bodies from a number on, or session states.
type pendingRelease struct {
	messages index.Frozen
	next     fsm.SequenceNumber
	states   []*sessionPage
}

// releasePending releases bodies of deleted entities, at most so many. It has no visible effect:
// these bodies are in no count and not held.
func (q *releases) releasePending(most int) {
	for most > 0 && len(q.pendingReleases) > 0 {
		r := &q.pendingReleases[0]
		if len(r.states) > 0 {
			most -= sessionPageSlots
			q.releaseStates(r.states[0])
			r.states = r.states[1:]
			continue
		}
		done := true
		r.messages.Walk(r.next, func(n fsm.SequenceNumber, rec *index.Record, patch fsm.Ref, _ uint32) bool {
			if most == 0 {
				r.next, done = n, false
				return false
			}
			most--
			if !rec.IsCopy() {
				q.releaseBodies(rec.Body(), patch)
			} else if patch != (fsm.Ref{}) {
				q.bodies.Release(patch)
			}
			return true
		})
		if done {
			q.pendingReleases[0] = pendingRelease{}
			q.pendingReleases = q.pendingReleases[1:]
			continue
		}
		r.messages = r.messages.From(r.next)
	}
}

// stateRefs calls visit for the session states of an entity; the result of visit replaces the
// reference.
func (q *core) stateRefs(x *entityState, visit func(fsm.Owner, fsm.Ref) fsm.Ref) {
	for slot := range x.sessions.top {
		h := x.sessions.at(slot)
		if h.updated == 0 {
			continue
		}
		if ref := visit(stateOwner(x.id, slot), h.state); ref != h.state {
			x.sessions.write(slot, *q.arena.Generation()).state = ref
		}
	}
}

// holdsState reports whether the state at ref, stored for owner, is still that of its session.
func (q *core) holdsState(owner fsm.Owner, ref fsm.Ref) bool {
	x := q.byID[owner.Entity]
	if x == nil || x.sessions == nil || owner.Sequence >= fsm.SequenceNumber(x.sessions.top) {
		return false
	}
	h := x.sessions.at(uint32(owner.Sequence))
	return h.updated != 0 && h.state == ref
}

// releaseStates releases the states of one page.
func (q *releases) releaseStates(page *sessionPage) {
	for i := range page.slots {
		if h := &page.slots[i]; h.updated != 0 {
			q.bodies.Release(h.state)
		}
	}
}
