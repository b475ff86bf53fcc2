package conformance

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func lockChecks() []check {
	short := harness.Settings{LockDuration: lockMinimum}
	return []check{
		{name: "late", settings: short, run: late},
		{name: "renew", settings: short, run: renew},
		{name: "exclusive", run: exclusive},
		{name: "settle by token", run: settleByToken},
		{name: "lock outlives its connection", run: lockOutlivesConnection},
		{name: "consumer that fails", settings: short, run: consumerThatFails},
	}
}

// byToken returns what another process needs to settle a message.
func byToken(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{LockToken: m.LockToken}
}

// receiveBriefly receives for a moment; receiving nothing is not an error.
func receiveBriefly(s suite, r *azservicebus.Receiver, n int) ([]*azservicebus.ReceivedMessage, error) {
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	got, err := r.ReceiveMessages(ctx, n, nil)
	if ctx.Err() != nil { // whatever error a client reports that may still have been connecting
		err = nil
	}
	return got, err
}

// After its lock has expired, a message is delivered to another receiver with one more
// delivery counted. All requests of the first holder are refused with the SDK's error for
// a lost lock; the second holder is not affected (docs/requirements.md#t7, #t13, #c3).
func late(s suite) {
	s.send(2)
	first, second := s.receiver(2), s.receiver(3)
	old := s.receiveOne(first)
	again := s.receive(second, 2) // the other message at once, then the expired one
	var m *azservicebus.ReceivedMessage
	for _, got := range again {
		if got.MessageID == old.MessageID {
			m = got
		}
	}
	if m == nil {
		s.Fatalf("received %v, not the expired %s", ids(again), old.MessageID)
	}
	if m.DeliveryCount != 2 {
		s.Errorf("delivery count %d after one lock ran out", m.DeliveryCount)
	}
	if now := time.Now(); now.Before(*old.LockedUntil) {
		s.Errorf("given to another %v before the end of its lock", old.LockedUntil.Sub(now))
	}
	wantCode(s, "late renew", first.RenewMessageLock(s.ctx, old, nil), azservicebus.CodeLockLost)
	wantCode(s, "late complete", first.CompleteMessage(s.ctx, old, nil), azservicebus.CodeLockLost)
	for name, settle := range map[string]func(*azservicebus.Receiver) error{
		"complete":    func(r *azservicebus.Receiver) error { return r.CompleteMessage(s.ctx, byToken(old), nil) },
		"abandon":     func(r *azservicebus.Receiver) error { return r.AbandonMessage(s.ctx, byToken(old), nil) },
		"defer":       func(r *azservicebus.Receiver) error { return r.DeferMessage(s.ctx, byToken(old), nil) },
		"dead-letter": func(r *azservicebus.Receiver) error { return r.DeadLetterMessage(s.ctx, byToken(old), nil) },
	} {
		wantCode(s, "late "+name+" by token", settle(s.receiver(1)), azservicebus.CodeLockLost)
	}
	s.until(*m.LockedUntil).must("complete by the second holder", second.CompleteMessage(s.ctx, m, nil))
}

// A renewed lock is valid beyond its first expiry (docs/requirements.md#t6).
func renew(s suite) {
	s.send(1)
	r, other := s.receiver(2), s.receiver(3)
	m := s.receiveOne(r)
	firstEnd := *m.LockedUntil
	deadline := firstEnd.Add(s.lock() / 2)
	for time.Now().Before(deadline) {
		before := *m.LockedUntil
		s.until(before).must("renew", r.RenewMessageLock(s.ctx, m, nil))
		if m.LockedUntil.Before(before) {
			s.Errorf("renewed from %v to %v", before, *m.LockedUntil)
		}
		s.nothing(other)
	}
	if !m.LockedUntil.After(firstEnd) {
		s.Errorf("the lock ends at %v, as before the renewals", firstEnd)
	}
	s.until(*m.LockedUntil).must("complete after the first end", r.CompleteMessage(s.ctx, m, nil))
	s.counts(harness.Counts{})
}

// A locked message is hidden from other receivers, which get the next ones (docs/requirements.md#t5).
func exclusive(s suite) {
	s.send(3)
	holder := s.receiver(2)
	if m := s.receiveOne(holder); m.MessageID != "m1" {
		s.Errorf("received %s first", m.MessageID)
	}
	got := s.receive(s.receiver(3), 2)
	if diff := cmp.Diff([]string{"m2", "m3"}, ids(got)); diff != "" {
		s.Errorf("(-want +got)\n%s", diff)
	}
	s.nothing(s.receiver(1))
	s.counts(harness.Counts{Active: 3, Locked: 3})
}

// Any member settles and renews with the lock token alone: a lock is an entry of the
// log, and not a property of a connection (docs/requirements.md#t13).
func settleByToken(s suite) {
	s.send(4)
	m := s.receive(s.receiver(2), 4)
	other := s.receiver(3)
	s.must("renew", other.RenewMessageLock(s.ctx, byToken(m[0]), nil))
	s.must("complete", other.CompleteMessage(s.ctx, byToken(m[0]), nil))
	s.must("abandon", other.AbandonMessage(s.ctx, byToken(m[1]), &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"by": "token"}}))
	s.must("defer", other.DeferMessage(s.ctx, byToken(m[2]), nil))
	s.must("dead-letter", other.DeadLetterMessage(s.ctx, byToken(m[3]), &azservicebus.DeadLetterOptions{
		Reason: ptr("by token"), ErrorDescription: ptr("far away"),
	}))
	s.counts(harness.Counts{Active: 1, Deferred: 1, DeadLetter: 1})
	if back := s.receiveOne(s.receiver(1)); back.MessageID != m[1].MessageID || back.ApplicationProperties["by"] != "token" || back.DeliveryCount != 2 {
		s.Errorf("abandoned by token: %s, %v, delivery count %d", back.MessageID, back.ApplicationProperties, back.DeliveryCount)
	}
	if dead := s.receiveOne(s.deadLetters(1)); dead.DeadLetterReason == nil || *dead.DeadLetterReason != "by token" {
		s.Errorf("dead-lettered by token: reason %v", dead.DeadLetterReason)
	}
	forged := byToken(m[0])
	forged.LockToken[3] ^= 0x40
	wantCode(s, "complete with a forged token", other.CompleteMessage(s.ctx, forged, nil), azservicebus.CodeLockLost)
}

// The end of its connection does not end a lock (docs/requirements.md#t14): no other receiver gets the
// message, and its token still settles it.
func lockOutlivesConnection(s suite) {
	s.send(1)
	client := s.client(2)
	r, err := client.NewReceiverForQueue(s.queue, nil)
	s.must("new receiver", err)
	m := s.receiveOne(r)
	s.must("close", client.Close(s.ctx))
	other := s.receiver(3)
	s.nothing(other)
	s.counts(harness.Counts{Active: 1, Locked: 1})
	s.must("complete from elsewhere", other.CompleteMessage(s.ctx, byToken(m), nil))
	s.counts(harness.Counts{})
}

// A consumer disappears without notice: its lock expires and another one gets the message (docs/requirements.md#c3).
func consumerThatFails(s suite) {
	s.send(1)
	client := s.client(2)
	r, err := client.NewReceiverForQueue(s.queue, nil)
	s.must("new receiver", err)
	s.receiveOne(r)
	s.must("close", client.Close(s.ctx))
	m := s.receiveOne(s.receiver(3))
	if m.DeliveryCount != 2 {
		s.Errorf("delivery count %d, want 2", m.DeliveryCount)
	}
}
