package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// hopsMax is the maximum number of times that a message is forwarded.
const hopsMax = 4

// forwardingTo returns the settings of an entity that forwards its messages.
func forwardingTo(to suite) harness.Fields { return harness.Fields{"forwardTo": to.queue} }

func forwardChecks() []check {
	return []check{
		{name: "queue to queue", run: queueToQueue},
		{name: "queue to topic", run: queueToTopic},
		{name: "subscription to queue", run: subscriptionToQueue},
		{name: "dead letters", run: forwardDeadLetters},
		{name: "dead letters of a subscription", run: forwardDeadLettersOfSubscription},
		{name: "backlog", run: forwardBacklog},
		{name: "held while forwarding begins", run: heldWhileForwarding},
		{name: "edits", run: editForwarding},
		{name: "refused", run: refusedWhileForwarding},
		{name: "settings", run: settingsOfForwarding},
		{name: "scheduled", run: forwardScheduled},
		{name: "lives", run: forwardTimeToLive},
		{name: "duplicates", run: forwardDuplicates},
		{name: "hops", run: hops},
		{name: "circle", run: circle},
		{name: "fan in", run: fanIn},
	}
}

// firstNumber returns the number under which a message was first enqueued, which it has only if that differs from
// its own.
func firstNumber(m *azservicebus.ReceivedMessage) int64 {
	if m.EnqueuedSequenceNumber != nil {
		return *m.EnqueuedSequenceNumber
	}
	return *m.SequenceNumber
}

// Messages sent to a forwarding queue arrive at the other queue in order, whole and once, with
// the sequence number under which they were first enqueued.
func queueToQueue(s suite) {
	source := s
	to := s.another("to", source, harness.Settings{})
	to.sendWith(0, "before") // so that the numbers differ
	s.UpdateQueue(s.T, source.queue, forwardingTo(to))
	source.sendWith(time.Hour, "m1", "m2", "m3")
	source.counts(harness.Counts{})
	for i, m := range to.gets(2, "before", "m1", "m2", "m3") {
		original := max(1, int64(i))
		if *m.SequenceNumber != int64(i+1) || firstNumber(m) != original {
			s.Errorf("%s has number %d, was first enqueued under %d, want %d", m.MessageID, *m.SequenceNumber, firstNumber(m), original)
		}
		if string(m.Body) != "body of "+m.MessageID || m.ApplicationProperties["own"] != m.MessageID || m.DeliveryCount != 1 || m.DeadLetterSource != nil {
			s.Errorf("%s came with body %q, properties %v, delivery count %d, source %v", m.MessageID, m.Body, m.ApplicationProperties, m.DeliveryCount, m.DeadLetterSource)
		}
	}
}

// A queue forwards to a topic, whose rules then select the subscriptions.
func queueToTopic(s suite) {
	topic := s.topic(nil)
	large := topic.subscription("large", harness.Settings{}, harness.Rule{Name: "large", SQL: "quantity > 50"})
	orange := topic.subscription("orange", harness.Settings{}, harness.Rule{
		Name: "paint", Conditions: harness.Fields{"color": "red"}, Action: "SET color = 'orange'",
	})
	all := topic.subscription("all", harness.Settings{})
	s.UpdateQueue(s.T, s.queue, forwardingTo(topic))
	s.publishAll(orders())
	s.counts(harness.Counts{})
	large.gets(2, "large")
	painted := orange.gets(3, "small")[0]
	if painted.ApplicationProperties["color"] != "orange" || painted.ApplicationProperties["RuleName"] != "paint" || painted.ApplicationProperties["quantity"] != int64(1) {
		s.Errorf("the copy has the properties %v", painted.ApplicationProperties)
	}
	for i, m := range all.gets(1, "small", "large", "odd", "plain") {
		if firstNumber(m) != int64(i+1) || m.ApplicationProperties["RuleName"] != nil {
			s.Errorf("%s was first enqueued under %d, want %d; properties %v", m.MessageID, firstNumber(m), i+1, m.ApplicationProperties)
		}
	}
}

