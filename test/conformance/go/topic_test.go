package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func topicChecks() []check {
	return []check{
		{name: "publish", run: publish},
		{name: "publish batches", run: publishBatches},
		{name: "publish content", run: publishContent},
		{name: "no subscription", run: noSubscription},
		{name: "settle copies", run: settleCopies},
		{name: "settle copies elsewhere", run: settleCopiesElsewhere},
		{name: "take copies", run: receiveAndDeleteCopies},
		{name: "peek copies", run: peekCopies},
		{name: "delivery counts of copies", run: deliveryCountsOfCopies},
		{name: "locks of copies", run: locksOfCopies},
		{name: "fifty subscriptions", run: fiftySubscriptions},
		{name: "compete", run: competeForCopies},
		{name: "wrong ends", run: wrongEnds},
		{name: "names of topics", run: namesOfTopics},
		{name: "subscription goes", run: subscriptionIsDeleted},
		{name: "topic goes", run: topicIsDeleted},
	}
}

// Messages sent to a topic arrive in order in each of its subscriptions, at another member,
// under their own numbers; settling the copies of one subscription does not affect those of another.
func publish(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	topic.send(5)
	a.counts(harness.Counts{Active: 5})
	b.counts(harness.Counts{Active: 5})
	for i, m := range a.gets(2, "m1", "m2", "m3", "m4", "m5") {
		if *m.SequenceNumber != int64(i+1) || string(m.Body) != "body of "+m.MessageID || m.DeliveryCount != 1 {
			s.Errorf("%s came as number %d with body %q, delivery count %d", m.MessageID, *m.SequenceNumber, m.Body, m.DeliveryCount)
		}
	}
	b.counts(harness.Counts{Active: 5})
	late := topic.subscription("late", harness.Settings{})
	b.gets(3, "m1", "m2", "m3", "m4", "m5")
	topic.send(1)
	late.gets(1, "m1") // from the messages after its creation on
	a.gets(2, "m1")
	for _, m := range b.gets(3, "m1") {
		if *m.SequenceNumber != 6 {
			s.Errorf("the sixth message has number %d", *m.SequenceNumber)
		}
	}
	s.WaitTopicCounts(s.T, topic.queue, harness.Counts{Subscriptions: 3})
}

// A batch sent to a topic arrives as a batch at each subscription.
func publishBatches(s suite) {
	const batches, each = 5, 100
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{LockDuration: lockLong}), topic.subscription("b", harness.Settings{LockDuration: lockLong})
	sender := topic.sender(1)
	var want []string
	for n := range batches {
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must("new batch", err)
		for i := range each {
			id := fmt.Sprintf("%d-%d", n, i)
			want = append(want, id)
			s.must("add", batch.AddMessage(&azservicebus.Message{MessageID: &id, Body: []byte(id)}, nil))
		}
		s.must("send batch", sender.SendMessageBatch(s.ctx, batch, nil))
	}
	a.gets(2, want...)
	b.gets(3, want...)
}

