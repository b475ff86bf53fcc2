package fsm

import (
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// oneTime returns an Env without a serving time as one in which serving time is the time of day.
func oneTime(env Env) Env {
	if env.Serving == 0 {
		env.Serving = env.Now
	}
	return env
}

// TestRecordTakes48Bytes: 48 bytes a message, so that a full chunk is exactly one size class
// of the allocator and a backlog of a million stays under 64 MB with all overhead.
func TestRecordTakes48Bytes(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(record{}); got != 48 {
		t.Errorf("a record takes %d bytes, want 48", got)
	}
	if got := unsafe.Sizeof(answerRecord{}); got != 32 {
		t.Errorf("an answer takes %d bytes, want 32", got)
	}
}

// plain is the model of an index: a map and sorting.
type plain map[SequenceNumber]record

func (p plain) numbers() []SequenceNumber {
	var list []SequenceNumber
	for n := range p {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// TestIndexAgreesWithAMap draws insertions at the tail and in the middle, changes and removals over
// some chunks, with images in between that must not change.
func TestIndexAgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a arena
		ix := &index{arena: &a}
		model, patches := plain{}, map[SequenceNumber]Ref{}
		next := SequenceNumber(1)
		var frozen []chunkEntry
		var image []SequenceNumber
		var imageModel plain
		some := func() (SequenceNumber, bool) {
			if len(model) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(model.numbers()).Draw(t, "number"), true
		}
		draw := func() record {
			return record{
				body:  Ref{Segment: 1, Offset: uint32(next), Size: rapid.Uint32Range(0, 9).Draw(t, "size")},
				state: MessageState(rapid.IntRange(1, 5).Draw(t, "state")),
			}
		}
		add := func(n SequenceNumber) {
			rec := draw()
			ix.insert(n, rec, noSession)
			model[n] = rec
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "n") {
					rec := record{body: Ref{Offset: uint32(next)}, state: Ready}
					ix.insert(next, rec, noSession)
					model[next] = rec
					next++
				}
			},
			"skip": func(t *rapid.T) { next += SequenceNumber(rapid.IntRange(1, 3000).Draw(t, "n")) },
			"insert": func(t *rapid.T) {
				n := SequenceNumber(rapid.Uint64Range(1, uint64(next)).Draw(t, "at"))
				if _, ok := model[n]; !ok {
					add(n)
					next = max(next, n+1)
				}
			},
			"set": func(t *rapid.T) {
				if n, ok := some(); ok {
					at, _ := ix.seek(n)
					rec := draw()
					ix.set(at, rec)
					model[n] = rec
				}
			},
			"patch": func(t *rapid.T) {
				if n, ok := some(); ok {
					at, _ := ix.seek(n)
					ref := Ref{Offset: rapid.Uint32Range(0, 3).Draw(t, "patch")}
					ix.setPatch(at, ref)
					patches[n] = ref
				}
			},
			"remove": func(t *rapid.T) {
				list := model.numbers()
				step := rapid.IntRange(1, 5).Draw(t, "step")
				from := rapid.IntRange(0, len(list)).Draw(t, "from")
				for i := from; i < min(len(list), from+1500); i += step {
					at, _ := ix.seek(list[i])
					ix.remove(at)
					delete(model, list[i])
					delete(patches, list[i])
				}
			},
			"freeze": func(*rapid.T) {
				frozen, image, imageModel = ix.entries, model.numbers(), plain{}
				for n, rec := range model {
					imageModel[n] = rec
				}
				a.freeze()
			},
			"": func(t *rapid.T) {
				sameAs(t, ix.entries, model.numbers(), model)
				sameAs(t, frozen, image, imageModel)
				checkIndex(t, ix, model, patches)
			},
		})
	})
}

// sameAs compares what a walk sees with the model.
func sameAs(t *rapid.T, entries []chunkEntry, numbers []SequenceNumber, model plain) {
	i := 0
	walk(entries, 0, func(n SequenceNumber, rec *record, _ Ref, _ uint32) bool {
		if i >= len(numbers) || numbers[i] != n || *rec != model[n] {
			t.Fatalf("message %d at position %d is not as it was", n, i)
		}
		i++
		return true
	})
	if i != len(numbers) {
		t.Fatalf("%d messages, want %d", i, len(numbers))
	}
}

