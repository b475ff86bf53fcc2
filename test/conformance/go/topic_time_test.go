package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func topicTimeChecks() []check {
	return []check{
		{name: "schedule at a topic", run: scheduleAtTopic},
		{name: "rules of the moment", run: rulesOfTheMoment},
		{name: "lives of copies", run: timeToLiveOfCopies},
		{name: "expired copies", run: expiredCopies},
		{name: "duplicates at a topic", run: duplicatesAtTopic},
		{name: "duplicates of scheduled at a topic", run: duplicatesOfScheduledAtTopic},
	}
}

func topicLimitChecks() []check {
	return []check{
		{name: "quota of a topic", run: quotaOfTopic},
		{name: "size at a topic", run: sizeAtTopic},
		{name: "status of a topic", run: statusOfTopic},
		{name: "status of a subscription", run: statusOfSubscription},
		{name: "settings of topics", run: settingsOfTopics},
	}
}

// Messages scheduled at a topic have numbers of the topic immediately, and arrive in every
// subscription when they are due, unless they were cancelled before.
func scheduleAtTopic(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	due := time.Now().Add(2 * s.pace).Truncate(time.Millisecond)
	early := topic.until(due)
	sender := topic.sender(1)
	numbers, err := sender.ScheduleMessages(s.ctx, numbered(4), due, nil)
	s.must("schedule", err)
	if diff := cmp.Diff([]int64{1, 2, 3, 4}, numbers); diff != "" {
		s.Errorf("numbers (-want +got)\n%s", diff)
	}
	all := numbered(5)
	all[4].ScheduledEnqueueTime = &due
	s.must("schedule by property", sender.SendMessage(s.ctx, all[4], nil))
	early.must("cancel", topic.sender(2).CancelScheduledMessages(s.ctx, []int64{numbers[0], numbers[2]}, nil))
	wantCode(s, "cancel again", sender.CancelScheduledMessages(s.ctx, numbers[:1], nil), azservicebus.CodeNotFound)
	early.countsInTime(harness.Counts{Scheduled: 3, Subscriptions: 2}, (*harness.Member).Topic)
	for member, sub := range map[int]suite{2: a, 3: b} {
		got := sub.gets(member, "2", "4", "5")
		seen := time.Now()
		sub.notBefore("the first", due, seen)
		for _, m := range got {
			if m.EnqueuedTime.Before(due) || m.State != azservicebus.MessageStateScheduled {
				s.Errorf("%s was enqueued at %v, due at %v, state %v", m.MessageID, m.EnqueuedTime, due, m.State)
			}
		}
	}
	s.WaitTopicCounts(s.T, topic.queue, harness.Counts{Subscriptions: 2})
}

// The subscriptions of a scheduled message are determined when it is due.
func rulesOfTheMoment(s suite) {
	topic := s.topic(nil)
	before := topic.subscription("before", harness.Settings{})
	due := time.Now().Add(3 * s.pace)
	_, err := topic.sender(1).ScheduleMessages(s.ctx, numbered(1), due, nil)
	s.must("schedule", err)
	s.DropRule(s.T, before.queue, "$Default")
	after := topic.subscription("after", harness.Settings{}, harness.Rule{Name: "one", SQL: "sys.MessageId = '1'"})
	s.until(due).inTime()
	after.gets(2, "1")
	before.counts(harness.Counts{})
}

// The shortest of the times to live of message, topic and subscription applies to a copy.
func timeToLiveOfCopies(s suite) {
	topic := s.topic(harness.Fields{"defaultMessageTimeToLive": "1m"})
	plain := topic.subscription("plain", harness.Settings{})
	brief := topic.subscription("brief", harness.Settings{More: harness.Fields{"defaultMessageTimeToLive": "30s"}})
	long := topic.subscription("long", harness.Settings{More: harness.Fields{"defaultMessageTimeToLive": "1h"}})
	topic.sendWith(0, "none")
	topic.sendWith(time.Hour, "more")
	topic.sendWith(10*time.Second, "less")
	for sub, want := range map[suite]map[string]time.Duration{
		plain: {"none": time.Minute, "more": time.Minute, "less": 10 * time.Second},
		brief: {"none": 30 * time.Second, "more": 30 * time.Second, "less": 10 * time.Second},
		long:  {"none": time.Minute, "more": time.Minute, "less": 10 * time.Second},
	} {
		for _, m := range sub.receive(sub.receiver(2), 3) {
			if got := timeToLive(m); got != want[m.MessageID] {
				s.Errorf("%q of %s lives for %v, want %v", m.MessageID, sub.queue, got, want[m.MessageID])
			}
		}
	}
}

