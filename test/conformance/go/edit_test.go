package conformance

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// entityDisabled is the condition of operations that the status of a queue forbids.
const entityDisabled amqp.ErrCond = "com.microsoft:entity-disabled"

func editChecks() []check {
	return []check{
		{name: "edit while locked", run: editWhileLocked},
		{name: "edit delivery count", run: editDeliveryCount},
		{name: "one delivery", settings: harness.Settings{MaxDeliveryCount: 1, LockDuration: lockMinimum}, run: oneDelivery},
		{name: "send disabled", run: sendDisabled},
		{name: "receive disabled", run: receiveDisabled},
		{name: "disabled", run: disabled},
		{name: "settle elsewhere", run: settleElsewhere},
	}
}

// Locks survive every change of the settings; a renewal uses the new ones (docs/requirements.md#t14).
func editWhileLocked(s suite) {
	s.send(4)
	r := s.receiver(2)
	held := s.receive(r, 4)
	s.UpdateQueue(s.T, s.queue, harness.Fields{
		"lockDuration": "2m", "defaultMessageTimeToLive": "1h", "maxDeliveryCount": 3, "maxSizeInMegabytes": 2,
		"deadLetteringOnMessageExpiration": true, "userMetadata": "edited",
	})
	s.counts(harness.Counts{Active: 4, Locked: 4})
	s.must("renew", r.RenewMessageLock(s.ctx, held[0], nil))
	if left := time.Until(*held[0].LockedUntil); left < 90*time.Second || left > 2*time.Minute+time.Second {
		s.Errorf("renewed for %v, the queue says 2m", left)
	}
	s.must("complete", r.CompleteMessage(s.ctx, held[0], nil))
	s.must("abandon", r.AbandonMessage(s.ctx, held[1], nil))
	s.must("defer", r.DeferMessage(s.ctx, held[2], nil))
	s.must("complete by token", s.receiver(3).CompleteMessage(s.ctx, byToken(held[3]), nil))
	s.counts(harness.Counts{Active: 1, Deferred: 1})
	if left := time.Until(*s.receiveOne(r).LockedUntil); left < 90*time.Second {
		s.Errorf("locked for %v after the change, the queue says 2m", left)
	}
}

// A lower maximum delivery count applies to existing messages: the next failed attempt
// beyond it dead-letters them.
func editDeliveryCount(s suite) {
	s.send(1)
	r := s.receiver(2)
	for range 3 {
		s.must("abandon", r.AbandonMessage(s.ctx, s.receiveOne(r), nil))
	}
	m := s.receiveOne(r)
	s.UpdateQueue(s.T, s.queue, harness.Fields{"maxDeliveryCount": 2})
	s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
	s.counts(harness.Counts{DeadLetter: 1})
}

// With a maximum delivery count of 1 the first failure is the last, whether the message is abandoned or
// the lock expires; releasing is not a failure (docs/requirements.md#t8).
func oneDelivery(s suite) {
	link := s.amqpReceiver(1, &amqp.ReceiverOptions{Credit: 1})
	s.send(2)
	s.must("release", link.ReleaseMessage(s.ctx, s.get(link)))
	s.must("close", link.Close(s.ctx))
	r := s.receiver(2)
	early := s.until(time.Now().Add(s.lock()))
	held := early.receive(r, 2)
	early.inTime()
	for _, m := range held {
		if m.DeliveryCount != 1 {
			s.Errorf("%s has the delivery count %d", m.MessageID, m.DeliveryCount)
		}
	}
	early.must("abandon", r.AbandonMessage(s.ctx, held[0], nil))
	early.counts(harness.Counts{Active: 1, Locked: 1, DeadLetter: 1})
	s.counts(harness.Counts{DeadLetter: 2}) // the lock expired
	for _, m := range s.receive(s.deadLetters(3), 2) {
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "MaxDeliveryCountExceeded" {
			s.Errorf("%s has the reason %v", m.MessageID, m.DeadLetterReason)
		}
	}
}

// wantDisabled asserts that an operation is refused because of the status of the queue.
func wantDisabled(s suite, what string, try func() error) {
	s.Helper()
	err := try()
	if conditionOf(err) != string(entityDisabled) {
		s.Errorf("%s: %v, want %s", what, err, entityDisabled)
	}
}

