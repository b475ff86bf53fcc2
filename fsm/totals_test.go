package fsm_test

import (
	"math"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/fsm/totals"
)

// failer is a test, of this package or of rapid.
type failer interface {
	Fatalf(format string, args ...any)
}

// checkStored checks that every queue and subscription stores as many messages as its totals say: every message that came and
// did not leave.
func checkStored(t failer, q *queue.Machine) {
	q.EachUsage(0, math.MaxInt, func(id fsm.EntityID, stored fsm.Usage) {
		if q.CheckLocks(fsm.Address{Entity: id}, make([]fsm.LockID, 1))[0] == fsm.NotAllowed {
			return // a topic, which keeps no messages
		}
		if all, found := q.Totals(id); !found || all.Stored() != stored.Messages {
			t.Fatalf("entity %d stores %d messages, want %d by its totals %+v", id, stored.Messages, all.Stored(), all)
		}
	})
}

// Duplicates and messages that expire and are redriven are counted once each.
func TestTotals(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection, s.DeadLetterOnExpiry = true, true })
	b.send(1, 3, fsm.Message{ID: "same", Payload: []byte("x")})
	b.send(1, 2, fsm.Message{Payload: []byte("x"), TimeToLive: 1000})
	b.env.Now += 2000
	b.must(fsm.Pulse{})
	b.must(fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{2, 3}})
	want := totals.Totals{Incoming: 3, Duplicates: 2, Redriven: 2}
	want.DeadLettered[totals.TimeToLive] = 2
	if got, _ := b.q.Totals(1); got != want || got.AllDeadLettered() != 2 {
		t.Errorf("totals are %+v, want %+v", got, want)
	}
	if got, found := b.q.Totals(2); found || got != (totals.Totals{}) {
		t.Errorf("totals of an unknown entity: %+v, %v", got, found)
	}
	checkStored(t, b.q)
}