// A subscription forwards its copies with the changes that its rules made.
func subscriptionToQueue(s suite) {
	topic := s.topic(nil)
	beside := topic.subscription("beside", harness.Settings{})
	to := topic.another("to", beside, harness.Settings{})
	from := topic.subscription("from", harness.Settings{More: forwardingTo(to)},
		harness.Rule{Name: "paint", SQL: "color = 'red'", Action: "SET color = 'orange'; SET sys.Label = 'painted'"})
	topic.publishAll(orders())
	from.counts(harness.Counts{})
	m := to.gets(2, "small")[0]
	if m.ApplicationProperties["color"] != "orange" || m.ApplicationProperties["RuleName"] != "paint" || *m.Subject != "painted" {
		s.Errorf("came with subject %q and properties %v", *m.Subject, m.ApplicationProperties)
	}
	if firstNumber(m) != 1 {
		s.Errorf("was first enqueued under %d, want 1, its number at the topic", firstNumber(m))
	}
	beside.gets(3, "small", "large", "odd", "plain")
}

// Dead letters are forwarded with their reason, their description and their source.
func forwardDeadLetters(s suite) {
	to := s.another("to", s, harness.Settings{})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardDeadLetteredMessagesTo": to.queue})
	s.send(3)
	r := s.receiver(2)
	held := s.receive(r, 2)
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, held[1], &azservicebus.DeadLetterOptions{
		Reason: ptr("why"), ErrorDescription: ptr("because"), PropertiesToModify: map[string]any{"seen": "yes"},
	}))
	dead := to.receiveOne(to.receiver(3))
	if dead.MessageID != "m2" || *dead.SequenceNumber != 1 || dead.EnqueuedSequenceNumber == nil || *dead.EnqueuedSequenceNumber != 2 {
		s.Errorf("%s came with number %d, first enqueued under %v", dead.MessageID, *dead.SequenceNumber, dead.EnqueuedSequenceNumber)
	}
	if dead.DeadLetterSource == nil || *dead.DeadLetterSource != strings.ToLower(s.queue) {
		s.Errorf("its source is %v, want %s", dead.DeadLetterSource, s.queue)
	}
	if dead.DeadLetterReason == nil || *dead.DeadLetterReason != "why" || dead.DeadLetterErrorDescription == nil || *dead.DeadLetterErrorDescription != "because" ||
		dead.ApplicationProperties["seen"] != "yes" || dead.DeliveryCount != 1 || string(dead.Body) != "body of m2" {
		s.Errorf("came with reason %v, description %v, properties %v, delivery count %d, body %q",
			dead.DeadLetterReason, dead.DeadLetterErrorDescription, dead.ApplicationProperties, dead.DeliveryCount, dead.Body)
	}
	s.must("complete", r.CompleteMessage(s.ctx, held[0], nil))
	s.counts(harness.Counts{Active: 1}) // the main queue does not forward
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if got, err := s.deadLetters(1).ReceiveMessages(ctx, 1, nil); len(got) != 0 || !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("received %d messages (%v) from a dead-letter queue that forwards, want none", len(got), err)
	}
	if m := s.receiveOne(r); m.MessageID != "m3" {
		s.Errorf("left is %s", m.MessageID)
	}
}

// The dead letters of a subscription are forwarded, including expired messages and filter errors.
func forwardDeadLettersOfSubscription(s suite) {
	topic := s.topic(nil)
	from := topic.subscription("from", harness.Settings{More: harness.Fields{
		"forwardDeadLetteredMessagesTo": s.queue, "deadLetteringOnMessageExpiration": true, "deadLetteringOnFilterEvaluationExceptions": true,
	}}, harness.Rule{Name: "others", SQL: "sys.Label = 'order' OR quantity IS NULL"}, harness.Rule{Name: "divides", SQL: "1 / (quantity - 7) = 5"})
	topic.publishAll(orders()[3:])
	topic.sendWith(short, "short")
	for i, want := range []string{"FilterEvaluationException", "TTLExpiredException"} {
		m := s.receiveOne(s.receiver(i + 2))
		if m.DeadLetterReason == nil || *m.DeadLetterReason != want || m.DeadLetterSource == nil || *m.DeadLetterSource != strings.ToLower(from.queue) {
			s.Errorf("%s came with reason %v, want %s, and source %v", m.MessageID, m.DeadLetterReason, want, m.DeadLetterSource)
		}
		if m.ExpiresAt != nil && m.ExpiresAt.Before(time.Now().Add(-time.Second)) {
			s.Errorf("%s expired at %v", m.MessageID, m.ExpiresAt)
		}
		s.must("complete", s.receiver(1).CompleteMessage(s.ctx, byToken(m), nil))
	}
	from.counts(harness.Counts{})
}

