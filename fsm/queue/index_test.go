package queue

import (
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

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

// TestRecordTakes48Bytes: 48 bytes a message, so that a full chunk is exactly one size class
// of the allocator and a backlog of a million stays under 64 MB with all overhead.
func TestRecordTakes48Bytes(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(record{}); got != 48 {
		t.Errorf("a record takes %d bytes, want 48", got)
	}
	if got := unsafe.Sizeof(answers.Record{}); got != 32 {
		t.Errorf("an answer takes %d bytes, want 32", got)
	}
}

// plain is the model of an index: a map and sorting.
type plain map[fsm.SequenceNumber]record

func (p plain) numbers() []fsm.SequenceNumber {
	var list []fsm.SequenceNumber
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
		model, patches := plain{}, map[fsm.SequenceNumber]fsm.Ref{}
		next := fsm.SequenceNumber(1)
		var frozen []chunkEntry
		var image []fsm.SequenceNumber
		var imageModel plain
		some := func() (fsm.SequenceNumber, bool) {
			if len(model) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(model.numbers()).Draw(t, "number"), true
		}
		draw := func() record {
			return record{
				body:  fsm.Ref{Segment: 1, Offset: uint32(next), Size: rapid.Uint32Range(0, 9).Draw(t, "size")},
				state: fsm.MessageState(rapid.IntRange(1, 5).Draw(t, "state")),
			}
		}
		add := func(n fsm.SequenceNumber) {
			rec := draw()
			ix.insert(n, rec, noSession)
			model[n] = rec
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "n") {
					rec := record{body: fsm.Ref{Offset: uint32(next)}, state: fsm.Ready}
					ix.insert(next, rec, noSession)
					model[next] = rec
					next++
				}
			},
			"skip": func(t *rapid.T) { next += fsm.SequenceNumber(rapid.IntRange(1, 3000).Draw(t, "n")) },
			"insert": func(t *rapid.T) {
				n := fsm.SequenceNumber(rapid.Uint64Range(1, uint64(next)).Draw(t, "at"))
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
					ref := fsm.Ref{Offset: rapid.Uint32Range(0, 3).Draw(t, "patch")}
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
func sameAs(t *rapid.T, entries []chunkEntry, numbers []fsm.SequenceNumber, model plain) {
	i := 0
	walk(entries, 0, func(n fsm.SequenceNumber, rec *record, _ fsm.Ref, _ uint32) bool {
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
func checkIndex(t *rapid.T, ix *index, model plain, patches map[fsm.SequenceNumber]fsm.Ref) {
	var counts [fsm.Pending + 1]uint64
	first, size := fsm.SequenceNumber(0), uint64(0)
	for _, n := range model.numbers() {
		rec := model[n]
		counts[rec.state]++
		if rec.state == fsm.Ready && first == 0 {
			first = n
		}
		if rec.state != fsm.Deleting {
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
	for n := fsm.SequenceNumber(1024); n < 2048; n++ {
		ix.insert(n, record{state: fsm.Ready}, noSession)
	}
	for n := fsm.SequenceNumber(1024); n < 2047; n++ {
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
		if n := len(sub.timers[fsm.ServingTime].heap); n > 2*50+staleSlack+2 {
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
