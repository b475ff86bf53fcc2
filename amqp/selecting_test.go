package amqp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/receiver"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// settleAs settles deliveries of the gateway.
func (p *peer) settleAs(first, last uint32, state any) {
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: first, Last: &last, Settled: true, State: state})
}

// drained drains a link that gets nothing more.
func (p *peer) drained(handle, count, credit uint32) {
	p.Helper()
	p.credit(handle, count, credit, func(f *wire.Flow) { f.Drain = true })
	if f := expect[*wire.Flow](p); *f.LinkCredit != 0 || !f.Drain {
		p.Fatalf("drained: %+v", f)
	}
}

// TestConsumerGetsWhatItsSelectorSelects checks that a consumer with a selector gets the messages that match, in order, also
// behind more messages than one peek returns, and new ones soon; that it holds their locks; and that the others stay.
func TestConsumerGetsWhatItsSelectorSelects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 3)
		h.colored(t, "orders", "blue", 0, 2*management.PeekMessagesMax)
		h.colored(t, "orders", "red", 3, 4)
		p := loggedIn(t, h)
		a := p.receiver(0, "orders", selecting("JMSType = 'red'"))
		if d, ok := a.Source.Filter.Get("jms-selector").(wire.Described); !ok || d.Value != "JMSType = 'red'" {
			t.Errorf("reply with the filters %v", a.Source.Filter)
		}
		p.credit(0, 0, 2) // less than the first peek shows
		p.expectBodies(t, 0, 2)
		p.credit(0, 2, 10)
		p.expectBodies(t, 2, 5)
		p.drained(0, 7, 5)
		if counts := h.counts("orders"); counts.Locked != 7 {
			t.Errorf("%+v", counts)
		}
		p.settleAs(0, 6, &wire.Accepted{})
		p.credit(0, 12, 5)
		p.idle(time.Minute)
		since := time.Now()
		h.colored(t, "orders", "blue", 2*management.PeekMessagesMax, 1)
		h.colored(t, "orders", "red", 7, 1)
		p.expectBodies(t, 7, 1)
		if took := time.Since(since); took > 2*receiver.PauseMax {
			t.Errorf("a new message is delivered after %s", took)
		}
		p.settleAs(7, 7, &wire.Accepted{})
		p.receiver(1, "orders")
		p.credit(1, 0, 1000)
		p.expectBodies(t, 0, 2*management.PeekMessagesMax+1)
		if counts := h.counts("orders"); counts.Active != 2*management.PeekMessagesMax+1 {
			t.Errorf("afterwards %+v", counts)
		}
		_ = p.net.Close()
	})
}

// TestConsumerWithSelectorReceivesAndDeletes checks that settled deliveries of a consumer with a selector are removed, and
// nothing else.
func TestConsumerWithSelectorReceivesAndDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 2)
		h.colored(t, "orders", "blue", 0, 3)
		p := loggedIn(t, h)
		p.receiver(0, "orders", selecting("JMSType = 'blue'"), func(a *wire.Attach) { a.SndSettleMode = ptr(uint8(settledMode)) })
		p.credit(0, 0, 10)
		p.expectBodies(t, 0, 3)
		p.drained(0, 3, 7)
		if counts := h.counts("orders"); counts.Active != 2 || counts.Locked != 0 {
			t.Errorf("afterwards %+v", counts)
		}
		_ = p.net.Close()
	})
}

