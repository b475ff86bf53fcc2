package fsm_test

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestTransfersLeaveInOrder: transfers leave in order, by destination, and nobody can receive them;
// refused ones can be received from the transfer dead-letter queue, also at a topic.
func TestTransfersLeaveInOrder(t *testing.T) {
	t.Parallel()
	for kind := range fsm.SubscriptionEntity + 1 {
		b := newBetween(t)
		c := fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings(), Kind: kind}
		if kind == fsm.SubscriptionEntity {
			b.must(fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity})
			b.send(9, 1, fsm.Message{})
			c.Topic = 9
		}
		c.Settings.DeadLetterTimeToLive = 60_000
		b.must(c)
		if kind == fsm.TopicEntity {
			b.must(fsm.PutEntity{Entity: 2, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 1})
		}
		b.must(fsm.Transact{Transfers: []fsm.TransferOut{
			postOf(1, elsewhere, "b", "1", "2"), postOf(1, farther, "c", "3"), postOf(1, elsewhere, "b", "4"),
		}})
		at := fsm.Address{Entity: 1, Sub: fsm.TransferQueue}
		for _, c := range []fsm.Command{
			fsm.LockMessages{Address: at, Max: 1},
			fsm.PurgeMessages{Address: at, Max: 1},
			fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{1}},
			fsm.FetchReady{Address: at, Seen: []fsm.LockID{{Sequence: 1}}},
			settleIn(at, fsm.Complete, fsm.LockID{Sequence: 1}),
			fsm.RenewLocks{Address: at, Locks: make([]fsm.LockID, 1)},
		} {
			if res := b.do(c); res.Code != fsm.InvalidArgument {
				t.Errorf("%T: %v", c, res.Code)
			}
		}
		if len(b.q.Peek(at, 0, 10)) != 0 || b.q.Ready(at) != 0 {
			t.Error("it can be looked at")
		}
		f := fsm.ForwardMessages{Address: at, Max: 9, MaxBytes: 1000}
		if res := b.must(f); res.Serial != 0 {
			t.Errorf("without destination: batch %d", res.Serial)
		}
		f.To = fsm.Destination{Partition: 8, Entity: 8}
		for i, want := range []struct {
			to       fsm.Destination
			name     string
			payloads string
			counted  uint64
		}{{elsewhere, "b", "1 2", 4}, {farther, "c", "3", 2}, {elsewhere, "b", "4", 1}} {
			res := b.must(f)
			var payloads []string
			for _, d := range res.Deliveries {
				payloads = append(payloads, string(b.bodies.Read(d.Body)))
				patches, err := fsm.DecodePatches(b.bodies.Read(d.Patch))
				if err != nil || len(patches) != 1 || patches[0].To != want.to || patches[0].ToName != want.name || d.Hops != 0 {
					t.Errorf("patches %+v, %v, hops %d", patches, err, d.Hops)
				}
			}
			if got := strings.Join(payloads, " "); res.To != want.to || got != want.payloads || b.counts(1).Transfer != want.counted {
				t.Fatalf("%v: batch %d to %v has %s, %+v", kind, i, res.To, got, b.counts(1))
			}
			b.replica = b.restored()
			if out, to, wants, ok := b.q.Outbox(at); !out || to != want.to || wants != "" || !ok {
				t.Errorf("outbox %v %v %q %v", out, to, wants, ok)
			}
			f.Done, f.Codes = res.Serial, nil
			if i == 1 {
				f.Codes = []fsm.Code{fsm.EntityNotFound}
			}
		}
		if res := b.must(f); res.Serial != 0 || len(b.q.Outboxes()) != 0 {
			t.Errorf("at the end: batch %d, %v", res.Serial, b.q.Outboxes())
		}
		lost := fsm.Address{Entity: 1, Sub: fsm.TransferDeadLetterQueue}
		if c := b.counts(1); c.Transfer != 0 || c.TransferDeadLetter != 1 || len(b.q.Peek(lost, 0, 10)) != 1 {
			t.Errorf("%v: %+v", kind, c)
		}
		d := b.must(fsm.LockMessages{Address: lost, Max: 1}).Deliveries[0]
		patches, err := fsm.DecodePatches(b.bodies.Read(d.Patch))
		if last := patches[len(patches)-1]; err != nil || last.Reason != "MessagingEntityNotFound" || last.Description != "The destination c does not exist." {
			t.Errorf("%+v", last)
		}
		b.must(settleIn(lost, fsm.Abandon, d.Lock))
		b.replica = b.restored()
		b.env.Now += 61_000
		if b.must(fsm.Pulse{}); b.counts(1).TransferDeadLetter != 0 {
			t.Errorf("%v: it stays forever", kind)
		}
		if c := b.counts(2); c != (fsm.Counts{}) {
			t.Errorf("a subscription got what went through its topic: %+v", c)
		}
	}
}