// An expired copy is dropped or dead-lettered according to its own subscription.
func expiredCopies(s suite) {
	topic := s.topic(nil)
	drops := topic.subscription("drops", harness.Settings{})
	keeps := topic.subscription("keeps", harness.Settings{More: asDeadLetters()})
	topic.sendWith(short, "short")
	topic.sendWith(0, "long")
	drops.counts(harness.Counts{Active: 1})
	keeps.counts(harness.Counts{Active: 1, DeadLetter: 1})
	if d := keeps.receiveOne(keeps.deadLetters(2)); d.MessageID != "short" || d.DeadLetterReason == nil || *d.DeadLetterReason != "TTLExpiredException" ||
		string(d.Body) != "body of short" {
		s.Errorf("dead letter %s, reason %v, body %q", d.MessageID, d.DeadLetterReason, d.Body)
	}
	drops.gets(3, "long")
}

// A duplicate is dropped at the topic, before any subscription gets it.
func duplicatesAtTopic(s suite) {
	topic := s.topic(harness.Fields{"requiresDuplicateDetection": true})
	a := topic.subscription("a", harness.Settings{})
	topic.send(3)
	topic.send(4) // three of them are duplicates
	late := topic.subscription("late", harness.Settings{})
	topic.send(5)
	a.gets(2, "m1", "m2", "m3", "m4", "m5")
	late.gets(3, "m5")
	batch := numbered(3)
	batch[1].MessageID = ptr("1")
	sender := topic.sender(2)
	b, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	for _, m := range batch {
		s.must("add", b.AddMessage(m, nil))
	}
	s.must("send batch", sender.SendMessageBatch(s.ctx, b, nil))
	a.gets(3, "1", "3")
}

// A scheduled message is recorded for duplicate detection when it is accepted.
func duplicatesOfScheduledAtTopic(s suite) {
	topic := s.topic(harness.Fields{"requiresDuplicateDetection": true})
	a := topic.subscription("a", harness.Settings{})
	sender := topic.sender(1)
	due := time.Now().Add(s.pace)
	_, err := sender.ScheduleMessages(s.ctx, numbered(2), due, nil)
	s.must("schedule", err)
	for _, m := range numbered(3) {
		s.must("send", sender.SendMessage(s.ctx, m, nil))
	}
	s.until(due).inTime()
	r := a.receiver(2)
	if diff := cmp.Diff([]string{"3", "1", "2"}, ids(a.receive(r, 3))); diff != "" {
		s.Errorf("received (-want +got)\n%s", diff)
	}
	a.nothing(r)
}

// A body counts once against the quota of its topic, whatever the number of subscriptions that have it,
// until the last of them has removed it.
func quotaOfTopic(s suite) {
	topic := s.topic(harness.Fields{"maxSizeInMegabytes": 1})
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	topic.subscription("nothing", harness.Settings{}, harness.Rule{Name: "none", False: true})
	sender := topic.sender(1)
	body := make([]byte, 200<<10)
	var err error
	stored := 0
	for err == nil && stored < 6 {
		if err = sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err == nil {
			stored++
		}
	}
	if stored != 5 || conditionOf(err) != string(amqp.ErrCondResourceLimitExceeded) {
		s.Fatalf("after %d messages of 200 KiB in 1 MiB: %v, want %s", stored, err, amqp.ErrCondResourceLimitExceeded)
	}
	ra, rb := a.receiver(2), b.receiver(3)
	s.must("complete at a", ra.CompleteMessage(s.ctx, a.receiveOne(ra), nil))
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err == nil {
		s.Error("a body that one subscription still has was taken off the quota")
	}
	s.must("complete at b", rb.CompleteMessage(s.ctx, b.receiveOne(rb), nil))
	s.must("send when both are done", sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
	s.DeleteQueue(s.T, b.queue) // frees no space, because a still has all
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err == nil {
		s.Error("a body that one subscription still has was taken off the quota when another was deleted")
	}
	s.DeleteQueue(s.T, a.queue)
	s.must("send when all is gone", sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
}

// The topic determines the maximum message size.
func sizeAtTopic(s suite) {
	topic := s.topic(harness.Fields{"maxMessageBytes": 4096})
	a := topic.subscription("a", harness.Settings{})
	sender := topic.sender(1)
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 5000)}, nil); err == nil {
		s.Error("5000 bytes were accepted where 4096 are the most")
	}
	alive(topic, sender)
	a.counts(harness.Counts{Active: 1})
	s.UpdateTopic(s.T, topic.queue, harness.Fields{"maxMessageBytes": 300 << 10})
	large := []byte(strings.Repeat("x", 280<<10))
	// A link announces the size that its member knew when the link was opened.
	harness.Eventually(s.T, lateMax, "a large one is sent", func(ctx context.Context) error {
		return topic.sender(2).SendMessage(ctx, &azservicebus.Message{Body: large}, nil)
	})
	if m := a.receive(a.receiver(3), 2)[1]; string(m.Body) != string(large) {
		s.Errorf("a body of %d bytes came with %d", len(large), len(m.Body))
	}
}