// TestConsumerWithSelectorFindsWhatComesBack checks that a consumer with a selector gets the messages that another receiver
// held when it came to them: one that is abandoned, and one whose lock ends. Each counts one failed delivery.
func TestConsumerWithSelectorFindsWhatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 2)
		p := loggedIn(t, h)
		p.receiver(0, "orders")
		p.credit(0, 0, 2)
		p.expectBodies(t, 0, 2) // held
		h.colored(t, "orders", "red", 2, 1)
		p.receiver(1, "orders", selecting("JMSType = 'red'"))
		p.credit(1, 0, 10)
		p.expectBodies(t, 2, 1)
		p.settleAs(2, 2, &wire.Accepted{})
		<-time.After(time.Second)
		for i, comesBack := range []func(){
			func() { p.settleAs(0, 0, &wire.Modified{}) },
			func() { h.advanceClock(30 * time.Second) },
		} {
			since := time.Now()
			comesBack()
			f := expect[*wire.Transfer](p)
			p.settleAs(*f.DeliveryID, *f.DeliveryID, &wire.Accepted{})
			m := decoded(t, f)
			if body := string(m.GetData()); body != fmt.Sprint(i) || m.Header.DeliveryCount != 1 {
				t.Errorf("delivery %q, count %d; want %d, 1", body, m.Header.DeliveryCount, i)
			}
			if took := time.Since(since); took > 2*receiver.AgainMin {
				t.Errorf("found after %s", took)
			}
		}
		_ = p.net.Close()
	})
}

// TestConsumerWithSelectorKeepsTheOrderOfWhatItReturns checks that messages that a consumer with a selector returns come
// again before later ones, also when it has looked at more messages than one peek returns since.
func TestConsumerWithSelectorKeepsTheOrderOfWhatItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 3)
		h.colored(t, "orders", "blue", 0, 2*management.PeekMessagesMax)
		p := loggedIn(t, h)
		p.receiver(0, "orders", selecting("JMSType = 'red'"))
		p.credit(0, 0, 3)
		p.expectBodies(t, 0, 3)
		p.drained(0, 3, 1)
		h.colored(t, "orders", "red", 3, 2)
		p.settleAs(0, 1, &wire.Released{})
		p.settleAs(2, 2, &wire.Modified{DeliveryFailed: ptr(true)})
		p.credit(0, 4, 5)
		p.expectBodies(t, 0, 5)
		_ = p.net.Close()
	})
}

// TestConsumersShareByTheirSelectors checks that several consumers with selectors, of which two overlap, and one without get
// each message once, and only messages that they select. Some messages are returned and come again.
func TestConsumersShareByTheirSelectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		p := loggedIn(t, h)
		selects := [][]string{{"red"}, {"blue"}, {"blue", "green"}}
		for i, colors := range selects {
			p.receiver(uint32(i), "orders", selecting("JMSType IN ('"+strings.Join(colors, "','")+"')"))
			p.credit(uint32(i), 0, 10_000)
		}
		const messages = 300
		for i := range messages {
			h.colored(t, "orders", []string{"red", "green", "blue"}[i%3], i, 1)
			if i%50 == 0 {
				<-time.After(time.Second)
			}
		}
		completed := map[string]int{}
		for done := 0; done < messages; {
			f := expect[*wire.Transfer](p)
			m := decoded(t, f)
			body := string(m.GetData())
			if !slices.Contains(selects[f.Handle], *m.Properties.Subject) {
				t.Fatalf("consumer %d gets a message that is %s", f.Handle, *m.Properties.Subject)
			}
			if m.Header.DeliveryCount == 0 && len(body) == 2 { // the first time
				p.settleAs(*f.DeliveryID, *f.DeliveryID, &wire.Modified{DeliveryFailed: ptr(true)})
				continue
			}
			p.settleAs(*f.DeliveryID, *f.DeliveryID, &wire.Accepted{})
			completed[body]++
			done++
		}
		if len(completed) != messages {
			t.Errorf("%d different messages of %d", len(completed), messages)
		}
		synctest.Wait()
		if counts := h.counts("orders"); counts.Active != 0 || counts.DeadLetter != 0 {
			t.Errorf("afterwards %+v", counts)
		}
		_ = p.net.Close()
	})
}

// FetchReady goes to the shards that the numbers name.
func (s shardedBroker) FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	shard := seen[0].Sequence.Shard() // a look is at one shard
	inside := slices.Clone(seen)
	for i := range inside {
		inside[i].Sequence -= fsm.SequenceNumber(shard) << fsm.ShardShift
	}
	part := fsm.EntityRef{Entity: fsm.Entity{ID: at.Shards[shard].Entity}}
	s.fakeBroker.FetchReady(part, inside, receiveAndDelete, func(code fsm.Code, found []fsm.Delivery) {
		for i := range found {
			found[i].Lock.Sequence |= fsm.SequenceNumber(shard) << fsm.ShardShift
		}
		done(code, found)
	})
}

