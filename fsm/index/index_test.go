package index

import (
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
)

// TestRecordTakes48Bytes: 48 bytes a message, so that a full chunk is exactly one size class
// of the allocator and a backlog of a million stays under 64 MB with all overhead.
func TestRecordTakes48Bytes(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(Record{}); got != 48 {
		t.Errorf("a record takes %d bytes, want 48", got)
	}
}

// plain is the model of an index: a map and sorting.
type plain map[fsm.SequenceNumber]Record

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
		var a Arena
		ix := new(Index)
		ix.Init(&a, fsm.Address{}, nil)
		model, patches := plain{}, map[fsm.SequenceNumber]fsm.Ref{}
		next := fsm.SequenceNumber(1)
		var frozen Frozen
		var image []fsm.SequenceNumber
		var imageModel plain
		some := func() (fsm.SequenceNumber, bool) {
			if len(model) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(model.numbers()).Draw(t, "number"), true
		}
		draw := func() Record {
			return Record{
				body:  fsm.Ref{Segment: 1, Offset: uint32(next), Size: rapid.Uint32Range(0, 9).Draw(t, "size")},
				state: fsm.MessageState(rapid.IntRange(1, 5).Draw(t, "state")),
				flags: rapid.SampledFrom([]recordFlags{0, held}).Draw(t, "flags"),
			}
		}
		add := func(n fsm.SequenceNumber) {
			rec := draw()
			ix.Insert(n, rec, NoSession)
			model[n] = rec
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "n") {
					rec := Record{body: fsm.Ref{Offset: uint32(next)}, state: fsm.Ready}
					ix.Insert(next, rec, NoSession)
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
					at, _ := ix.Seek(n)
					rec := draw()
					ix.Set(at, rec)
					model[n] = rec
				}
			},
			"patch": func(t *rapid.T) {
				if n, ok := some(); ok {
					at, _ := ix.Seek(n)
					ref := fsm.Ref{Offset: rapid.Uint32Range(0, 3).Draw(t, "patch")}
					ix.SetPatch(at, ref)
					patches[n] = ref
				}
			},
			"remove": func(t *rapid.T) {
				list := model.numbers()
				step := rapid.IntRange(1, 5).Draw(t, "step")
				from := rapid.IntRange(0, len(list)).Draw(t, "from")
				for i := from; i < min(len(list), from+1500); i += step {
					at, _ := ix.Seek(list[i])
					ix.Remove(at)
					delete(model, list[i])
					delete(patches, list[i])
				}
			},
			"freeze": func(*rapid.T) {
				frozen, image, imageModel = ix.Freeze(), model.numbers(), plain{}
				for n, rec := range model {
					imageModel[n] = rec
				}
				a.Freeze()
			},
			"": func(t *rapid.T) {
				sameAs(t, ix.Freeze(), model.numbers(), model)
				sameAs(t, frozen, image, imageModel)
				checkIndex(t, ix, model, patches)
			},
		})
	})
}

// sameAs compares what a walk sees with the model.
func sameAs(t *rapid.T, messages Frozen, numbers []fsm.SequenceNumber, model plain) {
	i := 0
	messages.Walk(0, func(n fsm.SequenceNumber, rec *Record, _ fsm.Ref, _ uint32) bool {
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
func checkIndex(t *rapid.T, ix *Index, model plain, patches map[fsm.SequenceNumber]fsm.Ref) {
	var counts [fsm.Pending + 1]uint64
	first, size := fsm.SequenceNumber(0), uint64(0)
	firstOf, heldBack := map[bool]fsm.SequenceNumber{}, uint64(0)
	for _, n := range model.numbers() {
		rec := model[n]
		counts[rec.State()]++
		if rec.State() == fsm.Ready && first == 0 {
			first = n
		}
		if rec.State() == fsm.Ready && firstOf[rec.IsHeld()] == 0 {
			firstOf[rec.IsHeld()] = n
		}
		if rec.State() == fsm.Ready && rec.IsHeld() {
			heldBack++
		}
		if rec.State() != fsm.Deleting {
			size += rec.Size()
		}
		at, found := ix.Seek(n)
		if !found || ix.Get(at) != rec || ix.Number(at) != n || ix.Patch(at) != patches[n] {
			t.Fatalf("message %d is not found as it was put", n)
		}
	}
	if counts != ix.counts || size != ix.Bytes() {
		t.Fatalf("counts %v and %d bytes, want %v and %d", ix.counts, ix.Bytes(), counts, size)
	}
	if at, found := ix.FirstReady(); found != (first != 0) || found && ix.Number(at) != first {
		t.Fatalf("first ready is %v %v, want %d", at, found, first)
	}
	if ix.Held() != heldBack {
		t.Fatalf("%d messages are held back, want %d", ix.Held(), heldBack)
	}
	for held, want := range firstOf {
		if at, found := ix.NextHeld(0, held); !found || ix.Number(at) != want {
			t.Fatalf("first ready with held %v is %v %v, want %d", held, at, found, want)
		}
		at, found := ix.NextHeld(want+1, held)
		if !found {
			continue
		}
		if rec := ix.Get(at); ix.Number(at) <= want || rec.IsHeld() != held {
			t.Fatalf("next ready with held %v after %d is %d", held, want, ix.Number(at))
		}
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
	var a Arena
	ix := new(Index)
	ix.Init(&a, fsm.Address{}, nil)
	for n := fsm.SequenceNumber(1024); n < 2048; n++ {
		ix.Insert(n, Record{state: fsm.Ready}, NoSession)
	}
	for n := fsm.SequenceNumber(1024); n < 2047; n++ {
		at, _ := ix.Seek(n)
		ix.Remove(at)
	}
	c := ix.entries[0].c
	if size := unsafe.Sizeof(*c) + uintptr(cap(c.records))*unsafe.Sizeof(Record{}); size > 800 {
		t.Errorf("a chunk with one message takes %d bytes", size)
	}
}
