package partition

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// A lock without time to wait gets the ready messages, and ends at once when there are none: a draining link
// asks so.
func TestLockWithoutWaitGetsReadyMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a, r := &asker{origin: 7}, &asker{origin: 7, receiver: 1}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		for range 3 { // the first request of a receiver id takes another path than later ones
			if got := lock(t, g, r.next(), lockOf(1, 10), 0); got.Outcome != Done || len(got.Result.Deliveries) != 0 {
				t.Fatalf("lock of an empty queue: %+v", got)
			}
			must(t, g, a.next(), send(1, body(1), body(2)))
			if got := lock(t, g, r.next(), lockOf(1, 10), -time.Second); len(got.Result.Deliveries) != 2 {
				t.Fatalf("lock without time: %+v", got)
			}
		}
	})
}
