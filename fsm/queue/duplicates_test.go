package queue

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
	"github.com/peeklock/peeklock/test/kit"
)

// crowded makes keys that fight for few places of few tables.
func crowded(n int) idKey {
	return idKey{byte(n % 3), byte(n / 3 % 5), 9: byte(n % 7), 10: byte(n), 11: byte(n >> 8)}
}

// TestDuplicateWindowAgreesWithAMap draws sends, spans of time, changes of the window and sweeps, and compares
// with a map; images in between do not change. It begins just below a multiple of 2^24, where the
// positions in slots of the index wrap around.
func TestDuplicateWindowAgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := uint64(3<<slotBits - windowPage*rapid.IntRange(1, 4).Draw(t, "pages"))
		w := &duplicateWindow{head: start, tail: start}
		model := map[idKey]fsm.Instant{}
		now, span, current := fsm.Instant(1_000_000), fsm.Millis(20_000), image.Generation(0)
		var frozen *frozenDuplicateWindow
		var image []byte
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					key := crowded(rapid.IntRange(0, 2000).Draw(t, "key"))
					at, known := model[key]
					want := known && at.After(span) > now
					if got := w.contains(&key, now, span); got != want {
						t.Fatalf("knows %v: %v, want %v", key, got, want)
					}
					if !want {
						w.remember(&key, now)
						model[key] = now
					}
				}
			},
			"pass": func(t *rapid.T) { now += fsm.Instant(rapid.SampledFrom([]int{0, 1, 3000, 20_000}).Draw(t, "ms")) },
			"span": func(t *rapid.T) {
				w.raiseFloor(now, span)
				for key, at := range model {
					if at.After(span) <= now {
						delete(model, key)
					}
				}
				span = fsm.Millis(rapid.SampledFrom([]int{20_000, 25_000, 100_000}).Draw(t, "span"))
			},
			"sweep": func(t *rapid.T) {
				most := rapid.IntRange(0, 700).Draw(t, "most")
				if taken := w.sweep(now, span, most, current); taken > most {
					t.Fatalf("%d taken, %d allowed", taken, most)
				}
			},
			"freeze": func(*rapid.T) {
				frozen = &frozenDuplicateWindow{pages: w.pages, head: w.head, tail: w.tail, floor: w.floor}
				current++
				image = written(frozen)
			},
			"": func(t *rapid.T) {
				if frozen != nil && !bytes.Equal(image, written(frozen)) {
					t.Fatal("an image changed")
				}
				checkWindow(t, w, now, span)
			},
		})
	})
}

func written(x *frozenDuplicateWindow) []byte {
	var b bytes.Buffer
	w := imageWriter{image.NewWriter(&b, fsm.MachineQueues, true)}
	w.window(x)
	_, _ = w.Finish()
	return b.Bytes()
}

// checkWindow: the index names the newest entry of every key and nothing else, pages are
// those that are used, and a table is neither full nor much too large.
func checkWindow(t *rapid.T, w *duplicateWindow, now fsm.Instant, span fsm.Millis) {
	newest := map[idKey]uint64{}
	for pos := w.head; pos < w.tail; pos++ {
		newest[w.at(pos).key] = pos
	}
	count := 0
	for i := range w.index {
		s := &w.index[i]
		count += s.count
		used := 0
		for _, slot := range s.slots {
			if slot != 0 {
				used++
			}
		}
		if used != s.count || s.count*4 > len(s.slots)*3 || len(s.slots) > tableSlotsMin && s.count*8 < len(s.slots) {
			t.Fatalf("table %d: %d slots, %d used, count %d", i, len(s.slots), used, s.count)
		}
	}
	if count != len(newest) {
		t.Fatalf("%d keys in the index, %d remembered", count, len(newest))
	}
	for key, pos := range newest {
		s := &w.index[key.table()]
		if i, found := w.find(s, &key); !found || w.position(s.slots[i]) != pos {
			t.Fatalf("key at %d is not found", pos)
		}
	}
	pages := uint64(0)
	if w.tail > w.head {
		pages = (w.tail-1)/windowPage - w.head/windowPage + 1
	}
	if uint64(len(w.pages)) != pages {
		t.Fatalf("%d pages for positions %d to %d", len(w.pages), w.head, w.tail)
	}
}

