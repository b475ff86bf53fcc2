package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// short is the time to live of messages that a case lets expire: long enough to receive them
// before, on a machine that is busy with other cases.
const short = 2 * time.Second

// asDeadLetters makes a queue dead-letter expired messages.
func asDeadLetters() harness.Fields { return harness.Fields{"deadLetteringOnMessageExpiration": true} }

func timeToLiveChecks() []check {
	return []check{
		{name: "expires at", run: expiresAt},
		{name: "ceiling", settings: harness.Settings{More: harness.Fields{"defaultMessageTimeToLive": "30s"}}, run: ceiling},
		{name: "ceiling changed", run: ceilingChanged},
		{name: "expired are dropped", run: expiredAreDropped},
		{name: "expired are never delivered", settings: harness.Settings{LockDuration: time.Minute, More: asDeadLetters()}, run: expiredAreNeverDelivered},
		{name: "expired are dead-lettered", settings: harness.Settings{More: asDeadLetters()}, run: expiredAreDeadLettered},
		{name: "expiry and locks", settings: harness.Settings{LockDuration: lockMinimum, More: asDeadLetters()}, run: expiryAndLocks},
		{name: "expiry of deferred", settings: harness.Settings{More: asDeadLetters()}, run: expiryOfDeferred},
		{name: "dead-letter life", settings: harness.Settings{More: harness.Fields{"deadLetterTimeToLive": "10s"}}, run: deadLetterTimeToLive},
	}
}

// sendWith sends messages with these ids and this time to live to member 1; 0 means no expiry.
func (s suite) sendWith(life time.Duration, ids ...string) {
	s.Helper()
	sender := s.sender(1)
	for _, id := range ids {
		m := &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id), ApplicationProperties: map[string]any{"own": id}}
		if life != 0 {
			m.TimeToLive = &life
		}
		s.must("send "+id, sender.SendMessage(s.ctx, m, nil))
	}
}

// timeToLive returns the time to live of a message from its enqueued time on.
func timeToLive(m *azservicebus.ReceivedMessage) time.Duration {
	if m.ExpiresAt == nil || m.EnqueuedTime == nil {
		return 0
	}
	return m.ExpiresAt.Sub(*m.EnqueuedTime)
}

// A message expires a fixed time after it was enqueued: its time to live (docs/requirements.md#e1).
func expiresAt(s suite) {
	before := time.Now()
	s.sendWith(time.Minute, "a minute")
	s.sendWith(0, "forever")
	r := s.receiver(2)
	for _, m := range s.receive(r, 2) {
		want := map[string]time.Duration{"a minute": time.Minute, "forever": 0}[m.MessageID]
		if got := timeToLive(m); got != want {
			s.Errorf("%q lives for %v, want %v", m.MessageID, got, want)
		}
		if m.EnqueuedTime.Before(before.Add(-time.Second)) || m.EnqueuedTime.After(time.Now().Add(time.Second)) {
			s.Errorf("%q was enqueued at %v, sent at %v", m.MessageID, m.EnqueuedTime, before)
		}
		first := m.ExpiresAt
		s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
		again := s.receiveOne(r)
		if diff := cmp.Diff(first, again.ExpiresAt); diff != "" || again.MessageID != m.MessageID {
			s.Errorf("%q after the abandon: %q, expiry (-before +after)\n%s", m.MessageID, again.MessageID, diff)
		}
		s.must("complete", r.CompleteMessage(s.ctx, again, nil))
	}
}

// The queue's time to live is the default for messages without one, and silently limits
// longer ones (docs/requirements.md#e4).
func ceiling(s suite) {
	s.sendWith(0, "none")
	s.sendWith(time.Hour, "more")
	s.sendWith(10*time.Second, "less")
	want := map[string]time.Duration{"none": 30 * time.Second, "more": 30 * time.Second, "less": 10 * time.Second}
	for _, m := range s.receive(s.receiver(2), 3) {
		if got := timeToLive(m); got != want[m.MessageID] {
			s.Errorf("%q lives for %v, want %v", m.MessageID, got, want[m.MessageID])
		}
		if m.TimeToLive == nil || *m.TimeToLive != want[m.MessageID] {
			s.Errorf("%q has the time to live %v, want %v", m.MessageID, m.TimeToLive, want[m.MessageID])
		}
	}
}