// A disabled topic accepts no messages; the messages of its subscriptions can be received, and
// scheduled messages are still published when due.
func statusOfTopic(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	topic.send(1)
	sender := topic.sender(1)
	_, err := sender.ScheduleMessages(s.ctx, numbered(1), time.Now().Add(time.Second), nil)
	s.must("schedule", err)
	for _, status := range []string{"SendDisabled", "Disabled"} {
		s.UpdateTopic(s.T, topic.queue, harness.Fields{"status": status})
		wantDisabled(s, "send to "+status, func() error {
			return topic.sender(3).SendMessage(s.ctx, &azservicebus.Message{}, nil)
		})
	}
	a.gets(2, "m1", "1")
	s.UpdateTopic(s.T, topic.queue, harness.Fields{"status": "Active"})
	topic.send(1)
	a.gets(3, "m1")
}

// A subscription with receiving disabled still gets its copies.
func statusOfSubscription(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	for n, status := range []string{"ReceiveDisabled", "Disabled"} {
		s.UpdateQueue(s.T, a.queue, harness.Fields{"status": status})
		topic.sendWith(0, fmt.Sprint(n))
		wantDisabled(s, "receive from "+status, func() error {
			_, err := a.receiver(2).ReceiveMessages(s.ctx, 1, nil)
			return err
		})
	}
	s.UpdateQueue(s.T, a.queue, harness.Fields{"status": "SendDisabled"}) // has no effect on publishing
	topic.sendWith(0, "2")
	a.gets(3, "0", "1", "2")
}

// Settings that topics or subscriptions do not support are refused, and so is a subscription of a missing topic.
func settingsOfTopics(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", harness.Settings{})
	for _, c := range []struct {
		method, path string
		fields       harness.Fields
		status       string
	}{
		{"PUT", "/v1/topics/" + s.queue + ".x", harness.Fields{"forwardTo": s.queue}, " 400 "},
		{"PUT", "/v1/topics/" + s.queue + ".x", harness.Fields{"maxDeliveryCount": 5}, " 400 "},
		{"PATCH", "/v1/topics/" + topic.queue, harness.Fields{"requiresDuplicateDetection": true}, " 400 "},
		{"PATCH", "/v1/subscriptions/" + a.queue, harness.Fields{"lockDuration": "999ms"}, " 400 "},
		{"PATCH", "/v1/subscriptions/" + a.queue, harness.Fields{"maxSizeInMegabytes": 5}, " 400 "},
		{"PUT", "/v1/subscriptions/" + harness.SubscriptionPath(topic.queue, strings.Repeat("x", 51)), nil, " 400 "},
		{"PUT", "/v1/subscriptions/" + harness.SubscriptionPath("nothing", "a"), nil, " 404 "},
		{"PUT", "/v1/subscriptions/" + harness.SubscriptionPath(s.queue, "a"), nil, " 404 "},
		{"PUT", "/v1/subscriptions/" + strings.ToUpper(topic.queue) + "/subscriptions/A", nil, "conflict"},
	} {
		err := s.Members[1].Call(s.ctx, c.method, c.path, c.fields, nil)
		if err == nil || !strings.Contains(err.Error(), c.status) {
			s.Errorf("%s %s %v: %v, want a refusal with%s", c.method, c.path, c.fields, err, c.status)
		}
	}
}
