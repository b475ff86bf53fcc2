package conformance

import (
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func settleChecks() []check {
	return []check{
		{name: "complete", run: complete},
		{name: "abandon", run: abandon},
		{name: "abandon with a delay", run: abandonWithDelay},
		{name: "defer", run: deferral},
		{name: "dead-letter", run: deadLetter},
		{name: "dead-letter again", run: deadLetterAgain},
		{name: "receive and delete", run: receiveAndDelete},
		{name: "max delivery count", settings: harness.Settings{MaxDeliveryCount: 3}, run: maxDeliveryCount},
		{name: "counts", run: allCounts},
		{name: "competing", run: competing},
	}
}

// Completing removes the message; a second completion with the same lock is refused (docs/requirements.md#t9, #t13).
func complete(s suite) {
	s.send(1)
	r := s.receiver(2)
	m := s.receiveOne(r)
	s.counts(harness.Counts{Active: 1, Locked: 1})
	s.must("complete", r.CompleteMessage(s.ctx, m, nil))
	s.counts(harness.Counts{})
	wantCode(s, "complete again", s.receiver(3).CompleteMessage(s.ctx, byToken(m), nil), azservicebus.CodeLockLost)
}

// An abandoned message returns to its place at the front, with one more delivery counted
// and the changed properties merged into its own (docs/requirements.md#t7, #t10).
func abandon(s suite) {
	sender := s.sender(1)
	for _, id := range []string{"first", "second"} {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{
			MessageID:             &id,
			ApplicationProperties: map[string]any{"kept": "as it was", "changed": "before"},
		}, nil))
	}
	r := s.receiver(2)
	m := s.receiveOne(r)
	s.must("abandon", r.AbandonMessage(s.ctx, m, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"changed": "after", "added": int64(7)},
	}))
	again := s.receive(s.receiver(3), 2)
	if diff := cmp.Diff([]string{"first", "second"}, ids(again)); diff != "" {
		s.Errorf("order (-want +got)\n%s", diff)
	}
	if again[0].DeliveryCount != 2 || again[1].DeliveryCount != 1 {
		s.Errorf("delivery counts %d and %d, want 2 and 1", again[0].DeliveryCount, again[1].DeliveryCount)
	}
	want := map[string]any{"kept": "as it was", "changed": "after", "added": int64(7)}
	if diff := cmp.Diff(want, again[0].ApplicationProperties); diff != "" {
		s.Errorf("properties (-want +got)\n%s", diff)
	}
	if again[0].LockToken == m.LockToken {
		s.Error("two grants have the same lock token")
	}
}

// An abandoned message with a delivery time among its properties returns then, and not before.
func abandonWithDelay(s suite) {
	s.send(1)
	r := s.receiver(2)
	due := time.Now().Add(2 * time.Second)
	s.must("abandon", r.AbandonMessage(s.ctx, s.receiveOne(r), &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"x-opt-delivery-time": due, "kept": "property"},
	}))
	m := s.receiveOne(r)
	s.notBefore("the message", due, time.Now())
	if m.DeliveryCount != 2 || len(m.ApplicationProperties) != 1 || m.ApplicationProperties["kept"] != "property" {
		s.Errorf("delivery count %d, properties %v; want 2 and only the property kept", m.DeliveryCount, m.ApplicationProperties)
	}
}

// A deferred message is not delivered again; a client fetches it by its sequence number at any
// member, and settles it there (docs/requirements.md#t12).
func deferral(s suite) {
	s.send(2)
	r := s.receiver(2)
	m := s.receiveOne(r)
	s.must("defer", r.DeferMessage(s.ctx, m, &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}))
	s.counts(harness.Counts{Active: 1, Deferred: 1})
	if next := s.receiveOne(r); next.MessageID != "m2" {
		s.Errorf("after the deferral came %s", next.MessageID)
	}

	other := s.receiver(3)
	fetched, err := other.ReceiveDeferredMessages(s.ctx, []int64{*m.SequenceNumber}, nil)
	s.must("fetch", err)
	if diff := cmp.Diff([]string{"m1"}, ids(fetched)); diff != "" {
		s.Fatalf("fetched (-want +got)\n%s", diff)
	}
	if fetched[0].ApplicationProperties["why"] != "later" || string(fetched[0].Body) != "body of m1" {
		s.Errorf("fetched with properties %v and body %q", fetched[0].ApplicationProperties, fetched[0].Body)
	}
	if fetched[0].LockedUntil == nil || fetched[0].State != azservicebus.MessageStateDeferred {
		s.Errorf("fetched with lock end %v, state %v", fetched[0].LockedUntil, fetched[0].State)
	}
	s.must("renew", other.RenewMessageLock(s.ctx, fetched[0], nil))
	s.must("abandon", other.AbandonMessage(s.ctx, fetched[0], nil))
	// After an abandon it is deferred again, and still no receiver gets it.
	fetched, err = other.ReceiveDeferredMessages(s.ctx, []int64{*m.SequenceNumber}, nil)
	s.must("fetch again", err)
	if len(fetched) != 1 {
		s.Fatalf("fetched %d messages after the abandon", len(fetched))
	}
	s.must("complete", other.CompleteMessage(s.ctx, fetched[0], nil))
	s.counts(harness.Counts{Active: 1, Locked: 1})
}

