package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestSettleUnlocked: messages are deleted by number in the given states only, deferred ones become ready in their place,
// locked ones stay, and a repetition changes nothing.
func TestSettleUnlocked(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(*fsm.EntitySettings) {})
	at := fsm.Address{Entity: 1}
	b.send(1, 5, fsm.Message{})                                 // 1 to 5 are ready
	b.send(1, 1, fsm.Message{EnqueueAt: b.env.Now + 1_000_000}) // 6 is scheduled
	locked := b.must(fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100}).Deliveries
	b.must(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{
		{Lock: locked[0].Lock, Verb: fsm.Defer}, {Lock: locked[1].Lock, Verb: fsm.Defer},
	}}) // 1 and 2 are deferred, 3 is locked
	all := []fsm.SequenceNumber{1, 2, 3, 4, 5, 6, 99}
	for _, c := range []struct {
		name   string
		verb   fsm.Verb
		states fsm.StateSet
		which  []fsm.SequenceNumber
		want   uint64
	}{
		{"the second deferred one", fsm.Release, fsm.SetOf(fsm.Deferred), []fsm.SequenceNumber{2, 3, 4}, 1},
		{"again", fsm.Release, fsm.SetOf(fsm.Deferred), []fsm.SequenceNumber{2, 3, 4}, 0},
		{"scheduled", fsm.Complete, fsm.SetOf(fsm.Scheduled), all, 1},
		{"scheduled again", fsm.Complete, fsm.SetOf(fsm.Scheduled), all, 0},
		{"one number twice", fsm.Complete, fsm.SetOf(fsm.Ready), []fsm.SequenceNumber{5, 5}, 1},
	} {
		if got := b.must(fsm.SettleUnlocked{Address: at, Sequences: c.which, Verb: c.verb, States: c.states}).Count; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	got := b.must(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 100}).Deliveries
	if len(got) != 1 || got[0].Lock.Sequence != 2 || got[0].FailedDeliveries != 1 {
		t.Errorf("the first ready message is %+v, want number 2 with one failed delivery", got)
	}
	if got := b.must(fsm.SettleUnlocked{Address: at, Sequences: all, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready, fsm.Deferred, fsm.Scheduled)}).Count; got != 2 {
		t.Errorf("the rest: %d, want 2 (numbers 1 and 4)", got)
	}
	if n := b.q.Messages(); n != 2 {
		t.Errorf("%d messages are left, want the 2 that are locked", n)
	}
}