// TestDropDeletesTransfers: dropping an entity of any kind deletes its transfers.
func TestDropDeletesTransfers(t *testing.T) {
	t.Parallel()
	for _, drop := range []fsm.EntityID{1, 2, 3} {
		b := newBetween(t)
		b.put(1, 1, nil)
		b.must(fsm.PutEntity{Entity: 2, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity})
		b.must(fsm.PutEntity{Entity: 3, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 2})
		b.must(fsm.Transact{
			Sends:     []fsm.SendMessages{{Entity: 2, Messages: make([]fsm.Message, 2)}},
			Transfers: []fsm.TransferOut{postOf(1, elsewhere, "b", "1", "2"), postOf(2, elsewhere, "b", "3"), postOf(3, elsewhere, "b", "4", "5")},
		})
		f := take(3, 1)
		f.Address.Sub = fsm.TransferQueue
		b.must(f)
		f.Done, f.Codes = 1, []fsm.Code{fsm.NotAllowed}
		b.must(f)
		b.must(fsm.DropEntity{Entity: drop})
		b.replica = b.restored()
		refs := 0
		b.q.Image().Refs(func(fsm.Owner, fsm.Ref) { refs++ })
		if refs != len(b.bodies.bodies) {
			t.Errorf("without %d: %d bodies are referred to, %d are held", drop, refs, len(b.bodies.bodies))
		}
		for _, id := range []fsm.EntityID{1, 2, 3} {
			b.must(fsm.DropEntity{Entity: id})
		}
		if b.must(fsm.Pulse{}); len(b.bodies.bodies) != 0 {
			t.Errorf("without %d: %d bodies are left", drop, len(b.bodies.bodies))
		}
	}
}

// TestPendingTransfersPreventIdleDeletion: an entity is not deleted automatically
// (docs/requirements.md#e7) while it holds messages for others; afterwards its idle time begins.
func TestPendingTransfersPreventIdleDeletion(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 300_000 })
	b.must(fsm.Transact{Transfers: []fsm.TransferOut{postOf(1, elsewhere, "b", "1")}})
	for i := range 3 {
		if i == 1 {
			b.replica = b.restored()
		}
		b.env.Now += 400_000
		if b.must(fsm.Pulse{}); b.q.Entities() != 1 {
			t.Fatal("it is gone")
		}
	}
	f := take(1, 1)
	f.Address.Sub = fsm.TransferQueue
	b.must(f)
	f.Done = 1
	b.must(f)
	b.env.Now += 299_999
	if b.must(fsm.Pulse{}); b.q.Entities() != 1 {
		t.Fatal("it is gone too early")
	}
	b.env.Now++
	if b.must(fsm.Pulse{}); b.q.Entities() != 0 {
		t.Error("it stays")
	}
}

// TestTransactionTransferIsNoHop: a message of a transaction has not been forwarded when it
// arrives, all others have.
func TestTransactionTransferIsNoHop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sub   fsm.SubQueue
		hops  uint8
		valid bool
	}{
		{fsm.TransferQueue, 0, true},
		{fsm.TransferQueue, 1, false},
		{fsm.MainQueue, 0, false},
		{fsm.MainQueue, 1, true},
		{fsm.TransferDeadLetterQueue, 1, false},
	} {
		b := newBetween(t)
		b.put(1, 1, nil)
		x := transferOf(1, fsm.Transferred{Hops: c.hops})
		x.Source.Address.Sub = c.sub
		code := fsm.Check(x)
		if code == fsm.OK != c.valid || b.do(x).Code != code || (verify(fsm.AppendCommand(nil, header, x)) == nil) != c.valid {
			t.Errorf("from %d after %d hops: %v", c.sub, c.hops, code)
		}
		if c.valid && b.q.Peek(fsm.Address{Entity: 1}, 0, 1)[0].Hops != c.hops {
			t.Errorf("from %d it arrives with other hops", c.sub)
		}
		b.replica = b.restored()
	}
}
