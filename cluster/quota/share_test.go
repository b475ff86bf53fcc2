package quota

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestSharesLeaveAsMuchAsTheyTake: namespaces that take all that they may stop where as much is free for the next one. Little
// holders are never the first to be refused, and all together exceed the capacity by a quarter at most.
func TestSharesLeaveAsMuchAsTheyTake(t *testing.T) {
	t.Parallel()
	const total = 1200
	none := func(fsm.NamespaceID) bool { return false }
	for n := 1; n <= 5; n++ {
		held := make(map[fsm.NamespaceID]uint64)
		refused := make(map[fsm.NamespaceID]bool)
		for range total { // each takes one more, until it is refused
			used := sumOf(held)
			c := capacity{total: total, free: total - min(total, used)}
			for id := range n {
				held[fsm.NamespaceID(id+2)] += 0 // it exists
			}
			for _, e := range c.exceeding(Memory, false, held, none) {
				refused[e.Namespace] = true
			}
			for id := range held {
				if !refused[id] {
					held[id]++
				}
			}
		}
		for id, got := range held {
			if want := uint64(total / (n + 1)); got < want-10 || got > want+10 {
				t.Errorf("%d namespaces: %d holds %d, want about %d", n, id, got, want)
			}
		}
	}
}

func TestSharesRefuseTheLargestFirst(t *testing.T) {
	t.Parallel()
	none := func(fsm.NamespaceID) bool { return false }
	for _, c := range []struct {
		name  string
		of    capacity
		alone bool
		held  map[fsm.NamespaceID]uint64
		was   func(fsm.NamespaceID) bool
		want  []fsm.NamespaceID
	}{
		{"nobody", capacity{1000, 500}, false, map[fsm.NamespaceID]uint64{1: 300, 2: 200}, none, nil},
		{"the largest", capacity{1000, 300}, false, map[fsm.NamespaceID]uint64{1: 600, 2: 100}, none, []fsm.NamespaceID{1}},
		{"not who holds little, though nothing is free", capacity{1000, 0}, false, map[fsm.NamespaceID]uint64{1: 900, 2: 80, 3: 200}, none, []fsm.NamespaceID{1, 3}},
		{"the default namespace alone", capacity{1000, 101}, true, map[fsm.NamespaceID]uint64{1: 899}, none, nil},
		{"the default namespace with more than 90 %", capacity{1000, 99}, true, map[fsm.NamespaceID]uint64{1: 901}, none, []fsm.NamespaceID{1}},
		{"until it holds less", capacity{1000, 500}, false, map[fsm.NamespaceID]uint64{1: 460}, func(fsm.NamespaceID) bool { return true }, []fsm.NamespaceID{1}},
		{"again", capacity{1000, 500}, false, map[fsm.NamespaceID]uint64{1: 440}, func(fsm.NamespaceID) bool { return true }, nil},
	} {
		got := c.of.exceeding(Memory, c.alone, c.held, c.was)
		ids := make([]fsm.NamespaceID, len(got))
		for i := range got {
			ids[i] = got[i].Namespace
		}
		if len(ids) != len(c.want) {
			t.Errorf("%s: refused are %v, want %v", c.name, ids, c.want)
			continue
		}
		for i := range ids {
			if ids[i] != c.want[i] {
				t.Errorf("%s: refused are %v, want %v", c.name, ids, c.want)
			}
		}
	}
}

// TestSumsAreMadeMoreOftenBeforeAShareIsExceeded: a namespace that grows so fast that it would exceed its share before all leaders
// refuse it is looked at more often; one that grows slowly, or is refused already, is not.
func TestSumsAreMadeMoreOftenBeforeAShareIsExceeded(t *testing.T) {
	t.Parallel()
	const share = 1000
	start := time.Now()
	held := func(bytes uint64, at time.Duration) *state {
		return &state{summed: start.Add(at), disk: holdings{held: map[fsm.NamespaceID]uint64{2: bytes}, share: share}}
	}
	for _, c := range []struct {
		name         string
		before, next *state
		want         time.Duration
	}{
		{"slowly", held(500, 0), held(600, interval), interval},
		{"fast", held(500, 0), held(700, interval), soonInterval},
		{"as fast, looked at more often", held(680, 0), held(700, soonInterval), soonInterval},
		{"slowly, looked at more often", held(690, 0), held(700, soonInterval), interval},
		{"not at all", held(999, 0), held(999, interval), interval},
		{"less", held(1000, 0), held(900, interval), interval},
		{"exceeded", held(900, 0), held(1100, interval), interval},
		{"the first sums", &state{}, held(900, interval), interval},
	} {
		if got := pauseAfter(c.before, c.next); got != c.want {
			t.Errorf("%s: the next sums after %v, want %v", c.name, got, c.want)
		}
	}
}
