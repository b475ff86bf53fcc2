package queue

import (
	"bytes"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// ownedBodies keeps bodies with their owners.
type ownedBodies struct {
	next   uint32
	owners map[fsm.Ref]fsm.Owner
	bytes  map[fsm.Ref][]byte
}

func (b *ownedBodies) Append(owner fsm.Owner, body []byte) fsm.Ref {
	b.next++
	ref := fsm.Ref{Segment: 1, Offset: b.next, Size: uint32(len(body))}
	b.owners[ref], b.bytes[ref] = owner, bytes.Clone(body)
	return ref
}
func (b *ownedBodies) Read(ref fsm.Ref) []byte { return b.bytes[ref] }
func (b *ownedBodies) Release(ref fsm.Ref)     { delete(b.owners, ref) }

// TestMoveToATakenNumber: a message that moves to a sub-queue where a message has its number takes the next one, with
// bodies that are found again by their owners; neither message is lost.
func TestMoveToATakenNumber(t *testing.T) {
	t.Parallel()
	bodies := &ownedBodies{owners: make(map[fsm.Ref]fsm.Owner), bytes: make(map[fsm.Ref][]byte)}
	q := New(bodies)
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	at := fsm.Address{Entity: 1}
	deadLetter := func() {
		t.Helper()
		got := apply(1, fsm.LockMessages{Address: at, Max: 1, MaxBytes: 1000}).Deliveries
		settlements := fsm.SettleAll(got, fsm.DeadLetter)
		settlements[0].Reason, settlements[0].Properties = "poison", []byte{0xa1, 1, 'k', 0x41}
		if codes := apply(1, fsm.SettleMessages{Address: at, Settlements: settlements}).Codes; codes[0] != fsm.OK {
			t.Fatalf("dead-letter: %v", codes)
		}
	}
	apply(1, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("first")}}})
	deadLetter()
	x := q.byID[1]
	main := &x.subs[fsm.MainQueue]
	owner := fsm.Owner{Address: main.address, Sequence: 1}
	main.ix.Insert(1, index.Enqueued(bodies.Append(owner, []byte("second")), 0, 0), index.NoSession) // as if
	if n := apply(1, fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{1}}).Count; n != 1 {
		t.Fatalf("%d messages are redriven, want 1", n)
	}
	check := func(when string, sub fsm.SubQueue, want map[fsm.SequenceNumber]string) {
		t.Helper()
		found := 0
		q.Image().Refs(func(owner fsm.Owner, ref fsm.Ref) {
			if !q.Holds(bodies.owners[ref], ref) {
				t.Errorf("%s: the body of %+v is not held for its owner %+v", when, owner, bodies.owners[ref])
			}
			if !owner.Patch && owner.Sub == sub {
				found++
				if got := string(bodies.bytes[ref]); got != want[owner.Sequence] {
					t.Errorf("%s: message %d has body %q, want %q", when, owner.Sequence, got, want[owner.Sequence])
				}
			}
		})
		if found != len(want) {
			t.Errorf("%s: sub-queue %d has %d messages, want %d", when, sub, found, len(want))
		}
	}
	check("redriven", fsm.MainQueue, map[fsm.SequenceNumber]string{1: "second", 2: "first"})
	deadLetter()
	main.ix.Insert(1, index.Enqueued(bodies.Append(owner, []byte("third")), 0, 0), index.NoSession) // as if
	deadLetter()
	check("dead-lettered", fsm.DeadLetterQueue, map[fsm.SequenceNumber]string{1: "second", 3: "third"})
	check("dead-lettered", fsm.MainQueue, map[fsm.SequenceNumber]string{2: "first"})
	if n := len(bodies.owners); n != 3+3 {
		t.Errorf("%d bodies are stored, want those of 3 messages and 3 patches", n)
	}
}