// The subscription delivers the content that the sender set, unchanged.
func publishContent(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{}, harness.Rule{Name: "all", SQL: "sys.Label = 'the subject'"})
	sent := &azservicebus.Message{
		MessageID: ptr("the id"), Body: []byte("the body"), ContentType: ptr("text/plain"), CorrelationID: ptr("the correlation"),
		Subject: ptr("the subject"), To: ptr("the destination"), ReplyTo: ptr("the reply queue"), ReplyToSessionID: ptr("the reply session"),
		SessionID: ptr("the session"), PartitionKey: ptr("the session"), TimeToLive: ptr(time.Hour),
		ApplicationProperties: map[string]any{
			"string": "text", "int32": int32(-32), "int64": int64(1 << 40), "float": 1.5, "yes": true, "uint8": uint8(8),
			"time": time.UnixMilli(1_700_000_000_123).UTC(), "binary": []byte{0, 1, 2}, "null": nil,
		},
	}
	s.must("send", topic.sender(1).SendMessage(s.ctx, sent, nil))
	got := a.receiveOne(a.receiver(2)).Message()
	if diff := cmp.Diff(sent, got); diff != "" {
		s.Errorf("message (-want +got)\n%s", diff)
	}
	for name, body := range map[string]azservicebus.AMQPAnnotatedMessageBody{
		"value": {Value: map[string]any{"k": "v"}}, "sequence": {Sequence: [][]any{{"a", int64(1)}, {true}}},
	} {
		s.must("send "+name, topic.sender(1).SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{
			Body: body, Properties: &azservicebus.AMQPAnnotatedMessageProperties{Subject: ptr("the subject")},
		}, nil))
		got := a.receiveOne(a.receiver(3))
		if diff := cmp.Diff(body, got.RawAMQPMessage.Body); diff != "" {
			s.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// A message without a matching subscription is accepted and dropped.
func noSubscription(s suite) {
	topic := s.topic(nil)
	topic.send(3)
	a := topic.subscription("a", harness.Settings{})
	topic.send(1)
	a.gets(2, "m1")
	a.nothing(a.receiver(3))
}

// Each kind of settlement has the same effect on a copy as on a message of a queue, and no effect
// on the copies of other subscriptions.
func settleCopies(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	topic.send(4)
	r := a.receiver(2)
	held := a.receive(r, 4)
	a.counts(harness.Counts{Active: 4, Locked: 4})
	s.must("complete", r.CompleteMessage(s.ctx, held[0], nil))
	s.must("abandon", r.AbandonMessage(s.ctx, held[1], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": "once"}}))
	s.must("defer", r.DeferMessage(s.ctx, held[2], nil))
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, held[3], &azservicebus.DeadLetterOptions{Reason: ptr("why"), ErrorDescription: ptr("because")}))
	a.counts(harness.Counts{Active: 1, Deferred: 1, DeadLetter: 1})
	b.counts(harness.Counts{Active: 4})

	again := a.receiveOne(r)
	if again.MessageID != "m2" || again.DeliveryCount != 2 || again.ApplicationProperties["tried"] != "once" {
		s.Errorf("abandoned came %s, delivery count %d, properties %v", again.MessageID, again.DeliveryCount, again.ApplicationProperties)
	}
	s.must("complete again", r.CompleteMessage(s.ctx, again, nil))
	deferred, err := a.receiver(3).ReceiveDeferredMessages(s.ctx, []int64{*held[2].SequenceNumber}, nil)
	s.must("receive deferred", err)
	if len(deferred) != 1 || deferred[0].MessageID != "m3" {
		s.Fatalf("deferred came %v", ids(deferred))
	}
	s.must("complete deferred", a.receiver(1).CompleteMessage(s.ctx, deferred[0], nil))
	dead := a.deadLetters(3)
	d := a.receiveOne(dead)
	if d.MessageID != "m4" || d.DeadLetterReason == nil || *d.DeadLetterReason != "why" || d.DeadLetterErrorDescription == nil || *d.DeadLetterErrorDescription != "because" {
		s.Errorf("dead letter %s, reason %v, description %v", d.MessageID, d.DeadLetterReason, d.DeadLetterErrorDescription)
	}
	s.must("complete dead letter", dead.CompleteMessage(s.ctx, d, nil))
	a.counts(harness.Counts{})
	for _, m := range b.gets(3, "m1", "m2", "m3", "m4") {
		if m.DeliveryCount != 1 || len(m.ApplicationProperties) != 0 || m.DeadLetterReason != nil {
			s.Errorf("%s beside came with delivery count %d, properties %v", m.MessageID, m.DeliveryCount, m.ApplicationProperties)
		}
	}
}

// Lock tokens alone settle copies, at members that have not delivered them (docs/requirements.md#t9 to #t13).
func settleCopiesElsewhere(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	topic.send(4)
	settleHeldElsewhere(a)
}

// Receive-and-delete removes only the copy of its subscription.
func receiveAndDeleteCopies(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	topic.send(3)
	r := a.receiverWith(2, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if diff := cmp.Diff([]string{"m1", "m2", "m3"}, ids(a.receive(r, 3))); diff != "" {
		s.Errorf("taken (-want +got)\n%s", diff)
	}
	a.counts(harness.Counts{})
	b.gets(3, "m1", "m2", "m3")
}

// Peek shows the copies of a subscription; those of its dead-letter queue are shown separately.
func peekCopies(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	topic.send(5)
	r := a.receiver(2)
	held := a.receive(r, 3)
	s.must("defer", r.DeferMessage(s.ctx, held[1], nil))
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, held[2], nil))
	peeked, err := a.receiver(3).PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	if diff := cmp.Diff([]string{"m1", "m2", "m4", "m5"}, ids(peeked)); diff != "" {
		s.Errorf("peeked (-want +got)\n%s", diff)
	}
	if peeked[1].State != azservicebus.MessageStateDeferred || string(peeked[3].Body) != "body of m5" {
		s.Errorf("peeked the second in state %v, the last with body %q", peeked[1].State, peeked[3].Body)
	}
	dead, err := a.deadLetters(1).PeekMessages(s.ctx, 10, nil)
	s.must("peek dead letters", err)
	if diff := cmp.Diff([]string{"m3"}, ids(dead)); diff != "" {
		s.Errorf("peeked dead letters (-want +got)\n%s", diff)
	}
	a.counts(harness.Counts{Active: 3, Locked: 1, Deferred: 1, DeadLetter: 1})
}