// SendDisabled refuses sends and scheduling and nothing else; the queue accepts them when it is
// enabled again.
func sendDisabled(s suite) {
	s.send(2)
	sender, r := s.sender(1), s.receiver(2)
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr("m3")}, nil))
	held := s.receiveOne(r)
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "SendDisabled"})
	wantDisabled(s, "send on an open link", func() error { return sender.SendMessage(s.ctx, &azservicebus.Message{}, nil) })
	for member := 1; member <= 3; member++ {
		wantDisabled(s, "send on a new link", func() error { return s.sender(member).SendMessage(s.ctx, &azservicebus.Message{}, nil) })
	}
	if _, err := s.sender(3).ScheduleMessages(s.ctx, numbered(1), time.Now().Add(time.Hour), nil); err == nil {
		s.Error("a message was scheduled")
	}
	s.must("complete", r.CompleteMessage(s.ctx, held, nil))
	s.must("complete", r.CompleteMessage(s.ctx, s.receiveOne(r), nil))
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "Active"})
	s.must("send again", s.sender(2).SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr("m4")}, nil))
	if diff := cmp.Diff([]string{"m3", "m4"}, ids(s.receive(r, 2))); diff != "" {
		s.Errorf("after all (-want +got)\n%s", diff)
	}
}

// ReceiveDisabled refuses receivers, including waiting ones; locked messages can be renewed and
// settled, and senders are not affected.
func receiveDisabled(s suite) {
	s.send(3)
	r := s.receiver(2)
	held := s.receive(r, 3)
	s.must("defer", r.DeferMessage(s.ctx, held[2], nil))
	waiting := make(chan error, 1)
	waiter := s.amqpReceiver(3, &amqp.ReceiverOptions{Credit: 10})
	go func() {
		_, err := waiter.Receive(s.ctx, nil)
		waiting <- err
	}()
	s.none(s.amqpReceiver(3, nil)) // by then the other receiver waits too
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "ReceiveDisabled"})
	wantDisabled(s, "a receiver that waits", func() error { return <-waiting })
	wantDisabled(s, "a new receiver", func() error {
		_, err := s.receiver(1).ReceiveMessages(s.ctx, 1, nil)
		return err
	})
	if got, err := s.receiver(1).ReceiveDeferredMessages(s.ctx, []int64{*held[2].SequenceNumber}, nil); err == nil {
		s.Errorf("a deferred message was fetched: %v", ids(got))
	}
	s.must("renew", r.RenewMessageLock(s.ctx, held[0], nil))
	s.must("complete", r.CompleteMessage(s.ctx, held[0], nil))
	s.must("abandon", r.AbandonMessage(s.ctx, held[1], nil))
	s.sendWith(0, "m4")
	s.counts(harness.Counts{Active: 2, Deferred: 1})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "Active"})
	if diff := cmp.Diff([]string{"m2", "m4"}, ids(s.receive(s.receiver(3), 2))); diff != "" {
		s.Errorf("after all (-want +got)\n%s", diff)
	}
}

// Disabled refuses sends and receives; messages still expire and become due.
func disabled(s suite) {
	s.send(1)
	r := s.receiver(2)
	held := s.receiveOne(r)
	_, err := s.sender(1).ScheduleMessages(s.ctx, numbered(1), time.Now().Add(time.Second), nil)
	s.must("schedule", err)
	s.sendWith(short, "short")
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "Disabled"})
	wantDisabled(s, "send", func() error { return s.sender(3).SendMessage(s.ctx, &azservicebus.Message{}, nil) })
	wantDisabled(s, "receive", func() error {
		_, err := s.receiver(3).ReceiveMessages(s.ctx, 1, nil)
		return err
	})
	s.must("complete", r.CompleteMessage(s.ctx, held, nil))
	s.counts(harness.Counts{Active: 1}) // the scheduled message is active, the short-lived one expired
}

// Every kind of settlement works by lock token alone, over another connection, at a member that
// has not delivered the message; the second settlement gets lock lost (docs/requirements.md#t9 to #t13).
func settleElsewhere(s suite) {
	s.send(4)
	settleHeldElsewhere(s)
}

// settleHeldElsewhere is settleElsewhere for the four messages that the queue has.
func settleHeldElsewhere(s suite) {
	s.Helper()
	first := s.receiver(2)
	held := s.receive(first, 4)
	must := func(what string, do func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error, m *azservicebus.ReceivedMessage) {
		s.must(what+" elsewhere", do(s.receiver(3), byToken(m)))
		wantCode(s, what+" after that, on the link", do(first, m), azservicebus.CodeLockLost)
		wantCode(s, what+" again, elsewhere", do(s.receiver(1), byToken(m)), azservicebus.CodeLockLost)
	}
	must("complete", func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.CompleteMessage(s.ctx, m, nil)
	}, held[0])
	must("defer", func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeferMessage(s.ctx, m, nil)
	}, held[1])
	must("dead-letter", func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeadLetterMessage(s.ctx, m, nil)
	}, held[2])
	must("abandon", func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.AbandonMessage(s.ctx, m, nil)
	}, held[3])
	s.counts(harness.Counts{Active: 1, Deferred: 1, DeadLetter: 1})
}