// Messages that a queue has when forwarding is turned on are forwarded too, large and many.
func forwardBacklog(s suite) {
	const all, large = 2000, 20
	to := s.another("to", s, harness.Settings{})
	sender := s.sender(1)
	var want []string
	for from := 0; from < all; from += 500 {
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must("new batch", err)
		for i := range 500 {
			id := fmt.Sprintf("m%04d", from+i)
			want = append(want, id)
			s.must("add", batch.AddMessage(&azservicebus.Message{MessageID: &id, Body: []byte(id)}, nil))
		}
		s.must("send", sender.SendMessageBatch(s.ctx, batch, nil))
	}
	for i := range large { // several of these exceed one internal request
		id := fmt.Sprintf("large %02d", i)
		want = append(want, id)
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id, Body: []byte(id + strings.Repeat(".", 200<<10))}, nil))
	}
	s.counts(harness.Counts{Active: all + large})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	s.counts(harness.Counts{})
	to.counts(harness.Counts{Active: all + large})
	r := to.receiver(2)
	got := to.receive(r, all+large)
	// The client releases some messages between its calls, so they do not arrive in strict order;
	// their sequence numbers are in the order in which they were sent.
	slices.SortFunc(got, func(a, b *azservicebus.ReceivedMessage) int { return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber) })
	if diff := gocmp.Diff(want, ids(got)); diff != "" {
		s.Errorf("received (-want +got)\n%s", diff)
	}
	for _, m := range got {
		if !strings.HasPrefix(string(m.Body), m.MessageID) {
			s.Fatalf("%s came with another body", m.MessageID)
		}
	}
}

// Locks that exist when forwarding begins stay valid; messages that return from them are forwarded, and
// deferred messages stay where they are. The Go client cannot settle while it cannot
// attach, so the case uses the management node as other clients do.
func heldWhileForwarding(s suite) {
	to := s.another("to", s, harness.Settings{})
	s.send(4)
	r := s.receiver(2)
	held := s.receive(r, 4)
	s.must("defer", r.DeferMessage(s.ctx, held[3], nil))
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	s.counts(harness.Counts{Active: 3, Locked: 3, Deferred: 1})
	ask := func(member int, operation string, want int32, body map[string]any) {
		s.Helper()
		if status, answer := s.ask(member, "com.microsoft:"+operation, body); status != want {
			s.Errorf("%s: status %d, want %d (%v)", operation, status, want, answer)
		}
	}
	settle := func(member int, how string, m *azservicebus.ReceivedMessage) {
		s.Helper()
		ask(member, "update-disposition", 200, map[string]any{"disposition-status": how, "lock-tokens": []amqp.UUID{m.LockToken}})
	}
	ask(3, "renew-lock", 200, map[string]any{"lock-tokens": []amqp.UUID{held[0].LockToken}})
	settle(3, "completed", held[0])
	settle(1, "suspended", held[1]) // dead-lettered
	settle(1, "abandoned", held[2])
	s.counts(harness.Counts{Deferred: 1, DeadLetter: 1})
	if m := to.gets(3, "m3")[0]; m.DeliveryCount != 1 {
		s.Errorf("came with delivery count %d", m.DeliveryCount)
	}
	_, err := s.receiver(2).ReceiveDeferredMessages(s.ctx, []int64{*held[3].SequenceNumber}, nil)
	s.notAllowed("receive deferred", err)
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardTo": ""})
	harness.Eventually(s.T, lateMax, "receive deferred", func(ctx context.Context) error {
		deferred, err := s.receiver(2).ReceiveDeferredMessages(ctx, []int64{*held[3].SequenceNumber}, nil)
		if err == nil && (len(deferred) != 1 || deferred[0].MessageID != "m4") {
			s.Errorf("deferred came %v", ids(deferred))
		}
		return err
	})
}