// A changed time to live of the queue applies to later messages only (docs/requirements.md#e1, #e4).
func ceilingChanged(s suite) {
	s.sendWith(0, "before")
	s.UpdateQueue(s.T, s.queue, harness.Fields{"defaultMessageTimeToLive": "45s"})
	s.sendWith(0, "after")
	want := map[string]time.Duration{"before": 0, "after": 45 * time.Second}
	for _, m := range s.receive(s.receiver(3), 2) {
		if got := timeToLive(m); got != want[m.MessageID] {
			s.Errorf("%q lives for %v, want %v", m.MessageID, got, want[m.MessageID])
		}
	}
}

// Expired messages are removed automatically, without receivers, from anywhere in the queue (docs/requirements.md#e2).
func expiredAreDropped(s suite) {
	s.sendWith(short, "short 1")
	s.sendWith(0, "long 1")
	s.sendWith(short, "short 2", "short 3")
	s.sendWith(0, "long 2")
	s.counts(harness.Counts{Active: 2})
	r := s.receiver(2)
	if diff := cmp.Diff([]string{"long 1", "long 2"}, ids(s.receive(r, 2))); diff != "" {
		s.Errorf("left (-want +got)\n%s", diff)
	}
	peeked, err := s.receiver(3).PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	if len(peeked) != 2 {
		s.Errorf("peeked %v", ids(peeked))
	}
}

// A receiver gets only messages that have not expired, even while messages expire during its
// requests, and each message goes either to it or to the dead-letter queue (docs/requirements.md#e2, #e6).
func expiredAreNeverDelivered(s suite) {
	const n = 2000
	r := s.receiver(2)
	sender := s.sender(1)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	for i := range n { // they expire one after the other, over two seconds
		id, life := fmt.Sprint(i), time.Duration(i+1)*short/n
		s.must("add", batch.AddMessage(&azservicebus.Message{MessageID: &id, TimeToLive: &life}, nil))
	}
	s.must("send", sender.SendMessageBatch(s.ctx, batch, nil))
	seen := map[string]int{}
	for {
		m, err := receiveBriefly(s, r, 5)
		s.must("receive", err)
		for _, m := range m {
			if granted := m.LockedUntil.Add(-time.Minute); !granted.Before(*m.ExpiresAt) {
				s.Errorf("%s was locked at %v and expired at %v", m.MessageID, granted, m.ExpiresAt)
			}
			seen[m.MessageID]++
			s.must("complete", r.CompleteMessage(s.ctx, m, nil))
		}
		q, err := s.Members[1].Queue(s.ctx, s.queue)
		s.must("counts", err)
		if q.Counts.Active == 0 {
			break
		}
	}
	delivered := len(seen)
	s.counts(harness.Counts{DeadLetter: uint64(n - delivered)})
	if delivered < n {
		for _, m := range s.receive(s.deadLetters(3), n-delivered) {
			seen[m.MessageID]++
		}
	}
	for id, times := range seen {
		if times != 1 {
			s.Errorf("%s came %d times", id, times)
		}
	}
	s.Logf("%d were delivered, %d expired", delivered, n-delivered)
}

// With dead-lettering on expiration, an expired message arrives in the dead-letter queue once,
// with the reason among its properties, and stays there (docs/requirements.md#e5, #e6).
func expiredAreDeadLettered(s suite) {
	s.sendWith(short, "job")
	s.counts(harness.Counts{DeadLetter: 1})
	s.nothing(s.receiver(1))
	dlq := s.deadLetters(2)
	m := s.receiveOne(dlq)
	if m.MessageID != "job" || string(m.Body) != "body of job" || m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" ||
		m.DeadLetterErrorDescription == nil || *m.DeadLetterErrorDescription == "" {
		s.Errorf("dead letter %s %q, reason %v, description %v", m.MessageID, m.Body, m.DeadLetterReason, m.DeadLetterErrorDescription)
	}
	if m.ApplicationProperties["DeadLetterReason"] != "TTLExpiredException" || m.ApplicationProperties["own"] != "job" {
		s.Errorf("properties %v", m.ApplicationProperties)
	}
	s.must("abandon", dlq.AbandonMessage(s.ctx, m, nil)) // it expired long ago, which has no effect here
	m = s.receiveOne(s.deadLetters(3))
	s.must("complete", dlq.CompleteMessage(s.ctx, byToken(m), nil))
	s.counts(harness.Counts{})
}