// checkIndex checks what the comments of chunk and index promise.
func checkIndex(t *rapid.T, ix *index, model plain, patches map[SequenceNumber]Ref) {
	var counts [Pending + 1]uint64
	first, size := SequenceNumber(0), uint64(0)
	for _, n := range model.numbers() {
		rec := model[n]
		counts[rec.state]++
		if rec.state == Ready && first == 0 {
			first = n
		}
		if rec.state != Deleting {
			size += uint64(rec.body.Size)
		}
		at, found := ix.seek(n)
		if !found || ix.get(at) != rec || ix.number(at) != n || ix.patch(at) != patches[n] {
			t.Fatalf("message %d is not found as it was put", n)
		}
	}
	if counts != ix.counts || size != ix.bytes {
		t.Fatalf("counts %v and %d bytes, want %v and %d", ix.counts, ix.bytes, counts, size)
	}
	if at, found := ix.firstReady(); found != (first != 0) || found && ix.number(at) != first {
		t.Fatalf("first ready is %v %v, want %d", at, found, first)
	}
	for i, e := range ix.entries {
		c := e.c
		if c.count == 0 || len(c.records) >= 2*c.count+repackMin ||
			i > 0 && ix.entries[i-1].base >= e.base {
			t.Fatalf("chunk %d of %d: %d live, %d kept", i, e.base, c.count, len(c.records))
		}
		for w := range chunkWords {
			if c.ready[w]&^c.live[w] != 0 || c.live[w]&^c.kept[w] != 0 {
				t.Fatalf("chunk %d: ready, live and kept are not nested", i)
			}
		}
	}
}

// TestSparseChunkIsSmall: one survivor of 1024 costs some hundred bytes.
func TestSparseChunkIsSmall(t *testing.T) {
	t.Parallel()
	var a arena
	ix := &index{arena: &a}
	for n := SequenceNumber(1024); n < 2048; n++ {
		ix.insert(n, record{state: Ready}, noSession)
	}
	for n := SequenceNumber(1024); n < 2047; n++ {
		at, _ := ix.seek(n)
		ix.remove(at)
	}
	c := ix.entries[0].c
	if size := unsafe.Sizeof(*c) + uintptr(cap(c.records))*unsafe.Sizeof(record{}); size > 800 {
		t.Errorf("a chunk with one message takes %d bytes", size)
	}
}

// TestStaleTimersAreBounded: locks that end before their time leave no more stale timers
// than there are live ones, and some.
func TestStaleTimersAreBounded(t *testing.T) {
	t.Parallel()
	q := NewQueues(noBodies{})
	settings := DefaultSettings()
	apply := testApply(q)
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: settings})
	apply(1, SendMessages{Entity: 1, Messages: make([]Message, 100)})
	at := Address{Entity: 1}
	held := apply(1, LockMessages{Address: at, Max: 50}).Deliveries
	for i := range 3000 {
		now := Instant(i + 2)
		d := apply(now, LockMessages{Address: at, Max: 1}).Deliveries[0]
		apply(now, RenewLocks{Address: at, Locks: []LockID{held[i%50].Lock}})
		apply(now, SettleMessages{Address: at, Settlements: []Settlement{{Lock: d.Lock, Verb: Release}}})
		sub := q.subqueueAt(at)
		if n := len(sub.timers[servingTime].heap); n > 2*50+staleSlack+2 {
			t.Fatalf("%d alarms for 50 locks", n)
		}
	}
}

// TestPulseIsBounded: a pulse processes pulseMessagesMax messages, and asks for the next.
func TestPulseIsBounded(t *testing.T) {
	t.Parallel()
	q := NewQueues(noBodies{})
	apply := testApply(q)
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: DefaultSettings()})
	apply(1, SendMessages{Entity: 1, Messages: make([]Message, 2500)})
	at := Address{Entity: 1}
	apply(1, LockMessages{Address: at, Max: 2500})
	for i, want := range []uint64{1000, 2000, 2500} {
		due, _ := FirstDeadline(q)
		if due != 60_001 {
			t.Fatalf("pulse %d is due at %d", i, due)
		}
		apply(60_001, Pulse{})
		if got := q.Ready(at); got != want {
			t.Errorf("%d messages are back after %d pulses, want %d", got, i+1, want)
		}
	}
	if at, _ := FirstDeadline(q); at != 1+Instant(incarnationIdleMax) {
		t.Errorf("something is due at %d although nothing is locked", at)
	}
}

// TestIncarnationIsForgottenInSteps: an incarnation with many receivers is forgotten in several
// pulses, and the messages that it received and deleted are deleted.
func TestIncarnationIsForgottenInSteps(t *testing.T) {
	t.Parallel()
	q := NewQueues(noBodies{})
	apply := testApply(q)
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: DefaultSettings()})
	apply(1, SendMessages{Entity: 1, Messages: make([]Message, 1500)})
	for receiver := range uint64(1500) {
		h := Header{Incarnation: 3, Receiver: receiver, Serial: 1, Low: 1}
		q.Apply(oneTime(Env{Now: 1}), AppendCommand(nil, h, LockMessages{Address: Address{Entity: 1}, Max: 1, Delete: true}))
	}
	for pulses := 0; q.Messages() > 0; pulses++ {
		before := q.Messages()
		due, ok := FirstDeadline(q)
		if !ok || due != 1+Instant(incarnationIdleMax) {
			t.Fatalf("due at %d %v", due, ok)
		}
		apply(due, Pulse{})
		if gone := before - q.Messages(); gone == 0 || gone > pulseMessagesMax {
			t.Fatalf("one pulse let %d messages go", gone)
		}
	}
	apply(1+Instant(incarnationIdleMax), Pulse{})
	if at, ok := FirstDeadline(q); ok {
		t.Errorf("something is still due at %d", at)
	}
}