// TestRememberedIDTakesAtMost64Bytes: a remembered id costs at most 64 bytes in all, however many there
// are; what was forgotten costs nothing.
func TestRememberedIDTakesAtMost64Bytes(t *testing.T) { // not parallel: it measures the heap
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	w := &duplicateWindow{}
	const span = fsm.Millis(20_000)
	worst := 0.0
	for i := range 1_000_000 {
		key := keyOf(fmt.Appendf(nil, "message-%d", i))
		w.remember(&key, fsm.Instant(i/1000))
		if n := i + 1; n >= 100_000 && n%50_000 == 0 {
			worst = max(worst, float64(heap()-before)/float64(n))
		}
	}
	t.Logf("at most %.1f bytes an id, %.1f at a million", worst, float64(heap()-before)/1e6)
	if worst > 64 {
		t.Errorf("an id takes %.1f bytes, more than 64", worst)
	}
	// A steady window: as many go as come.
	for i := range 1_000_000 {
		key := keyOf(fmt.Appendf(nil, "later-%d", i))
		w.remember(&key, fsm.Instant(100_000+i/1000))
		w.sweep(fsm.Instant(50_000), span, sweepPerSend, 0)
	}
	if steady := float64(heap()-before) / 1e6; steady > 64 {
		t.Errorf("an id of a steady window takes %.1f bytes", steady)
	}
	for w.sweep(1_000_000, span, sweepPerPulse, 0) > 0 {
	}
	if left := int64(heap()) - int64(before); left > 64<<10 {
		t.Errorf("an empty window takes %d bytes", left)
	}
	runtime.KeepAlive(w)
}

// TestWindowImageIsImmutable: ids that are forgotten after an image are still in it.
func TestWindowImageIsImmutable(t *testing.T) {
	t.Parallel()
	w := &duplicateWindow{}
	for i := range 2000 {
		key := crowded(i)
		w.remember(&key, fsm.Instant(i))
	}
	img := &frozenDuplicateWindow{pages: w.pages, head: w.head, tail: w.tail}
	before := written(img)
	if taken := w.sweep(21_000, 20_000, 5000, 1); taken != 1001 {
		t.Errorf("%d ids were taken out, want 1001", taken)
	}
	if !bytes.Equal(before, written(img)) {
		t.Error("the image changed")
	}
}

// TestRememberedIDsAreBounded: a queue that remembers the maximum of ids accepts no more until some are
// forgotten.
func TestRememberedIDsAreBounded(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(duplicateID{}); got != 24 {
		t.Errorf("an id takes %d bytes of its page, want 24", got)
	}
	q := New(noBodies{})
	apply := testApply(q)
	settings := fsm.DefaultSettings()
	settings.RequiresDuplicateDetection = true
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	w := q.byID[1].window
	w.tail = w.head + windowIDsMax - 1 // as if
	two := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{ID: "a"}, {ID: "b"}}}
	if res := apply(1, two); res.Code != fsm.QuotaExceeded {
		t.Errorf("%v", res.Code)
	}
	w.tail = w.head
	if res := apply(1, two); res.Code != fsm.OK || res.Sequence != 1 {
		t.Errorf("%+v", res)
	}
}

// TestSweepIsBounded: a pulse forgets a bounded number of ids, and leaves time between
// two steps.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	settings := fsm.DefaultSettings()
	settings.RequiresDuplicateDetection, settings.DuplicateWindow = true, fsm.DuplicateWindowMin
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	const ids = 2*sweepPerPulse + 5
	for i := range ids {
		apply(1, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{ID: fmt.Sprint(i)}}})
	}
	w := q.byID[1].window
	at := fsm.Instant(1).After(fsm.DuplicateWindowMin + sweepDelay)
	for _, left := range []uint64{sweepPerPulse + 5, 5, 0} {
		if due, _ := firstDeadline(q); due != at {
			t.Fatalf("due at %d, want %d", due, at)
		}
		apply(at, fsm.Pulse{})
		if w.tail-w.head != left {
			t.Fatalf("%d ids are left, want %d", w.tail-w.head, left)
		}
		var image bytes.Buffer
		kit.Must(q.Image().WriteTo(&image))(t)
		other := New(noBodies{})
		kit.OK(t, other.Restore(&image))
		want, _ := firstDeadline(q)
		if due, _ := firstDeadline(other); due != want {
			t.Fatalf("restored, the next step is due at %d, want %d", due, want)
		}
		at = at.After(sweepDelay)
	}
}

func firstDeadline(m *Machine) (fsm.Instant, bool) {
	due := m.NextDeadline()
	at := fsm.Earlier(due.Wall, due.Serving)
	return at, at != 0
}