// Forwarding is turned on, redirected and turned off while messages arrive.
func editForwarding(s suite) {
	first, second := s.another("first", s, harness.Settings{}), s.another("second", s, harness.Settings{})
	s.sendWith(0, "kept")
	s.gets(2, "kept")
	for _, c := range []struct {
		to   suite
		name string
	}{{first, first.queue}, {second, second.queue}, {s, ""}, {second, second.queue}, {first, strings.ToUpper(first.queue)}} {
		s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardTo": c.name})
		s.sendWith(0, "a", "b")
		c.to.gets(3, "a", "b")
		s.counts(harness.Counts{})
	}
}

// Receivers of a forwarding queue are refused; a waiting receiver is detached with the reason.
func refusedWhileForwarding(s suite) {
	to := s.another("to", s, harness.Settings{})
	waiting := s.receiver(2)
	ended := make(chan error, 1)
	got := make(chan int, 1)
	go func() {
		some, err := waiting.ReceiveMessages(s.ctx, 1, nil)
		got <- len(some)
		ended <- err
	}()
	s.send(1)
	if n := <-got; n != 1 {
		s.Fatalf("the receiver got %d messages, error %v", n, <-ended)
	}
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	for member := 1; member <= 3; member++ {
		_, err := s.receiver(member).ReceiveMessages(s.ctx, 1, nil)
		s.notAllowed(fmt.Sprintf("receive at member %d", member), err)
	}
	_, err := waiting.ReceiveMessages(s.ctx, 1, nil)
	s.notAllowed("receive over the link that was there", err)
	// Peeking stays possible. The Go client cannot peek, because it attaches first.
	status, answer := s.ask(1, "com.microsoft:peek-message", map[string]any{"from-sequence-number": int64(1), "message-count": int32(10)})
	if peeked, _ := answer["messages"].([]any); status != 200 || len(peeked) != 1 {
		s.Errorf("peek: status %d, %v", status, answer)
	}
	s.nothing(s.deadLetters(2))
	s.send(1)
	to.gets(2, "m1")
}

// Forwarding to a missing entity, to a subscription, or from a topic is refused and changes nothing.
func settingsOfForwarding(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	for _, c := range []struct {
		path   string
		fields harness.Fields
	}{
		{"/v1/queues/" + s.queue, harness.Fields{"forwardTo": s.queue + ".nothing"}},
		{"/v1/queues/" + s.queue, harness.Fields{"forwardTo": a.queue}},
		{"/v1/queues/" + s.queue, harness.Fields{"forwardDeadLetteredMessagesTo": s.queue + ".nothing"}},
		{"/v1/topics/" + topic.queue, harness.Fields{"forwardTo": s.queue}},
		{"/v1/subscriptions/" + a.queue, harness.Fields{"forwardTo": s.queue + ".nothing"}},
	} {
		err := s.Members[2].Call(s.ctx, "PATCH", c.path, c.fields, nil)
		if err == nil || !strings.Contains(err.Error(), " 400 ") {
			s.Errorf("%s %v: %v, want a refusal with 400", c.path, c.fields, err)
		}
	}
	s.send(1)
	s.gets(2, "m1")
}

// A scheduled message is forwarded when it is due, and can be cancelled before.
func forwardScheduled(s suite) {
	to := s.another("to", s, harness.Settings{})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	due := time.Now().Add(2 * s.pace)
	numbers, err := s.sender(1).ScheduleMessages(s.ctx, numbered(2), due, nil)
	s.must("schedule", err)
	early := s.until(due)
	early.counts(harness.Counts{Scheduled: 2})
	early.must("cancel", s.sender(2).CancelScheduledMessages(s.ctx, numbers[:1], nil))
	m := to.gets(3, "2")[0]
	to.notBefore("it", due, time.Now())
	if m.State != azservicebus.MessageStateScheduled || m.ScheduledEnqueueTime != nil && m.ScheduledEnqueueTime.After(time.Now()) {
		s.Errorf("came in state %v, scheduled for %v", m.State, m.ScheduledEnqueueTime)
	}
}