// TestAnswerTableIsBounded: incarnations and receivers beyond the limits are refused and not remembered.
func TestAnswerTableIsBounded(t *testing.T) {
	t.Parallel()
	q := NewQueues(noBodies{})
	do := func(h Header) Code {
		return q.Apply(oneTime(Env{Now: 1}), AppendCommand(nil, h, DropEntity{Entity: 1})).Code
	}
	for i := range uint64(receiversPerIncarnationMax) {
		if code := do(Header{Incarnation: 1, Receiver: i, Serial: 1}); code != OK {
			t.Fatalf("receiver %d: %v", i, code)
		}
	}
	if code := do(Header{Incarnation: 1, Receiver: receiversPerIncarnationMax, Serial: 1}); code != ServerBusy {
		t.Errorf("a receiver too many: %v", code)
	}
	for i := range uint64(incarnationsMax - 1) {
		if code := do(Header{Incarnation: 2 + i, Serial: 1}); code != OK {
			t.Fatalf("origin %d: %v", i, code)
		}
	}
	if code := do(Header{Incarnation: 1 << 60, Serial: 1}); code != ServerBusy {
		t.Errorf("an origin too many: %v", code)
	}
}

// TestMovedBodyStaysReferenced: compaction moves the body of a message in whatever sub-queue the
// message is.
func TestMovedBodyStaysReferenced(t *testing.T) {
	t.Parallel()
	q := NewQueues(&countingBodies{})
	apply := testApply(q)
	at := Address{Entity: 1}
	apply(1, PutEntity{Entity: 1, Version: 1, Settings: DefaultSettings()})
	apply(1, SendMessages{Entity: 1, Messages: []Message{{Payload: []byte("a")}}})
	d := apply(1, LockMessages{Address: at, Max: 1}).Deliveries[0]
	apply(1, SettleMessages{Address: at, Settlements: []Settlement{{Lock: d.Lock, Verb: DeadLetter, Reason: "r"}}})
	dead := q.Peek(Address{Entity: 1, Sub: DeadLetterQueue}, 0, 1)[0]
	owner := Owner{Address: at, Sequence: 1} // as stored when the message was sent
	to := Ref{Segment: 9, Offset: 9, Size: 1}
	if !q.Holds(owner, dead.Body) || !q.Move(owner, dead.Body, to) || q.Holds(owner, dead.Body) || !q.Holds(owner, to) {
		t.Error("the body of a dead-lettered message does not move")
	}
	if q.Move(owner, dead.Body, to) {
		t.Error("a body that is not referred to moved")
	}
	owner.Patch = true
	if !q.Move(owner, dead.Patch, to) || q.Peek(Address{Entity: 1, Sub: DeadLetterQueue}, 0, 1)[0].Patch != to {
		t.Error("the patches of a message do not move")
	}
	if q.Holds(Owner{Address: Address{Entity: 2}, Sequence: 1}, to) || q.Holds(Owner{Address: at, Sequence: 2}, to) {
		t.Error("bodies of nobody are held")
	}
}

// testApply numbers commands of one incarnation.
func testApply(q *Queues) func(Instant, Command) Result {
	serial := uint64(0)
	return func(now Instant, c Command) Result {
		h := Header{Incarnation: 1, Serial: serial + 1, Low: serial + 1}
		serial++
		if (c == Pulse{}) {
			h = Header{}
		}
		return q.Apply(oneTime(Env{Index: serial, Now: now}), AppendCommand(nil, h, c))
	}
}

type noBodies struct{}

func (noBodies) Append(_ Owner, b []byte) Ref { return Ref{Size: uint32(len(b))} }
func (noBodies) Read(Ref) []byte              { return nil }
func (noBodies) Release(Ref)                  {}

type countingBodies struct{ n uint32 }

func (c *countingBodies) Append(_ Owner, b []byte) Ref {
	c.n++
	return Ref{Segment: 1, Offset: c.n, Size: uint32(len(b))}
}
func (*countingBodies) Read(Ref) []byte { return nil }
func (*countingBodies) Release(Ref)     {}
