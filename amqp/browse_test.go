package amqp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// browsing makes an attach that of a queue browser of Qpid JMS.
func browsing(a *wire.Attach) {
	a.SndSettleMode = ptr(uint8(settledMode))
	a.Source.DistributionMode, a.Source.Durable = ptr(distributionCopy), ptr(uint32(0))
}

// TestBrowsingRemovesNothing checks that a link that browses shows all messages, in order, from the oldest on, and
// that none of them is locked or removed.
func TestBrowsingRemovesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.messages(t, "orders", 3)
		p := loggedIn(t, h)
		for handle := range uint32(2) { // each browser begins with the oldest
			if a := p.receiver(handle, "orders", browsing); *a.SndSettleMode != settledMode {
				t.Errorf("settle mode %d", *a.SndSettleMode)
			}
			p.credit(handle, 0, 10)
			for range 3 {
				if f := expect[*wire.Transfer](p); f.Settled == nil || !*f.Settled {
					t.Errorf("transfer %+v", f)
				}
			}
			p.credit(handle, 3, 7, func(f *wire.Flow) { f.Drain = true })
			if f := expect[*wire.Flow](p); *f.LinkCredit != 0 || !f.Drain {
				t.Errorf("drained: %+v", f)
			}
		}
		if counts := h.counts("orders"); counts.Active != 3 || counts.Locked != 0 {
			t.Errorf("afterwards %+v", counts)
		}

		p.credit(0, 10, 1) // a new message is shown a moment later
		synctest.Wait()
		h.messages(t, "orders", 1)
		since := time.Now()
		if f := expect[*wire.Transfer](p); f.Handle != 0 {
			t.Errorf("transfer on handle %d", f.Handle)
		}
		if took := time.Since(since); took > lockWait {
			t.Errorf("shown after %s", took)
		}
		_ = p.net.Close()
	})
}

// TestDurableCopyConsumes checks that what a durable subscription of JMS attaches, which has the distribution mode
// "copy" too, receives with locks.
func TestDurableCopyConsumes(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 1)
	p := loggedIn(t, h)
	p.receiver(0, "orders", browsing, func(a *wire.Attach) { a.Source.Durable, a.SndSettleMode = ptr(uint32(2)), nil })
	p.credit(0, 0, 1)
	expect[*wire.Transfer](p)
	if counts := h.counts("orders"); counts.Locked != 1 {
		t.Errorf("afterwards %+v", counts)
	}
}

// TestFiltersThatCannotBeAppliedAreRefused checks that a receiver never gets messages that it did not ask for.
func TestFiltersThatCannotBeAppliedAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		filter wire.Map
		browse bool
	}{
		"browsed session": {wire.Map{{Key: sessionFilterKey, Value: "one"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 10, RequiresSession: true}, "orders"))
			a := &wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders", Filter: c.filter}, Target: &wire.Target{}}
			if c.browse {
				browsing(a)
			}
			p.send(a)
			if cause := p.refusedLink(); cause.Condition != wire.ConditionNotImplemented {
				t.Errorf("%+v", cause)
			}
		})
	}
}

// shardedBroker shows a queue as partitioned: its shards are the queues "shard-0" and "shard-1".
type shardedBroker struct{ *fakeBroker }

func (s shardedBroker) Resolve(ctx context.Context, in fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	at, err := s.fakeBroker.Resolve(ctx, in, path)
	at.Shards = []fsm.Shard{{Entity: s.names["shard-0"].ID, Partition: 1}, {Entity: s.names["shard-1"].ID, Partition: 1}}
	return at, err
}

// Peek goes through the shards in order, as the router does.
func (s shardedBroker) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, mostBytes int) (all []fsm.Delivery, err error) {
	for shard := from.Shard(); shard < len(at.Shards); shard++ {
		bits, part := fsm.SequenceNumber(shard)<<fsm.ShardShift, fsm.EntityRef{Entity: fsm.Entity{ID: at.Shards[shard].Entity}}
		found, err := s.fakeBroker.Peek(ctx, part, max(from, bits)-bits, most-len(all), mostBytes)
		if err != nil {
			return all, err
		}
		for _, d := range found {
			d.Lock.Sequence |= bits
			all = append(all, d)
		}
	}
	return all, nil
}

// TestBrowserShowsNewMessagesOfEveryShard checks that a browser of a partitioned entity shows a new message of a shard
// although it has shown messages with higher numbers, which are in other shards.
func TestBrowserShowsNewMessagesOfEveryShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders", "shard-0", "shard-1")
		p := loggedIn(t, shardedBroker{h})
		p.receiver(0, "orders", browsing)
		p.credit(0, 0, 100)
		shown := uint32(0)
		for _, add := range []struct {
			queue    string
			messages int
		}{{"shard-1", 2}, {"shard-0", 1}, {"shard-1", 1}, {"shard-0", 2}} {
			h.messages(t, add.queue, add.messages)
			for range add.messages {
				if f := expect[*wire.Transfer](p); *f.DeliveryID != shown {
					t.Errorf("delivery %d, want %d", *f.DeliveryID, shown)
				}
				shown++
			}
		}
		p.credit(0, shown, 100-shown, func(f *wire.Flow) { f.Drain = true })
		if f := expect[*wire.Flow](p); *f.LinkCredit != 0 { // and none twice
			t.Errorf("drained: %+v", f)
		}
		_ = p.net.Close()
	})
}