// Each subscription has its own delivery counts and maximum.
func deliveryCountsOfCopies(s suite) {
	topic := s.topic(nil)
	once := topic.subscription("once", harness.Settings{MaxDeliveryCount: 1})
	thrice := topic.subscription("thrice", harness.Settings{MaxDeliveryCount: 3})
	topic.send(1)
	for sub, times := range map[suite]int{once: 1, thrice: 3} {
		r := sub.receiver(2)
		for n := range times {
			m := sub.receiveOne(r)
			if m.DeliveryCount != uint32(n+1) {
				s.Errorf("delivery %d of %s has the count %d", n+1, sub.queue, m.DeliveryCount)
			}
			s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
		}
		sub.counts(harness.Counts{DeadLetter: 1})
		if d := sub.receiveOne(sub.deadLetters(3)); d.DeadLetterReason == nil || *d.DeadLetterReason != "MaxDeliveryCountExceeded" {
			s.Errorf("dead letter of %s has the reason %v", sub.queue, d.DeadLetterReason)
		}
	}
}

// Each subscription has its own lock duration; an expired lock is lost.
func locksOfCopies(s suite) {
	topic := s.topic(nil)
	brief := topic.subscription("brief", harness.Settings{LockDuration: lockMinimum})
	long := topic.subscription("long", harness.Settings{LockDuration: 2 * time.Minute})
	topic.send(1)
	r, other := brief.receiver(2), long.receiver(2)
	m, held := brief.receiveOne(r), long.receiveOne(other)
	if left := time.Until(*held.LockedUntil); left < 90*time.Second {
		s.Errorf("locked for %v, the subscription says 2m", left)
	}
	again := brief.receiveOne(brief.receiver(3)) // when the lock has expired
	if again.MessageID != m.MessageID || again.DeliveryCount != 2 {
		s.Errorf("after the lock came %s with delivery count %d", again.MessageID, again.DeliveryCount)
	}
	wantCode(s, "complete after the lock", r.CompleteMessage(s.ctx, m, nil), azservicebus.CodeLockLost)
	s.must("renew", other.RenewMessageLock(s.ctx, held, nil))
	s.must("complete", other.CompleteMessage(s.ctx, held, nil))
}

// Each of fifty subscriptions gets every message.
func fiftySubscriptions(s suite) {
	const subscriptions, messages = 50, 20
	topic := s.topic(nil)
	subs := make([]suite, subscriptions)
	for i := range subs {
		subs[i] = topic.subscription(fmt.Sprintf("s%02d", i), harness.Settings{LockDuration: lockLong})
	}
	topic.send(messages)
	want := make([]string, messages)
	for i := range want {
		want[i] = fmt.Sprintf("m%d", i+1)
	}
	client := s.client(3)
	for _, sub := range subs {
		_, name, _ := harness.SplitSubscriptionPath(sub.queue)
		r, err := client.NewReceiverForSubscription(topic.queue, name, nil)
		s.must("new receiver", err)
		got := s.receive(r, messages)
		if diff := cmp.Diff(want, ids(got)); diff != "" {
			s.Errorf("%s (-want +got)\n%s", sub.queue, diff)
		}
		for _, m := range got {
			s.must("complete", r.CompleteMessage(s.ctx, m, nil))
		}
		s.must("close", r.Close(s.ctx))
	}
	for _, sub := range subs {
		sub.counts(harness.Counts{})
	}
}

