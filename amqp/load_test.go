package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/wire"
)

// After a drain, go-amqp continues from its own delivery-count. It must still get its full credit every time.
func TestGoAMQPDrainsAgainAndAgain(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	_, address := gateway(t, h)
	session := plain(t, address)
	ctx := within(t, 20*time.Second)
	receiver, err := session.NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		h.messages(t, "orders", 3)
		if err := receiver.IssueCredit(10); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m, err := receiver.Receive(ctx, nil)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if err := receiver.AcceptMessage(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := receiver.DrainCredit(ctx, nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// Many clients send and compete for the messages (docs/requirements.md#c1, #c2); some disappear with locked
// messages (docs/requirements.md#c3). Every message is completed once, and none is lost.
func TestCompetingReceiversCompleteEveryMessageOnce(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	_, address := gateway(t, h)
	ctx := within(t, 60*time.Second)
	const senders, each = 4, 250
	answered := goamqp.ReceiverSettleModeSecond.Ptr()
	var group sync.WaitGroup
	for s := range senders {
		group.Go(func() {
			sender, err := plain(t, address).NewSender(ctx, "Orders", nil)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				if err := sender.Send(ctx, goamqp.NewMessage(fmt.Appendf(nil, "%d/%d", s, i)), nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done, finish := context.WithCancel(ctx)
	defer finish()
	var mu sync.Mutex
	completed := make(map[string]int)
	work := func(receiver *goamqp.Receiver, most int) {
		for range most {
			m, err := receiver.Receive(done, nil)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			var refused *goamqp.Error
			if err := receiver.AcceptMessage(ctx, m); errors.As(err, &refused) && refused.Condition == goamqp.ErrCond(wire.ConditionMessageLockLost) {
				continue // its lock expired while it waited here (docs/requirements.md#t13)
			} else if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			completed[string(m.GetData())]++
			if len(completed) == senders*each {
				finish()
			}
			mu.Unlock()
		}
	}
	for r := range 4 {
		group.Go(func() {
			receiver, err := plain(t, address).NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{Credit: int32(1 + 20*r), SettlementMode: answered})
			if err != nil {
				t.Error(err)
				return
			}
			work(receiver, senders*each)
		})
	}
	for range 3 { // these lock some messages, complete some, and disappear
		group.Go(func() {
			conn, err := goamqp.Dial(ctx, "amqp://"+address, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(ruleName, ruleKey)})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			session, err := conn.NewSession(ctx, nil)
			if err != nil {
				t.Error(err)
				return
			}
			receiver, err := session.NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{Credit: 30, SettlementMode: answered})
			if err != nil {
				t.Error(err)
				return
			}
			work(receiver, 10)
		})
	}
	stop := make(chan struct{})
	// The locks of a client that disappeared expire, once for each: a lock that expires counts as a failed delivery, and after ten of
	// these a message of a receiver that is only slow would be dead-lettered.
	go func() {
		defer close(stop)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for expired := 0; ; {
			select {
			case <-tick.C:
				if gone := h.closedReceivers(); gone > expired && h.idle() {
					expired = gone
					h.advanceClock(31 * time.Second)
				}
			case <-done.Done():
				return
			}
		}
	}()
	group.Wait()
	finish()
	<-stop
	if len(completed) != senders*each {
		t.Errorf("%d of %d messages were completed, the queue has %+v", len(completed), senders*each, h.counts("orders"))
	}
	for body, n := range completed {
		if n != 1 {
			t.Errorf("%s was completed %d times", body, n)
		}
	}
}

// closedReceivers returns the number of receivers that lock no more messages.
func (h *fakeBroker) closedReceivers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// idle reports whether only locked messages remain.
func (h *fakeBroker) idle() bool {
	c := h.counts("orders")
	return c.Active == c.Locked
}
