package fsm

import (
	"bytes"
	"testing"
)

// ownedBodies keeps bodies with their owners.
type ownedBodies struct {
	next   uint32
	owners map[Ref]Owner
	bytes  map[Ref][]byte
}

func (b *ownedBodies) Append(owner Owner, body []byte) Ref {
	b.next++
	ref := Ref{Segment: 1, Offset: b.next, Size: uint32(len(body))}
	b.owners[ref], b.bytes[ref] = owner, bytes.Clone(body)
	return ref
}
func (b *ownedBodies) Read(ref Ref) []byte { return b.bytes[ref] }
func (b *ownedBodies) Release(ref Ref)     { delete(b.owners, ref) }

// TestMoveToATakenNumber: a message that moves to a sub-queue where a message has its number takes the next one, with
// bodies that are found again by their owners; neither message is lost.
func TestMoveToATakenNumber(t *testing.T) {
	t.Parallel()
	bodies := &ownedBodies{owners: make(map[Ref]Owner), bytes: make(map[Ref][]byte)}
	q := NewQueues(bodies)
	apply := testApply(q)
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: DefaultSettings()})
	at := Address{Entity: 1}
	deadLetter := func() {
		t.Helper()
		got := apply(1, LockMessages{Address: at, Max: 1, MaxBytes: 1000}).Deliveries
		settlements := SettleAll(got, DeadLetter)
		settlements[0].Reason, settlements[0].Properties = "poison", []byte{0xa1, 1, 'k', 0x41}
		if codes := apply(1, SettleMessages{Address: at, Settlements: settlements}).Codes; codes[0] != OK {
			t.Fatalf("dead-letter: %v", codes)
		}
	}
	apply(1, SendMessages{Entity: 1, Messages: []Message{{Payload: []byte("first")}}})
	deadLetter()
	x := q.byID[1]
	main := &x.subs[MainQueue]
	owner := Owner{Address: main.address, Sequence: 1}
	q.insert(main, 1, record{state: Ready, body: bodies.Append(owner, []byte("second"))}) // as if
	if n := apply(1, RedriveMessages{Entity: 1, Sequences: []SequenceNumber{1}}).Count; n != 1 {
		t.Fatalf("%d messages are redriven, want 1", n)
	}
	check := func(when string, sub SubQueue, want map[SequenceNumber]string) {
		t.Helper()
		found := 0
		q.Image().Refs(func(owner Owner, ref Ref) {
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
	check("redriven", MainQueue, map[SequenceNumber]string{1: "second", 2: "first"})
	deadLetter()
	q.insert(main, 1, record{state: Ready, body: bodies.Append(owner, []byte("third"))}) // as if
	deadLetter()
	check("dead-lettered", DeadLetterQueue, map[SequenceNumber]string{1: "second", 3: "third"})
	check("dead-lettered", MainQueue, map[SequenceNumber]string{2: "first"})
	if n := len(bodies.owners); n != 3+3 {
		t.Errorf("%d bodies are stored, want those of 3 messages and 3 patches", n)
	}
}