// TestConsumerWithSelectorReceivesFromEveryShard checks that a consumer with a selector gets old and new messages of each
// shard of a partitioned entity, once, and that a drain looks at all of them.
func TestConsumerWithSelectorReceivesFromEveryShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders", "shard-0", "shard-1")
		p := loggedIn(t, shardedBroker{h})
		h.colored(t, "shard-1", "red", 0, 1)
		behind := fsm.Address{Entity: h.names["shard-1"].ID}
		held := h.do(fsm.LockMessages{Address: behind, Max: 1}).Deliveries
		p.receiver(0, "orders", selecting("JMSType = 'red'"))
		p.credit(0, 0, 100)
		shown := uint32(0)
		for _, queue := range []string{"shard-1", "shard-0", "shard-1", "shard-0"} {
			h.colored(t, queue, "blue", 0, 300)
			h.colored(t, queue, "red", 0, 2)
			for range 2 {
				if f := expect[*wire.Transfer](p); *f.DeliveryID != shown {
					t.Errorf("delivery %d, want %d", *f.DeliveryID, shown)
				}
				shown++
			}
		}
		h.do(fsm.SettleMessages{Address: behind, Settlements: fsm.SettleAll(held, fsm.Release)})
		p.expectBodies(t, 0, 1) // it comes back
		shown++
		p.drained(0, shown, 100-shown)
		_ = p.net.Close()
	})
}

// TestDrainOfSelectorLooksAtEveryMessage checks that a drain finds a message that came back at an old place.
func TestDrainOfSelectorLooksAtEveryMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 1)
		h.colored(t, "orders", "blue", 0, 3*management.PeekMessagesMax)
		p := loggedIn(t, h)
		p.receiver(0, "orders")
		p.credit(0, 0, 1)
		p.expectBodies(t, 0, 1)
		p.receiver(1, "orders", selecting("JMSType = 'red'"))
		p.drained(1, 0, 5)
		p.settleAs(0, 0, &wire.Released{})
		synctest.Wait()
		p.credit(1, 5, 5, func(f *wire.Flow) { f.Drain = true })
		p.expectBodies(t, 0, 1)
		if f := expect[*wire.Flow](p); *f.LinkCredit != 0 {
			t.Errorf("drained: %+v", f)
		}
		_ = p.net.Close()
	})
}

// lookingBroker counts the messages that peeks show, and answers them with an error for a while.
type lookingBroker struct {
	*fakeBroker
	mu    sync.Mutex
	looks int // messages that peeks have shown
	fails fsm.Code
}

func (b *lookingBroker) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	found, err := b.fakeBroker.Peek(ctx, at, from, most, mostBytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks += len(found)
	if b.fails != fsm.OK {
		return nil, b.fails
	}
	return found, err
}

func (b *lookingBroker) fail(code fsm.Code) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = code
}

// TestConsumerWithSelectorWaitsForTheLeader checks that a link with a selector stays attached while the leader cannot be reached,
// and is detached when its entity is gone.
func TestConsumerWithSelectorWaitsForTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		b := &lookingBroker{fakeBroker: h}
		p := loggedIn(t, b)
		p.receiver(0, "orders", selecting("JMSType = 'red'"))
		b.fail(fsm.ServerBusy)
		p.credit(0, 0, 5)
		p.idle(2 * lockWait)
		h.colored(t, "orders", "red", 0, 1)
		b.fail(fsm.OK)
		p.expectBodies(t, 0, 1)
		b.fail(fsm.EntityNotFound)
		if d := p.untilDetach(); d.Error == nil || d.Error.Condition != wire.ConditionNotFound {
			t.Errorf("%+v", d)
		}
		_ = p.net.Close()
	})
}

