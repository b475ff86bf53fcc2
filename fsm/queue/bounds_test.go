package queue

import (
	"testing"
	"unsafe"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
)

// oneTime returns an Env without a serving time as one in which serving time is the time of day.
func oneTime(env fsm.Env) fsm.Env {
	if env.Serving == 0 {
		env.Serving = env.Now
	}
	return env
}

// TestAnswerTakes32Bytes: a million answers take 32 MB.
func TestAnswerTakes32Bytes(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(answers.Record{}); got != 32 {
		t.Errorf("an answer takes %d bytes, want 32", got)
	}
}

// TestStaleTimersAreBounded: locks that end before their time leave no more stale timers
// than there are live ones, and some.
func TestStaleTimersAreBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	settings := fsm.DefaultSettings()
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 100)})
	at := fsm.Address{Entity: 1}
	held := apply(1, fsm.LockMessages{Address: at, Max: 50}).Deliveries
	for i := range 3000 {
		now := fsm.Instant(i + 2)
		d := apply(now, fsm.LockMessages{Address: at, Max: 1}).Deliveries[0]
		apply(now, fsm.RenewLocks{Address: at, Locks: []fsm.LockID{held[i%50].Lock}})
		apply(now, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Release}}})
		sub := q.subqueueAt(at)
		if n := sub.ix.Timers(fsm.ServingTime); n > 2*50+staleTimers+2 {
			t.Fatalf("%d alarms for 50 locks", n)
		}
	}
}

// TestPulseIsBounded: a pulse processes PulseMessagesMax messages, and asks for the next.
func TestPulseIsBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 2500)})
	at := fsm.Address{Entity: 1}
	apply(1, fsm.LockMessages{Address: at, Max: 2500})
	for i, want := range []uint64{1000, 2000, 2500} {
		due, _ := firstDeadline(q)
		if due != 60_001 {
			t.Fatalf("pulse %d is due at %d", i, due)
		}
		apply(60_001, fsm.Pulse{})
		if got := q.Ready(at); got != want {
			t.Errorf("%d messages are back after %d pulses, want %d", got, i+1, want)
		}
	}
	if at, _ := firstDeadline(q); at != 1+fsm.Instant(answers.IncarnationIdleMax) {
		t.Errorf("something is due at %d although nothing is locked", at)
	}
}

// TestIncarnationIsForgottenInSteps: an incarnation with many receivers is forgotten in several
// pulses, and the messages that it received and deleted are deleted.
func TestIncarnationIsForgottenInSteps(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1500)})
	for receiver := range uint64(1500) {
		h := fsm.Header{Incarnation: 3, Receiver: receiver, Serial: 1, Low: 1}
		q.Apply(oneTime(fsm.Env{Now: 1}), fsm.AppendCommand(nil, h, fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, Delete: true}))
	}
	for pulses := 0; q.Messages() > 0; pulses++ {
		before := q.Messages()
		due, ok := firstDeadline(q)
		if !ok || due != 1+fsm.Instant(answers.IncarnationIdleMax) {
			t.Fatalf("due at %d %v", due, ok)
		}
		apply(due, fsm.Pulse{})
		if gone := before - q.Messages(); gone == 0 || gone > fsm.PulseMessagesMax {
			t.Fatalf("one pulse let %d messages go", gone)
		}
	}
	apply(1+fsm.Instant(answers.IncarnationIdleMax), fsm.Pulse{})
	if at, ok := firstDeadline(q); ok {
		t.Errorf("something is still due at %d", at)
	}
}

// TestAnswerTableIsBounded: incarnations and receivers beyond the limits are refused and not remembered.
func TestAnswerTableIsBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	do := func(h fsm.Header) fsm.Code {
		return q.Apply(oneTime(fsm.Env{Now: 1}), fsm.AppendCommand(nil, h, fsm.DropEntity{Entity: 1})).Code
	}
	for i := range uint64(answers.ReceiversPerIncarnationMax) {
		if code := do(fsm.Header{Incarnation: 1, Receiver: i, Serial: 1}); code != fsm.OK {
			t.Fatalf("receiver %d: %v", i, code)
		}
	}
	if code := do(fsm.Header{Incarnation: 1, Receiver: answers.ReceiversPerIncarnationMax, Serial: 1}); code != fsm.ServerBusy {
		t.Errorf("a receiver too many: %v", code)
	}
	for i := range uint64(answers.IncarnationsMax - 1) {
		if code := do(fsm.Header{Incarnation: 2 + i, Serial: 1}); code != fsm.OK {
			t.Fatalf("origin %d: %v", i, code)
		}
	}
	if code := do(fsm.Header{Incarnation: 1 << 60, Serial: 1}); code != fsm.ServerBusy {
		t.Errorf("an origin too many: %v", code)
	}
}

// TestMovedBodyStaysReferenced: compaction moves the body of a message in whatever sub-queue the
// message is.
func TestMovedBodyStaysReferenced(t *testing.T) {
	t.Parallel()
	q := New(&countingBodies{})
	apply := testApply(q)
	at := fsm.Address{Entity: 1}
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	apply(1, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("a")}}})
	d := apply(1, fsm.LockMessages{Address: at, Max: 1}).Deliveries[0]
	apply(1, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.DeadLetter, Reason: "r"}}})
	dead := q.Peek(fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}, 0, 1)[0]
	owner := fsm.Owner{Address: at, Sequence: 1} // as stored when the message was sent
	to := fsm.Ref{Segment: 9, Offset: 9, Size: 1}
	if !q.Holds(owner, dead.Body) || !q.Move(owner, dead.Body, to) || q.Holds(owner, dead.Body) || !q.Holds(owner, to) {
		t.Error("the body of a dead-lettered message does not move")
	}
	if q.Move(owner, dead.Body, to) {
		t.Error("a body that is not referred to moved")
	}
	owner.Patch = true
	if !q.Move(owner, dead.Patch, to) || q.Peek(fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}, 0, 1)[0].Patch != to {
		t.Error("the patches of a message do not move")
	}
	if q.Holds(fsm.Owner{Address: fsm.Address{Entity: 2}, Sequence: 1}, to) || q.Holds(fsm.Owner{Address: at, Sequence: 2}, to) {
		t.Error("bodies of nobody are held")
	}
}

// testApply numbers commands of one incarnation.
func testApply(q *Machine) func(fsm.Instant, fsm.Command) fsm.Result {
	serial := uint64(0)
	return func(now fsm.Instant, c fsm.Command) fsm.Result {
		h := fsm.Header{Incarnation: 1, Serial: serial + 1, Low: serial + 1}
		serial++
		if (c == fsm.Pulse{}) {
			h = fsm.Header{}
		}
		return q.Apply(oneTime(fsm.Env{Index: serial, Now: now}), fsm.AppendCommand(nil, h, c))
	}
}

type noBodies struct{}

func (noBodies) Append(_ fsm.Owner, b []byte) fsm.Ref { return fsm.Ref{Size: uint32(len(b))} }
func (noBodies) Read(fsm.Ref) []byte                  { return nil }
func (noBodies) Release(fsm.Ref)                      {}

type countingBodies struct{ n uint32 }

func (c *countingBodies) Append(_ fsm.Owner, b []byte) fsm.Ref {
	c.n++
	return fsm.Ref{Segment: 1, Offset: c.n, Size: uint32(len(b))}
}
func (*countingBodies) Read(fsm.Ref) []byte { return nil }
func (*countingBodies) Release(fsm.Ref)     {}