// The sender's time to live of a forwarded message starts again, limited by the destination.
func forwardTimeToLive(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"defaultMessageTimeToLive": "1m"}})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardTo": to.queue, "defaultMessageTimeToLive": "5s"})
	s.sendWith(0, "none")
	s.sendWith(time.Hour, "more")
	s.sendWith(10*time.Second, "less")
	want := map[string]time.Duration{"none": time.Minute, "more": time.Minute, "less": 10 * time.Second}
	for _, m := range to.gets(2, "none", "more", "less") {
		if got := timeToLive(m); got != want[m.MessageID] {
			s.Errorf("%q lives for %v, want %v", m.MessageID, got, want[m.MessageID])
		}
	}
}

// A destination with duplicate detection drops messages that were forwarded to it before.
func forwardDuplicates(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"requiresDuplicateDetection": true}})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	to.send(2)
	s.send(4)
	s.counts(harness.Counts{})
	to.gets(2, "m1", "m2", "m3", "m4")
}

// A message passes four queues at most; then the last one dead-letters it.
func hops(s suite) {
	last := s.another("last", s, harness.Settings{})
	chain := []suite{last}
	for i := range hopsMax + 1 { // beginning with the last
		next := s
		next.queue = fmt.Sprintf("%s.hop%d", s.queue, hopsMax-i)
		s.CreateQueue(s.T, next.queue, harness.Settings{More: forwardingTo(chain[0])})
		chain = append([]suite{next}, chain...)
	}
	chain[1].sendWith(0, "four hops")
	last.gets(2, "four hops")
	chain[0].sendWith(0, "five hops")
	end := chain[hopsMax]
	end.counts(harness.Counts{DeadLetter: 1})
	d := end.receiveOne(end.deadLetters(3))
	if d.MessageID != "five hops" || d.DeadLetterReason == nil || *d.DeadLetterReason != "MaxTransferHopCountExceeded" || string(d.Body) != "body of five hops" {
		s.Errorf("dead letter %s, reason %v", d.MessageID, d.DeadLetterReason)
	}
	last.counts(harness.Counts{})
}

// Queues that forward to each other dead-letter a message after four hops.
func circle(s suite) {
	other := s.another("other", s, harness.Settings{More: forwardingTo(s)})
	s.UpdateQueue(s.T, s.queue, forwardingTo(other))
	s.send(3)
	s.counts(harness.Counts{DeadLetter: 3})
	other.counts(harness.Counts{})
	for _, d := range s.receive(s.deadLetters(2), 3) {
		if d.DeadLetterReason == nil || *d.DeadLetterReason != "MaxTransferHopCountExceeded" {
			s.Errorf("%s has the reason %v", d.MessageID, d.DeadLetterReason)
		}
	}
}

// Several queues and a subscription forward into one queue, which gets each message once.
func fanIn(s suite) {
	const queues, each = 5, 20
	topic := s.topic(nil)
	topic.subscription("from", harness.Settings{More: forwardingTo(s)})
	want := map[string]int{}
	send := func(to suite, name string) {
		for i := range each {
			id := fmt.Sprintf("%s-%d", name, i)
			want[id] = 1
			to.sendWith(0, id)
		}
	}
	for i := range queues {
		from := s
		from.queue = fmt.Sprintf("%s.from%d", s.queue, i)
		s.CreateQueue(s.T, from.queue, harness.Settings{More: forwardingTo(s)})
		send(from, fmt.Sprint(i))
	}
	send(topic, "topic")
	s.counts(harness.Counts{Active: uint64(len(want))})
	got := map[string]int{}
	for _, id := range ids(s.receive(s.receiver(3), len(want))) {
		got[id]++
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		s.Errorf("received (-want +got)\n%s", diff)
	}
}
