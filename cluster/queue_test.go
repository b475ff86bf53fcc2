package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestLocksSurviveUpdates changes settings while the queue is in use, which loses no locks
// (docs/requirements.md#t14).
func TestLocksSurviveUpdates(t *testing.T) { inBubble(t, locksSurviveUpdates) }

func locksSurviveUpdates(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	node := c.other(at.Partition)
	for i := range 3 {
		sendMessage(t, node, at, fmt.Sprint(i))
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	held := lockMessages(receiver, 3, waitMax).deliveries
	if len(held) == 0 {
		t.Fatal("nothing was locked")
	}
	settings := testSettings
	settings.LockDuration, settings.MaxDeliveryCount, settings.DefaultTimeToLive = 5000, 1, 60_000
	settings.DeadLetterOnExpiry, settings.Status = true, fsm.Disabled
	entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings)
	if err != nil || entity.Settings != settings.WithDefaults() {
		t.Fatalf("update: %+v, %v", entity, err)
	}
	done := make(chan fsm.Code, 1)
	node.Router().Renew(at, []fsm.LockID{held[0].Lock}, func(codes []fsm.Code, _ []fsm.Instant) { done <- codes[0] })
	if code := <-done; code != fsm.OK {
		t.Errorf("renew: %v", code)
	}
	for _, delivery := range held {
		if code := settleMessage(t, c.nodes[0], at, delivery.Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("complete %d: %v", delivery.Lock.Sequence, code)
		}
	}
	settings.RequiresDuplicateDetection = true
	_, err = c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings)
	if !errors.Is(err, fsm.InvalidArgument) || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("change of what is fixed: %v", err)
	}
}

// TestReceiversLearnTheStatusOfTheirQueue checks that receivers that wait at a queue learn of its status at once,
// and that everything continues when it is active again.
func TestReceiversLearnTheStatusOfTheirQueue(t *testing.T) {
	inBubble(t, receiversLearnTheStatusOfTheirQueue)
}

func receiversLearnTheStatusOfTheirQueue(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	node := c.other(at.Partition)
	set := func(status fsm.EntityStatus) {
		settings := testSettings
		settings.Status = status
		kit.Must(c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "orders", settings))(t)
	}
	x := fsm.Message{Payload: []byte("x")}
	for _, step := range []struct {
		status        fsm.EntityStatus
		send, receive fsm.Code
	}{
		{fsm.Disabled, fsm.EntityDisabled, fsm.EntityDisabled},
		{fsm.SendDisabled, fsm.EntityDisabled, fsm.OK},
		{fsm.ReceiveDisabled, fsm.OK, fsm.EntityDisabled},
		{fsm.Active, fsm.OK, fsm.OK},
	} {
		var waiting []chan lockedMessages
		for range 3 {
			receiver := node.Router().Receiver(at, false)
			defer receiver.Close()
			lockMessages(receiver, 1, 0) // the first lock request of a receiver never waits in a queue
			answer := make(chan lockedMessages, 1)
			receiver.Lock(1, 1000, waitMax, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
			waiting = append(waiting, answer)
		}
		set(step.status)
		if step.receive != fsm.OK {
			for i, answer := range waiting {
				if got := await(t, answer); got.code != fsm.EntityDisabled {
					t.Errorf("status %d: waiter %d heard %v", step.status, i, got.code)
				}
			}
		}
		if code := sendCode(node, at, x); code != step.send {
			t.Errorf("status %d: send %v", step.status, code)
		}
		receiver, wait := node.Router().Receiver(at, true), time.Duration(0)
		if step.receive != fsm.OK {
			wait = waitMax // for a leader that reports it
		}
		if got := lockMessages(receiver, 1, wait); got.code != step.receive {
			t.Errorf("status %d: receive %v", step.status, got.code)
		}
		receiver.Close()
		set(fsm.Active)
		for { // the queue is empty again, and the waiting receivers are served
			if got := receive(t, node, at); len(got) == 0 {
				break
			}
		}
	}
}

// TestWaitingReceiversHearOfDeletion checks that the deletion of a queue ends the requests of its waiting
// receivers.
func TestWaitingReceiversHearOfDeletion(t *testing.T) { inBubble(t, waitingReceiversHearOfDeletion) }

func waitingReceiversHearOfDeletion(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	var waiting []chan lockedMessages
	for _, node := range c.nodes {
		receiver := node.Router().Receiver(at, false)
		defer receiver.Close()
		lockMessages(receiver, 1, 0)
		answer := make(chan lockedMessages, 1)
		receiver.Lock(1, 1000, time.Minute, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
		waiting = append(waiting, answer)
	}
	kit.OK(t, c.nodes[1].Router().In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.QueueEntity, "orders"))
	for i, answer := range waiting {
		if got := await(t, answer); got.code != fsm.EntityNotFound {
			t.Errorf("at member %d: %v", i, got.code)
		}
	}
}

// TestQuotaRefusesSends checks that a full queue refuses messages until one has left it.
func TestQuotaRefusesSends(t *testing.T) { inBubble(t, quotaRefusesSends) }

func quotaRefusesSends(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := c.create("small", func(s *fsm.EntitySettings) { s.MaxBytes = 1 << 20 })
	node := c.other(at.Partition)
	big := fsm.Message{Payload: bytes.Repeat([]byte("x"), 256<<10)}
	for i := range 4 {
		if code := sendCode(node, at, big); code != fsm.OK {
			t.Fatalf("send %d: %v", i, code)
		}
	}
	if code := sendCode(node, at, fsm.Message{Payload: []byte("x")}); code != fsm.QuotaExceeded {
		t.Fatalf("one byte too many: %v", code)
	}
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	got := lockMessages(receiver, 1, waitMax)
	if len(got.deliveries) != 1 || settleMessage(t, node, at, got.deliveries[0].Lock, fsm.Complete) != fsm.OK {
		t.Fatalf("receive: %+v", got.code)
	}
	if codes := []fsm.Code{sendCode(node, at, big, big), sendCode(node, at, big)}; !slices.Equal(codes, []fsm.Code{fsm.QuotaExceeded, fsm.OK}) {
		t.Errorf("two and one: %v", codes)
	}
}
