package fsm_test

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// newReturn makes a topic 1 that detects duplicates, with subscriptions 2 and 3, which have no rule any longer, another topic 5 with
// subscription 6, and a dead letter at subscription 3. It returns the lock of the dead letter.
func newReturn(t *testing.T) (*between, fsm.LockID) {
	t.Helper()
	b := newBetween(t)
	b.put(99, 1, nil)
	s := fsm.DefaultSettings()
	for _, topic := range []fsm.EntityID{1, 5} {
		unique := s
		unique.RequiresDuplicateDetection = true
		b.must(fsm.PutEntity{Entity: topic, Version: 1, Settings: unique, Kind: fsm.TopicEntity})
		b.must(fsm.PutEntity{Entity: topic + 1, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: topic})
	}
	b.must(fsm.PutEntity{Entity: 3, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 1})
	b.send(1, 1, fsm.Message{ID: "m", Payload: []byte("bad")})
	first := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 3}, Max: 1, MaxBytes: 1 << 20}).Deliveries[0]
	b.must(settleIn(fsm.Address{Entity: 3}, fsm.DeadLetter, first.Lock))
	for _, id := range []fsm.EntityID{2, 3} {
		b.must(fsm.DropRule{Subscription: id, Name: "$Default"})
	}
	return b, b.must(fsm.LockMessages{Address: fsm.Address{Entity: 3, Sub: fsm.DeadLetterQueue}, Max: 1, MaxBytes: 1 << 20}).Deliveries[0].Lock
}

// returned is a transaction that sends a message to one subscription, and deletes its dead letter.
func returned(lock fsm.LockID, m fsm.Message) fsm.Transact {
	return fsm.Transact{
		Settles: []fsm.SettleMessages{settleIn(fsm.Address{Entity: 3, Sub: fsm.DeadLetterQueue}, fsm.Complete, lock)},
		Sends:   []fsm.SendMessages{{Entity: 1, Messages: []fsm.Message{m}}},
	}
}

// TestChangedDeadLetterReturnsToItsSubscriptionAlone: neither its rules nor the ids that the topic remembers decide, no other subscription
// gets it, and its body goes with its only copy.
func TestChangedDeadLetterReturnsToItsSubscriptionAlone(t *testing.T) {
	t.Parallel()
	b, lock := newReturn(t)
	b.must(returned(lock, fsm.Message{ID: "m", Payload: []byte("mended"), Only: 3}))
	for id, want := range map[fsm.EntityID]string{2: "bad", 3: "mended"} {
		if got, _ := b.ready(id); !slices.Equal(got, []string{want}) {
			t.Errorf("subscription %d has %v, want %q", id, got, want)
		}
	}
	if c := b.counts(3); c.DeadLetter != 0 {
		t.Errorf("%d dead letters are left, want none", c.DeadLetter)
	}
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("an image loses something")
	}
	for _, id := range []fsm.EntityID{2, 3} {
		d := b.must(fsm.LockMessages{Address: fsm.Address{Entity: id}, Max: 1, MaxBytes: 1 << 20}).Deliveries[0]
		b.must(settleIn(fsm.Address{Entity: id}, fsm.Complete, d.Lock))
	}
	if c := b.counts(1); c.Bytes != 0 {
		t.Errorf("the topic holds %d bytes after all copies are completed, want none", c.Bytes)
	}
}

// TestMessageForOneSubscriptionIsChecked: the subscription is one of the topic, and the message is due.
func TestMessageForOneSubscriptionIsChecked(t *testing.T) {
	t.Parallel()
	b, lock := newReturn(t)
	toQueue := returned(lock, fsm.Message{Only: 3})
	toQueue.Sends[0].Entity = 99
	refuse(t, b, map[string]refusal{
		"of another topic": {returned(lock, fsm.Message{Only: 6}), fsm.EntityNotFound},
		"of none":          {returned(lock, fsm.Message{Only: 7}), fsm.EntityNotFound},
		"a topic":          {returned(lock, fsm.Message{Only: 1}), fsm.EntityNotFound},
		"at a queue":       {toQueue, fsm.InvalidArgument},
		"scheduled":        {returned(lock, fsm.Message{Only: 3, EnqueueAt: b.env.Now + 60_000}), fsm.InvalidArgument},
	})
}

// TestMessageForOneSubscriptionHasAQuota: an id that the topic remembers makes no message that is stored free.
func TestMessageForOneSubscriptionHasAQuota(t *testing.T) {
	t.Parallel()
	b, lock := newReturn(t)
	s := fsm.DefaultSettings()
	s.RequiresDuplicateDetection, s.MaxBytes, s.MaxMessageBytes = true, 1<<20, 1<<21
	b.must(fsm.PutEntity{Entity: 1, Version: 2, Settings: s, Kind: fsm.TopicEntity})
	refuse(t, b, map[string]refusal{"beyond the quota": {returned(lock, fsm.Message{ID: "m", Payload: make([]byte, 1<<20+1), Only: 3}), fsm.QuotaExceeded}})
}