// A locked message survives its expiry and may be renewed and completed; it expires when
// it is abandoned or released, or when its lock expires (docs/requirements.md#e3).
func expiryAndLocks(s suite) {
	r := s.receiver(2)
	link := s.amqpReceiver(3, &amqp.ReceiverOptions{Credit: 1})
	life := 2 * s.pace
	locked := s.until(time.Now().Add(s.lock()))
	early := s.until(time.Now().Add(life))
	s.sendWith(life, "released")
	released := early.get(link)
	early = s.until(time.Now().Add(life))
	s.sendWith(life, "completed", "abandoned", "left")
	held := early.receive(r, 3)
	s.sendWith(life, "witness") // expires after all of them
	locked.counts(harness.Counts{Active: 4, Locked: 4, DeadLetter: 1})

	locked.must("renew", r.RenewMessageLock(s.ctx, held[0], nil))
	locked.must("complete", r.CompleteMessage(s.ctx, held[0], nil))
	locked.counts(harness.Counts{Active: 3, Locked: 3, DeadLetter: 1})
	locked.must("abandon", r.AbandonMessage(s.ctx, held[1], nil))
	locked.counts(harness.Counts{Active: 2, Locked: 2, DeadLetter: 2})
	locked.must("release", link.ReleaseMessage(s.ctx, released))
	locked.counts(harness.Counts{Active: 1, Locked: 1, DeadLetter: 3})
	s.counts(harness.Counts{DeadLetter: 4}) // when the last lock expires
	if at := *held[2].LockedUntil; time.Now().Before(at.Add(-time.Second)) {
		s.Errorf("the lock ended before %v", at)
	}
	wantCode(s, "complete after all", r.CompleteMessage(s.ctx, held[2], nil), azservicebus.CodeLockLost)
	got := map[string]bool{}
	for _, m := range s.receive(s.deadLetters(1), 4) {
		got[m.MessageID] = true
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
			s.Errorf("%s has the reason %v", m.MessageID, m.DeadLetterReason)
		}
	}
	if diff := cmp.Diff(map[string]bool{"released": true, "abandoned": true, "left": true, "witness": true}, got); diff != "" {
		s.Errorf("dead letters (-want +got)\n%s", diff)
	}
}

// A deferred message stays when it expires, until a client asks for it: then the request finds
// nothing, and the message is dead-lettered.
func expiryOfDeferred(s suite) {
	life := 2 * s.pace
	early := s.until(time.Now().Add(life))
	s.sendWith(life, "deferred")
	r := s.receiver(2)
	m := early.receiveOne(r)
	s.must("defer", r.DeferMessage(s.ctx, m, nil))
	early.inTime()
	s.sendWith(short, "witness")
	s.counts(harness.Counts{Deferred: 1, DeadLetter: 1})
	got, err := s.receiver(3).ReceiveDeferredMessages(s.ctx, []int64{*m.SequenceNumber}, nil)
	if len(got) != 0 {
		s.Errorf("an expired message was fetched: %v, %v", ids(got), err)
	}
	s.counts(harness.Counts{DeadLetter: 2})
}

// The time to live of dead letters starts when they are dead-lettered.
func deadLetterTimeToLive(s suite) {
	s.send(2)
	r := s.receiver(2)
	m := s.receive(r, 2)
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, m[0], nil))
	held := s.receiveOne(s.deadLetters(3)) // a locked message stays
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, m[1], nil))
	s.counts(harness.Counts{DeadLetter: 1})
	s.must("complete the one held", s.deadLetters(1).CompleteMessage(s.ctx, byToken(held), nil))
	s.counts(harness.Counts{})
}

// witnessed logs how late an event was observed; it asserts nothing, because machines differ.
func (s suite) witnessed(what string, due, seen time.Time) {
	s.Helper()
	s.Logf("%s: %v late", what, seen.Sub(due).Round(time.Millisecond))
}

// notBefore asserts that something did not happen too early; both times are from the same clock.
func (s suite) notBefore(what string, due, seen time.Time) {
	s.Helper()
	if seen.Before(due.Truncate(time.Millisecond)) {
		s.Errorf("%s came %v before its time", what, due.Sub(seen))
	}
}

// conditionOf returns the AMQP condition within an error, or its text.
func conditionOf(err error) string {
	var remote *amqp.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &remote):
		return string(remote.Condition)
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return err.Error()
}
