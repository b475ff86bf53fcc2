package queue

import "github.com/peeklock/peeklock/fsm"

// Refs calls visit for every body reference of the image.
func (img *queuesImage) Refs(visit func(fsm.Owner, fsm.Ref)) {
	for i := range img.entities {
		x := &img.entities[i]
		for sub, entries := range x.entries {
			owner := fsm.Owner{Address: fsm.Address{Entity: x.id, Sub: fsm.SubQueue(sub)}}
			walk(entries, 0, func(n fsm.SequenceNumber, rec *record, patch fsm.Ref, _ uint32) bool {
				owner.Sequence, owner.Patch = n, false
				if rec.flags&shared == 0 {
					visit(owner, rec.body)
				}
				if patch != (fsm.Ref{}) {
					owner.Patch = true
					visit(owner, patch)
				}
				return true
			})
		}
		eachState(x.id, x.sessions, visit)
	}
}

// Refs calls visit for every body reference in the order of [Image]; the result replaces the
// reference. Sizes must not change.
func (q *Machine) Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref) {
	for _, x := range q.entities {
		for i := range x.subs {
			x.subs[i].refs(visit)
		}
		if x.sessions != nil {
			q.stateRefs(x, visit)
		}
	}
}

func (sub *subqueue) refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref) {
	ix := &sub.ix
	for pos := range ix.entries {
		live := ix.entries[pos].c.live // a copy: the chunk may be replaced during the loop
		for slot := live.next(0); slot >= 0; slot = live.next(slot + 1) {
			at := cursor{pos: pos, slot: slot}
			owner := fsm.Owner{Address: sub.address, Sequence: ix.number(at)}
			if rec := ix.get(at); rec.flags&shared == 0 {
				if ref := visit(owner, rec.body); ref != rec.body {
					ix.setBody(at, ref)
				}
			}
			owner.Patch = true
			if old := ix.patch(at); old != (fsm.Ref{}) {
				if ref := visit(owner, old); ref != old {
					ix.setPatch(at, ref)
				}
			}
		}
	}
}

// locate finds the message that references a body. The owner stored beside a body may name another
// sub-queue: a message that is dead-lettered keeps its body.
func (q *Machine) locate(owner fsm.Owner, ref fsm.Ref) (*index, cursor, bool) {
	x := q.byID[owner.Entity]
	if x == nil {
		return nil, cursor{}, false
	}
	for i := range x.subs {
		ix := &x.subs[i].ix
		at, found := ix.seek(owner.Sequence)
		switch {
		case !found:
		case owner.Patch && ix.patch(at) == ref && ref != fsm.Ref{}:
			return ix, at, true
		case !owner.Patch:
			if rec := ix.get(at); rec.body == ref && rec.flags&shared == 0 {
				return ix, at, true
			}
		}
	}
	return nil, cursor{}, false
}

// Holds reports whether the body at ref, stored for owner, is still referenced.
func (q *Machine) Holds(owner fsm.Owner, ref fsm.Ref) bool {
	if owner.Sub == sessionStates {
		return q.holdsState(owner, ref)
	}
	_, _, found := q.locate(owner, ref)
	return found
}

// Move records that the body at from, stored for owner, is now at to. It returns false, and changes
// nothing, if the body is no longer referenced.
func (q *Machine) Move(owner fsm.Owner, from, to fsm.Ref) bool {
	if owner.Sub == sessionStates {
		held := q.holdsState(owner, from)
		if held {
			q.byID[owner.Entity].sessions.write(uint32(owner.Sequence), q.arena.generation).state = to
		}
		return held
	}
	ix, at, found := q.locate(owner, from)
	switch {
	case !found:
		return false
	case owner.Patch:
		ix.setPatch(at, to)
	default:
		ix.setBody(at, to)
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
	entries []chunkEntry
	next    fsm.SequenceNumber
	states  []*sessionPage
}

// releasePending releases bodies of deleted entities, at most so many. It has no visible effect:
// these bodies are in no count and not held.
func (q *Machine) releasePending(most int) {
	for most > 0 && len(q.pendingReleases) > 0 {
		r := &q.pendingReleases[0]
		if len(r.states) > 0 {
			most -= sessionPageSlots
			q.releaseStates(r.states[0])
			r.states = r.states[1:]
			continue
		}
		done := true
		walk(r.entries, r.next, func(n fsm.SequenceNumber, rec *record, patch fsm.Ref, _ uint32) bool {
			if most == 0 {
				r.next, done = n, false
				return false
			}
			most--
			if rec.flags&shared == 0 {
				q.releaseBodies(rec.body, patch)
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
		for base, _ := split(r.next); r.entries[0].base < base; {
			r.entries = r.entries[1:]
		}
	}
}