// A dead-lettered message is in the dead-letter queue with its reason, description
// and properties, and is completed there (docs/requirements.md#t11).
func deadLetter(s suite) {
	s.send(1)
	r := s.receiver(2)
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, s.receiveOne(r), &azservicebus.DeadLetterOptions{
		Reason: ptr("the reason"), ErrorDescription: ptr("the description"),
		PropertiesToModify: map[string]any{"custom": "property"},
	}))
	s.counts(harness.Counts{DeadLetter: 1})
	dlq := s.deadLetters(3)
	m := s.receiveOne(dlq)
	if m.DeadLetterReason == nil || *m.DeadLetterReason != "the reason" ||
		m.DeadLetterErrorDescription == nil || *m.DeadLetterErrorDescription != "the description" {
		s.Errorf("reason %v, description %v", m.DeadLetterReason, m.DeadLetterErrorDescription)
	}
	if m.ApplicationProperties["custom"] != "property" || string(m.Body) != "body of m1" || m.MessageID != "m1" {
		s.Errorf("message %s, properties %v, body %q", m.MessageID, m.ApplicationProperties, m.Body)
	}
	s.must("complete", dlq.CompleteMessage(s.ctx, m, nil))
	s.counts(harness.Counts{})
}

// A message can be dead-lettered without a reason. In the dead-letter queue it can be abandoned any number
// of times, peeked, and returned to the queue by sending it again (docs/requirements.md#c6).
func deadLetterAgain(s suite) {
	s.send(1)
	r := s.receiver(2)
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, s.receiveOne(r), nil))
	dlq := s.deadLetters(3)
	for range 12 { // more than the queue's MaxDeliveryCount of 10
		s.must("abandon in the dead-letter queue", dlq.AbandonMessage(s.ctx, s.receiveOne(dlq), nil))
	}
	peeked, err := s.deadLetters(1).PeekMessages(s.ctx, 5, nil)
	s.must("peek", err)
	if diff := cmp.Diff([]string{"m1"}, ids(peeked)); diff != "" {
		s.Errorf("peeked (-want +got)\n%s", diff)
	}
	m := s.receiveOne(dlq)
	s.must("send again", s.sender(1).SendMessage(s.ctx, m.Message(), nil))
	s.must("complete", dlq.CompleteMessage(s.ctx, m, nil))
	if back := s.receiveOne(s.receiver(1)); back.MessageID != "m1" || back.DeliveryCount != 1 {
		s.Errorf("sent again it is %s with delivery count %d", back.MessageID, back.DeliveryCount)
	}
	s.counts(harness.Counts{Active: 1, Locked: 1})
}

// A message that is received and deleted is removed when the member sends it (docs/requirements.md#t4).
func receiveAndDelete(s suite) {
	const n = 25
	s.send(n)
	r := s.receiverWith(2, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	seen := map[string]bool{}
	for _, m := range s.receive(r, n) {
		if seen[m.MessageID] {
			s.Errorf("message %s came twice", m.MessageID)
		}
		seen[m.MessageID] = true
	}
	s.counts(harness.Counts{})
	s.nothing(s.receiver(3))
}

// A message that is abandoned too often moves to the dead-letter queue automatically, with the
// reason for it (docs/requirements.md#t8, #c6).
func maxDeliveryCount(s suite) {
	s.send(1)
	for attempt := range 3 {
		r := s.receiver(attempt%3 + 1)
		m := s.receiveOne(r)
		if m.DeliveryCount != uint32(attempt+1) {
			s.Errorf("delivery count %d at attempt %d", m.DeliveryCount, attempt+1)
		}
		s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
	}
	s.counts(harness.Counts{DeadLetter: 1})
	s.nothing(s.receiver(1))
	m := s.receiveOne(s.deadLetters(2))
	if m.DeadLetterReason == nil || *m.DeadLetterReason != "MaxDeliveryCountExceeded" || m.DeadLetterErrorDescription == nil {
		s.Errorf("reason %v, description %v", m.DeadLetterReason, m.DeadLetterErrorDescription)
	}
}

// Every member reports the same counts by state (docs/requirements.md#c11).
func allCounts(s suite) {
	s.send(6)
	r := s.receiver(2)
	m := s.receive(r, 4)
	s.must("defer", r.DeferMessage(s.ctx, m[0], nil))
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, m[1], nil))
	s.must("complete", r.CompleteMessage(s.ctx, m[2], nil))
	s.counts(harness.Counts{Active: 3, Locked: 1, Deferred: 1, DeadLetter: 1})
}

// Many receivers at all members get each message once; a slow receiver does not keep
// the others from working (docs/requirements.md#c1, #c2).
func competing(s suite) {
	const receivers, messages = 9, 90
	slow := s.receiver(1)
	s.send(1)
	held := s.receiveOne(slow) // not settled until the end
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen, total, all := map[int64]int{}, 0, make(chan struct{})
	for i := range receivers {
		r := s.receiver(i%3 + 1)
		wg.Go(func() {
			for {
				select {
				case <-all:
					return
				default:
				}
				got, err := receiveBriefly(s, r, 3)
				if err != nil {
					s.Errorf("receiver %d: %v", i, err)
					return
				}
				for _, m := range got {
					if err := r.CompleteMessage(s.ctx, m, nil); err != nil {
						s.Errorf("complete %d: %v", *m.SequenceNumber, err)
					}
					mu.Lock()
					seen[*m.SequenceNumber]++
					if total++; total == messages {
						close(all)
					}
					mu.Unlock()
				}
			}
		})
	}
	s.send(messages)
	wg.Wait()
	for sequence, times := range seen {
		if times != 1 || sequence == *held.SequenceNumber {
			s.Errorf("message %d was received %d times", sequence, times)
		}
	}
	s.must("complete the held one", slow.CompleteMessage(s.ctx, held, nil))
	s.counts(harness.Counts{})
}