// Receivers at all members compete for the copies of one subscription; the only receiver of another
// subscription gets all of its copies.
func competeForCopies(s suite) {
	const all = 300
	topic := s.topic(nil)
	shared, alone := topic.subscription("shared", harness.Settings{LockDuration: lockLong}), topic.subscription("alone", harness.Settings{})
	topic.send(all)
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	ctx, done := context.WithCancel(s.ctx)
	defer done()
	for member := 1; member <= 3; member++ {
		r := shared.receiver(member)
		wg.Go(func() {
			for {
				some, err := r.ReceiveMessages(ctx, 20, nil)
				if err != nil {
					return // all have arrived, or the case has ended
				}
				for _, m := range some {
					if err := r.CompleteMessage(s.ctx, m, nil); err != nil {
						s.Errorf("complete %s: %v", m.MessageID, err)
					}
					mu.Lock()
					if got[m.MessageID]++; len(got) == all {
						done()
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for id, n := range got {
		if n != 1 {
			s.Errorf("%s came %d times", id, n)
		}
	}
	if len(got) != all {
		s.Errorf("%d messages came of %d", len(got), all)
	}
	shared.counts(harness.Counts{})
	alone.counts(harness.Counts{Active: all})
}

// Topics have no receivers; subscriptions and dead-letter queues accept no sends.
func wrongEnds(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	_, err := topic.receiver(2).ReceiveMessages(s.ctx, 1, nil)
	s.notAllowed("receive from a topic", err)
	for _, address := range []string{a.queue, a.queue + "/$DeadLetterQueue", a.queue + "/$Transfer/$DeadLetterQueue", s.queue + "/$DeadLetterQueue"} {
		sender, err := s.client(3).NewSender(address, nil)
		s.must("new sender", err)
		s.notAllowed("send to "+address, sender.SendMessage(s.ctx, &azservicebus.Message{}, nil))
	}
	if _, err := topic.receiver(1).PeekMessages(s.ctx, 1, nil); err == nil {
		s.Error("a topic was peeked at")
	}
	other := topic
	other.queue = harness.SubscriptionPath(topic.queue, "nobody")
	_, err = other.receiver(2).ReceiveMessages(s.ctx, 1, nil)
	wantCode(s, "unknown subscription", err, azservicebus.CodeNotFound)
	other.queue = harness.SubscriptionPath(s.queue, "a")
	_, err = other.receiver(2).ReceiveMessages(s.ctx, 1, nil)
	wantCode(s, "subscription of a queue", err, azservicebus.CodeNotFound)
	topic.send(1)
	a.gets(2, "m1")
}

// Topics and queues share one namespace and ignore case; each topic has its own namespace for
// subscriptions.
func namesOfTopics(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	put := func(what, path, status string) {
		s.Helper()
		err := s.Members[1].Call(s.ctx, "PUT", path, harness.Fields{}, nil)
		if err == nil || status != " 409 " && !strings.Contains(err.Error(), status) {
			s.Errorf("%s: %v, want %s", what, err, status)
		}
	}
	put("a queue of the topic's name", "/v1/queues/"+strings.ToUpper(topic.queue), " 409 ")
	put("a topic of the queue's name", "/v1/topics/"+s.queue, " 409 ")
	put("a queue within a topic", "/v1/queues/"+topic.queue+"/Subscriptions/b", " 400 ")
	spelled := a
	spelled.queue = strings.ToUpper(topic.queue) + "/subscriptions/A"
	topic.send(1)
	r, err := spelled.client(2).NewReceiverForQueue(spelled.queue, nil)
	s.must("new receiver", err)
	if m := s.receiveOne(r); m.MessageID != "m1" {
		s.Errorf("received %s", m.MessageID)
	}
}

// Deleting a subscription ends its receivers and removes its messages; a new one with the same name
// is empty. Other subscriptions are not affected.
func subscriptionIsDeleted(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	topic.send(3)
	r := a.receiver(2)
	a.receiveOne(r)
	s.DeleteQueue(s.T, a.queue)
	_, err := a.receiver(3).ReceiveMessages(s.ctx, 1, nil)
	s.gone("receive from what is gone", err)
	topic.send(1)
	topic.subscription("a", harness.Settings{})
	a.counts(harness.Counts{})
	b.counts(harness.Counts{Active: 4})
	topic.send(1)
	a.gets(3, "m1")
}

// Deleting a topic deletes its subscriptions, and the names can be used again.
func topicIsDeleted(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	topic.send(3)
	s.DeleteTopic(s.T, topic.queue)
	_, err := a.receiver(2).ReceiveMessages(s.ctx, 1, nil)
	s.gone("receive from what is gone", err)
	s.gone("send to what is gone", topic.sender(3).SendMessage(s.ctx, &azservicebus.Message{}, nil))
	again := s.topic(nil)
	fresh := again.subscription("a", harness.Settings{})
	again.send(1)
	fresh.gets(2, "m1")
	if a.queue != fresh.queue {
		s.Errorf("the names are %s and %s", a.queue, fresh.queue)
	}
}
