package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// Every delivery of a deferred message counts, a defer that reaches the maximum dead-letters, and nothing raises the
// count of a dead letter.
func TestDeferralsCountAsDeliveries(t *testing.T) {
	t.Parallel()
	deferred := []uint32{0, 1, 2} // the counts at the deliveries of a message that is deferred each time
	const deadCount = 3           // of a dead letter that was abandoned once more
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.MaxDeliveryCount = 3 })
	b.send(1, 1, fsm.Message{})
	main, dead := fsm.Address{Entity: 1}, fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}
	settle := func(at fsm.Address, d fsm.Delivery, verb fsm.Verb) {
		t.Helper()
		if codes := b.must(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: verb}}}).Codes; codes[0] != fsm.OK {
			t.Fatalf("settlement: %v", codes[0])
		}
	}
	d := b.must(fsm.LockMessages{Address: main, Max: 1, MaxBytes: 1000}).Deliveries[0]
	for i, want := range deferred {
		if d.FailedDeliveries != want {
			t.Errorf("delivery %d has the count %d, want %d", i+1, d.FailedDeliveries, want)
		}
		settle(main, d, fsm.Defer)
		if i+1 < len(deferred) {
			d = b.must(fsm.FetchDeferred{Address: main, Sequences: []fsm.SequenceNumber{d.Lock.Sequence}}).Deliveries[0]
		}
	}
	if counts := b.counts(1); counts.DeadLetter != 1 {
		t.Fatalf("counts %+v, want one dead letter", counts)
	}
	settle(dead, b.must(fsm.LockMessages{Address: dead, Max: 1, MaxBytes: 1000}).Deliveries[0], fsm.Abandon)
	if d := b.must(fsm.LockMessages{Address: dead, Max: 1, MaxBytes: 1000}).Deliveries[0]; d.FailedDeliveries != deadCount {
		t.Errorf("an abandoned dead letter has the count %d, want %d", d.FailedDeliveries, deadCount)
	}
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Errorf("an image loses something")
	}
}

// A peek shows a message that was fetched by its number as deferred, with the end of its lock.
func TestPeekShowsAFetchedMessageAsDeferred(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.send(1, 2, fsm.Message{})
	at := fsm.Address{Entity: 1}
	held := b.must(fsm.LockMessages{Address: at, Max: 2, MaxBytes: 1000}).Deliveries
	b.must(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: held[0].Lock, Verb: fsm.Defer}}})
	b.must(fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{1}})
	for i, want := range []fsm.MessageState{fsm.Deferred, fsm.Locked} {
		if d := b.q.Peek(at, 0, 10)[i]; d.State != want || d.LockedUntil == 0 {
			t.Errorf("message %d is peeked in state %v, locked until %d; want state %v and a lock", i+1, d.State, d.LockedUntil, want)
		}
	}
}
