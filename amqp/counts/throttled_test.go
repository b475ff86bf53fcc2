package counts

import (
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestThrottledEntitiesAreBounded fills the counts: further entities are counted together, until they can take the places of those that were
// still for an hour.
func TestThrottledEntitiesAreBounded(t *testing.T) {
	t.Parallel()
	var counts Throttles
	now := time.Unix(1_000_000, 0)
	add := func(i int) { counts.Add(&fsm.Entity{Namespace: 1, Name: fmt.Sprint("q", i)}, 1, now) }
	for i := range throttledMax + 2 {
		add(i)
	}
	others := func() (n uint64) {
		for _, e := range counts.List() {
			if e.Name == "" {
				n += e.Requests
			}
		}
		return n
	}
	if n := len(counts.List()); n != throttledMax+1 || others() != 2 {
		t.Errorf("got %d entities and %d requests of others, want %d and 2", n, others(), throttledMax+1)
	}
	now = now.Add(throttledKept)
	add(0) // is not still
	add(throttledMax)
	if n := len(counts.List()); n != 3 || others() != 2 {
		t.Errorf("got %d entities and %d requests of others, want two entities and the others", n, others())
	}
}
