package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// A transaction settles more messages than it sends, and sends scheduled messages to another partition, which leave at
// once.
func TestTransactionsSettleManyAndScheduleElsewhere(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.send(1, 101, fsm.Message{})
	at := fsm.Address{Entity: 1}
	var many fsm.Transact
	for _, d := range b.must(fsm.LockMessages{Address: at, Max: 101, MaxBytes: 1 << 20}).Deliveries {
		if many.Settles == nil {
			many.Settles = []fsm.SettleMessages{{Address: at}}
		}
		many.Settles[0].Settlements = append(many.Settles[0].Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
	}
	later := fsm.Transact{Transfers: []fsm.TransferOut{postOf(1, elsewhere, "e", "later")}}
	due := b.env.Now + 60_000
	later.Transfers[0].Messages[0].EnqueueAt = due
	b.must(many)
	b.must(later)
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("an image loses something")
	}
	forward := fsm.ForwardMessages{Address: fsm.Address{Entity: 1, Sub: fsm.TransferQueue}, To: elsewhere, Max: 9, MaxBytes: 1000}
	res := b.must(forward)
	if len(res.Deliveries) != 1 || res.To != elsewhere {
		t.Fatalf("got %d messages to %v before the time, want one to %v", len(res.Deliveries), res.To, elsewhere)
	}
	if got := b.patches(res.Deliveries[0])[0].ToTime; got != due {
		t.Errorf("it leaves with the time %d, want %d", got, due)
	}
}