// TestSelectorThatSelectsNothingDelaysNobody checks that consumers with selectors that select nothing of a long queue look at a
// bounded number of messages, each and together, and that meanwhile another one gets its messages soon.
func TestSelectorThatSelectsNothingDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders", "replies")
		const pages = 20
		h.colored(t, "orders", "blue", 0, pages*management.PeekMessagesMax)
		b := &lookingBroker{fakeBroker: h}
		s, p := piped(t, b, func(c *Config) { c.Processors = 1 })
		idle := []*peer{connect(t, s), connect(t, s)}
		for i, p := range idle {
			p.login()
			p.receiver(0, "orders", selecting(fmt.Sprintf("JMSType = 'none%d'", i)))
			p.credit(0, 0, 5)
		}
		p.login()
		p.receiver(0, "replies", selecting("JMSType = 'red'"))
		p.credit(0, 0, 1000)
		const messages = 40
		for i := range messages {
			<-time.After(500 * time.Millisecond)
			since := time.Now()
			h.colored(t, "replies", "red", i, 1)
			p.expectBodies(t, i, 1)
			p.settleAs(uint32(i), uint32(i), &wire.Accepted{})
			if took := time.Since(since); took > 2*receiver.PauseMax {
				t.Errorf("a message is delivered after %s", took)
			}
		}
		// Each of the two looks at everything once, and again after pauses.
		took := messages * (500*time.Millisecond + receiver.PauseMax)
		pass := pages * (receiver.PeekCost + management.PeekMessagesMax/receiver.MessagesPerUnit) * receiver.UnitTime
		b.mu.Lock()
		defer b.mu.Unlock()
		if most := 2 * (2 + int(took/max(receiver.AgainMin, receiver.AgainPause*pass))) * pages * management.PeekMessagesMax; b.looks > most {
			t.Errorf("%d messages were looked at in %s, more than %d", b.looks, took, most)
		}
		for _, p := range append(idle, p) {
			_ = p.net.Close()
		}
	})
}

// TestConsumersWithSelectorsAreRefused checks that a consumer with a selector is refused while the cluster is being
// upgraded, and at a node, with words that say so.
func TestConsumersWithSelectorsAreRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		source wire.Source
		words  string
	}{
		"node": {wire.Source{Address: "orders/$management"}, "receivers at entities"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBroker("orders"))
			a := &wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &row.source, Target: &wire.Target{}}
			selecting("JMSType = 'red'")(a)
			p.send(a)
			if cause := p.refusedLink(); cause.Condition != wire.ConditionNotImplemented || !strings.Contains(cause.Description, row.words) {
				t.Errorf("%+v", cause)
			}
		})
	}
}

// TestSelectingReceiverEndsWithItsLink checks that a link with a selector ends while it looks, and its message is not lost.
func TestSelectingReceiverEndsWithItsLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		p := loggedIn(t, h)
		p.receiver(0, "orders", selecting("JMSType = 'red'"))
		p.credit(0, 0, 5)
		<-time.After(time.Second)
		p.send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](p)
		h.colored(t, "orders", "red", 0, 1)
		<-time.After(time.Minute)
		if counts := h.counts("orders"); counts.Active != 1 || counts.Locked != 0 {
			t.Errorf("afterwards %+v", counts)
		}
		_ = p.net.Close()
	})
}

// TestDrainGoesOnDuringASearch checks that a drain that comes while a consumer with a selector searches a long queue, and is
// repeated, ends when everything was looked at, and not before.
func TestDrainGoesOnDuringASearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "blue", 0, 40*management.PeekMessagesMax) // more than scanWorkBurst pays for
		h.colored(t, "orders", "red", 0, 1)
		p := loggedIn(t, h, func(c *Config) { c.Processors = 1 })
		p.receiver(0, "orders", selecting("JMSType = 'red'"))
		p.credit(0, 0, 5)
		<-time.After(time.Millisecond)
		for range 3 {
			p.credit(0, 0, 5, func(f *wire.Flow) { f.Drain = true })
			<-time.After(time.Millisecond)
		}
		p.expectBodies(t, 0, 1)
		if f := expect[*wire.Flow](p); *f.LinkCredit != 0 {
			t.Errorf("drained: %+v", f)
		}
		_ = p.net.Close()
	})
}
