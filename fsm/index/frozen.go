package index

import (
	"github.com/peeklock/peeklock/fsm"
)

// Frozen is the messages of an index at one time. It may be read concurrently with the index once [Arena.Freeze] has begun
// a new generation.
type Frozen struct{ entries []chunkEntry }

// Freeze returns the messages as they are.
func (ix *Index) Freeze() Frozen { return Frozen{ix.entries} }

// IsEmpty reports whether there are no messages.
func (f Frozen) IsEmpty() bool { return len(f.entries) == 0 }

// Len returns the number of messages.
func (f Frozen) Len() int {
	n := 0
	for i := range f.entries {
		n += f.entries[i].c.count
	}
	return n
}

// Visit is called for the message with number n: its record, which it must not change, the location of its patches, and the slot of its
// session, NoSession if the entity has no sessions. It returns false to end a walk.
type Visit func(n fsm.SequenceNumber, rec *Record, patch fsm.Ref, session uint32) bool

// Walk calls visit for the messages from a number on, in order, until visit returns false.
func (f Frozen) Walk(from fsm.SequenceNumber, visit Visit) {
	entries := f.From(from).entries
	for i := range entries {
		e := &entries[i]
		first := e.base << chunkShift
		slot := 0
		if uint64(from) > first {
			slot = int(uint64(from) - first)
		}
		for slot = e.c.live.next(slot); slot >= 0; slot = e.c.live.next(slot + 1) {
			place, session := e.c.recordIndex(slot), NoSession
			if len(e.c.sessions) > 0 {
				session = e.c.sessions[place]
			}
			if !visit(fsm.SequenceNumber(first+uint64(slot)), &e.c.records[place], e.c.patch(slot), session) {
				return
			}
		}
	}
}

// From returns the messages without the chunks that end before a number.
func (f Frozen) From(n fsm.SequenceNumber) Frozen {
	base, _ := split(n)
	pos, _ := find(f.entries, base)
	return Frozen{f.entries[pos:]}
}

// EachRef calls visit for the locations of the bodies and patches of the messages, which are those of a sub-queue.
func (f Frozen) EachRef(a fsm.Address, visit func(fsm.Owner, fsm.Ref)) {
	owner := fsm.Owner{Address: a}
	f.Walk(0, func(n fsm.SequenceNumber, rec *Record, patch fsm.Ref, _ uint32) bool {
		owner.Sequence, owner.Patch = n, false
		if !rec.IsCopy() {
			visit(owner, rec.body)
		}
		if patch != (fsm.Ref{}) {
			owner.Patch = true
			visit(owner, patch)
		}
		return true
	})
}

// Clear forgets all messages at once, without a notice to sessions.
func (ix *Index) Clear() {
	ix.own()
	if ix.patchTotal != nil {
		*ix.patchTotal -= ix.patchBytes
	}
	ix.entries, ix.bytes, ix.held, ix.patches, ix.patchBytes = nil, 0, 0, 0, 0
	clear(ix.counts[:])
}

// MoveRefs calls visit for the locations of the bodies and patches of the messages; the result replaces the
// location. Sizes must not change.
func (ix *Index) MoveRefs(visit func(fsm.Owner, fsm.Ref) fsm.Ref) {
	for pos := range ix.entries {
		live := ix.entries[pos].c.live // a copy: the chunk may be replaced during the loop
		for slot := live.next(0); slot >= 0; slot = live.next(slot + 1) {
			at := Cursor{pos: pos, slot: slot}
			owner := fsm.Owner{Address: ix.address, Sequence: ix.Number(at)}
			if rec := ix.Get(at); !rec.IsCopy() {
				if ref := visit(owner, rec.body); ref != rec.body {
					ix.SetBody(at, ref)
				}
			}
			owner.Patch = true
			if old := ix.Patch(at); old != (fsm.Ref{}) {
				if ref := visit(owner, old); ref != old {
					ix.SetPatch(at, ref)
				}
			}
		}
	}
}

// FindRef finds the message of an owner whose body, or patches, are at a location.
func (ix *Index) FindRef(owner fsm.Owner, ref fsm.Ref) (Cursor, bool) {
	at, found := ix.Seek(owner.Sequence)
	if !found {
		return at, false
	}
	if owner.Patch {
		return at, ix.Patch(at) == ref && ref != fsm.Ref{}
	}
	rec := ix.Get(at)
	return at, rec.body == ref && !rec.IsCopy()
}

// ReleaseCopy counts that a message of a topic has one copy less, and reports whether that was the last one.
func (ix *Index) ReleaseCopy(at Cursor) (last bool) {
	c := ix.write(at.pos)
	rec := &c.records[c.recordIndex(at.slot)]
	rec.epoch--
	return rec.epoch == 0
}

// ClaimCopy counts, while an image is read, a copy of the message with number n of a topic, and reports whether there is such a message
// with a body of this size. Until CheckCopies, deadLetterExpiry holds the number of copies that the message claims to have.
func (ix *Index) ClaimCopy(n fsm.SequenceNumber, size uint64) bool {
	at, found := ix.Seek(n)
	if !found {
		return false
	}
	c := ix.write(at.pos)
	rec := &c.records[c.recordIndex(at.slot)]
	if rec.state != fsm.Shared || rec.Size() != size {
		return false
	}
	if rec.deadLetterExpiry == 0 {
		rec.deadLetterExpiry, rec.epoch = rec.epoch, 0
	}
	rec.epoch++
	return true
}

// CheckCopies reports whether every message of a topic has as many copies as it claimed to have.
func (ix *Index) CheckCopies() bool {
	agree := true
	for pos := range ix.entries {
		c := ix.write(pos)
		for slot := c.live.next(0); slot >= 0; slot = c.live.next(slot + 1) {
			rec := &c.records[c.recordIndex(slot)]
			agree = agree && (rec.state != fsm.Shared || rec.epoch == rec.deadLetterExpiry)
			rec.deadLetterExpiry = 0
		}
	}
	return agree
}
