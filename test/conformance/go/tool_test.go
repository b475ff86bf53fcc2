package conformance

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func toolChecks() []check {
	return []check{
		{name: "purge", run: purge},
		{name: "purge by time", run: purgeByTime},
		{name: "batch delete", run: batchDelete},
		{name: "redrive", settings: harness.Settings{MaxDeliveryCount: 1, More: asDeadLetters()}, run: redrive},
		{name: "schedule by command", run: scheduleByCommand},
		{name: "topic by command", run: topicByCommand},
		{name: "delayed abandon", run: delayedAbandon},
		{name: "delayed abandon is no schedule", run: delayedAbandonIsNoSchedule},
		{name: "back-off", settings: harness.Settings{MaxDeliveryCount: 4, More: harness.Fields{"retryDelay": "500ms", "retryDelayMax": "1s"}}, run: backOff},
		{name: "back-off of lock ends", settings: harness.Settings{LockDuration: lockMinimum, More: harness.Fields{"retryDelay": "1s"}}, run: backOffOfLockEnds},
	}
}

// command runs the command line against a member and decodes its output.
func command[T any](s suite, member int, args ...string) T {
	s.Helper()
	out, err := s.Members[member-1].Command(s.ctx, args...)
	s.must("command", err)
	var answer T
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		s.Fatalf("%v printed %q: %v", args, out, err)
	}
	return answer
}

// purged is the output of `message purge`.
type purged struct{ Purged int }

// A purge removes available messages, oldest first, and keeps locked, deferred and
// scheduled ones; the dead-letter queue is purged separately.
func purge(s suite) {
	s.send(6)
	r := s.receiver(2)
	held := s.receive(r, 3)
	s.must("defer", r.DeferMessage(s.ctx, held[1], nil))
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, held[2], nil))
	_, err := s.sender(1).ScheduleMessages(s.ctx, numbered(1), time.Now().Add(time.Hour), nil)
	s.must("schedule", err)

	if out, err := s.Members[0].Command(s.ctx, "message", "purge", s.queue); err == nil {
		s.Errorf("purged without --yes: %s", out)
	} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		s.Errorf("purge without --yes: %v, want a usage error", err)
	}
	if got := command[purged](s, 1, "message", "purge", s.queue, "--max", "1", "--yes"); got.Purged != 1 {
		s.Errorf("purged %d of at most 1", got.Purged)
	}
	peeked, err := s.receiver(3).PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	if slices.Contains(ids(peeked), "m4") || !slices.Contains(ids(peeked), "m5") {
		s.Errorf("not the oldest was purged: %v are left", ids(peeked))
	}
	if got := command[purged](s, 2, "message", "purge", s.queue, "--yes"); got.Purged != 2 {
		s.Errorf("purged %d, want 2", got.Purged)
	}
	s.counts(harness.Counts{Active: 1, Locked: 1, Deferred: 1, Scheduled: 1, DeadLetter: 1})
	if got := command[purged](s, 3, "message", "purge", s.queue, "--dead-letters", "--yes"); got.Purged != 1 {
		s.Errorf("purged %d dead letters, want 1", got.Purged)
	}
	s.must("complete the one held", r.CompleteMessage(s.ctx, held[0], nil))
	s.counts(harness.Counts{Deferred: 1, Scheduled: 1})
}

// Over HTTP, a purge can be limited to messages enqueued before a given time.
func purgeByTime(s suite) {
	s.sendWith(0, "old 1", "old 2")
	r := s.receiver(2)
	before := s.receive(r, 2)
	for _, m := range before {
		s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
	}
	s.UpdateQueue(s.T, s.queue, harness.Fields{"userMetadata": "some time later"}) // at least a millisecond
	border := before[1].EnqueuedTime.Add(time.Millisecond)
	for time.Now().Before(border) {
		continue
	}
	s.sendWith(0, "new")
	var answer struct{ Count int }
	s.must("purge", s.Members[1].Call(s.ctx, http.MethodPost, "/v1/purge/"+s.queue, map[string]any{"before": border}, &answer))
	if answer.Count != 2 {
		s.Errorf("purged %d, want 2", answer.Count)
	}
	if got := s.receiveOne(s.receiver(3)); got.MessageID != "new" {
		s.Errorf("left is %s", got.MessageID)
	}
}

// ask sends a request to the management node of the queue and returns the status and the body.
func (s suite) ask(member int, operation string, body map[string]any) (int32, map[string]any) {
	s.Helper()
	return s.askOver(s.session(member), operation, body)
}

// askOver is ask over an existing session.
func (s suite) askOver(session *amqp.Session, operation string, body map[string]any) (int32, map[string]any) {
	s.Helper()
	const replyTo = "answers"
	requests, err := session.NewSender(s.ctx, s.queue+"/$management", nil)
	s.must("new sender", err)
	answers, err := session.NewReceiver(s.ctx, s.queue+"/$management", &amqp.ReceiverOptions{TargetAddress: replyTo, Credit: 1})
	s.must("new receiver", err)
	s.must("ask", requests.Send(s.ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: ptr(replyTo)},
		ApplicationProperties: map[string]any{"operation": operation},
		Value:                 body,
	}, nil))
	m := s.get(answers)
	s.must("accept", answers.AcceptMessage(s.ctx, m))
	s.must("close", errors.Join(requests.Close(s.ctx), answers.Close(s.ctx))) // the next request uses the same link names
	status, _ := m.ApplicationProperties["statusCode"].(int32)
	content, _ := m.Value.(map[string]any)
	return status, content
}

// com.microsoft:batch-delete-messages deletes available messages, oldest first, by count and
// by time, and returns how many.
func batchDelete(s suite) {
	s.send(5)
	r := s.receiver(2)
	held := s.receiveOne(r)
	deleted := func(count int, before time.Time) int32 {
		status, body := s.ask(3, "com.microsoft:batch-delete-messages", map[string]any{"message-count": int32(count), "enqueued-time-utc": before})
		n, _ := body["message-count"].(int32)
		if status != http.StatusOK && (status != http.StatusNoContent || n != 0) {
			s.Errorf("status %d with %v", status, body)
		}
		return n
	}
	later := time.Now().Add(time.Hour)
	if n := deleted(100, held.EnqueuedTime.Add(-time.Hour)); n != 0 {
		s.Errorf("deleted %d of messages that are too young", n)
	}
	if n := deleted(3, later); n != 3 {
		s.Errorf("deleted %d, want 3", n)
	}
	if m := s.receiveOne(r); m.MessageID != "m5" {
		s.Errorf("left is %s", m.MessageID)
	}
	if n := deleted(100, later); n != 0 {
		s.Errorf("deleted %d locked messages", n)
	}
	s.counts(harness.Counts{Active: 2, Locked: 2})
}

// Redriven dead letters keep their sequence numbers, with attempts at zero, without
// the reason, and with their time to live starting again.
func redrive(s suite) {
	life := 5 * s.pace
	early := s.until(time.Now().Add(life))
	s.sendWith(life, "1", "2", "3")
	r := s.receiver(2)
	numbers := map[string]int64{}
	for _, m := range early.receive(r, 3) {
		numbers[m.MessageID] = *m.SequenceNumber
		if m.MessageID == "2" {
			s.must("dead-letter", r.DeadLetterMessage(s.ctx, m, &azservicebus.DeadLetterOptions{
				Reason: ptr("mine"), ErrorDescription: ptr("because"), PropertiesToModify: map[string]any{"added": "stays"},
			}))
			continue
		}
		s.must("abandon", r.AbandonMessage(s.ctx, m, nil)) // one time too many
	}
	early.inTime()
	s.counts(harness.Counts{DeadLetter: 3})
	type redriven struct{ Matched, Redriven int }
	early = s.until(time.Now().Add(life))
	if got := command[redriven](s, 1, "message", "redrive", s.queue, "--reason", "mine"); got.Matched != 1 || got.Redriven != 1 {
		s.Errorf("redriven %+v, want one", got)
	}
	m := early.receiveOne(r)
	if m.MessageID != "2" || *m.SequenceNumber != numbers["2"] || m.DeliveryCount != 1 || string(m.Body) != "body of 2" {
		s.Errorf("back is %s with number %d (was %d), delivery count %d, body %q", m.MessageID, *m.SequenceNumber, numbers["2"], m.DeliveryCount, m.Body)
	}
	if diff := cmp.Diff(map[string]any{"own": "2", "added": "stays"}, m.ApplicationProperties); diff != "" {
		s.Errorf("properties (-want +got)\n%s", diff)
	}
	s.must("complete", r.CompleteMessage(s.ctx, m, nil))
	at := time.Now()
	early = s.until(at.Add(life))
	if got := command[redriven](s, 3, "message", "redrive", s.queue); got.Redriven != 2 {
		s.Errorf("redriven %+v, want two", got)
	}
	early.counts(harness.Counts{Active: 2})
	peeked, err := s.receiver(3).PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	early.inTime()
	for _, m := range peeked {
		if m.ExpiresAt == nil || m.ExpiresAt.Before(at.Add(life).Truncate(time.Millisecond)) {
			s.Errorf("%s expires at %v, redriven at %v with a life of %v", m.MessageID, m.ExpiresAt, at, life)
		}
	}
	s.counts(harness.Counts{DeadLetter: 2}) // this time they expired
	if m := s.receiveOne(s.deadLetters(2)); m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
		s.Errorf("reason %v", m.DeadLetterReason)
	}
}

// The command line schedules and cancels messages.
func scheduleByCommand(s suite) {
	type scheduled struct{ SequenceNumbers []int64 }
	late := command[scheduled](s, 1, "message", "send", s.queue, "never", "--in", "1h")
	soon := command[scheduled](s, 2, "message", "send", s.queue, "soon", "--in", "1s")
	if len(late.SequenceNumbers) != 1 || len(soon.SequenceNumbers) != 1 {
		s.Fatalf("numbers %v and %v", late, soon)
	}
	command[map[string]any](s, 3, "message", "cancel", s.queue, "1")
	if m := s.receiveOne(s.receiver(1)); string(m.Body) != "soon" {
		s.Errorf("received %q", m.Body)
	}
	s.counts(harness.Counts{Active: 1, Locked: 1})
}

// A message that is abandoned until a given time returns then and not before, at its place, with its
// attempts; other messages are delivered meanwhile.
func delayedAbandon(s suite) {
	s.send(2)
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: 1})
	m := s.get(r)
	due := time.Now().Add(2 * s.pace).Truncate(time.Millisecond)
	early := s.until(due)
	s.must("abandon until later", r.ModifyMessage(s.ctx, m, &amqp.ModifyMessageOptions{
		DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-delivery-time": due, "kept": "property"},
	}))
	next := s.get(r)
	if next.Properties.MessageID != "m2" {
		early.inTime()
		s.Errorf("meanwhile came %v", next.Properties.MessageID)
	}
	s.must("accept", r.AcceptMessage(s.ctx, next))
	early.counts(harness.Counts{Scheduled: 1})
	s.sendWith(0, "m3")
	m3 := s.get(r)
	early.inTime()
	if m3.Properties.MessageID != "m3" {
		s.Errorf("then came %v", m3.Properties.MessageID)
	} else {
		s.must("release", r.ReleaseMessage(s.ctx, m3))
	}
	s.must("close", r.Close(s.ctx)) // m3 may be in flight again: closing returns it
	s.counts(harness.Counts{Active: 2})
	seen := time.Now()
	s.notBefore("the message", due, seen)
	s.witnessed("counts of all members", due, seen)
	back := s.receive(s.receiver(3), 2)
	if diff := cmp.Diff([]string{"m1", "m3"}, ids(back)); diff != "" {
		s.Errorf("order (-want +got)\n%s", diff)
	}
	if back[0].DeliveryCount != 2 || *back[0].SequenceNumber != 1 || back[0].ApplicationProperties["kept"] != "property" ||
		len(back[0].ApplicationProperties) != 1 {
		s.Errorf("back with number %d, delivery count %d, properties %v", *back[0].SequenceNumber, back[0].DeliveryCount, back[0].ApplicationProperties)
	}
}

// A delayed message cannot be cancelled, because it is not a scheduled message.
func delayedAbandonIsNoSchedule(s suite) {
	s.send(1)
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: 1})
	s.must("abandon until later", r.ModifyMessage(s.ctx, s.get(r), &amqp.ModifyMessageOptions{
		Annotations: amqp.Annotations{"x-opt-delivery-time": time.Now().Add(1500 * time.Millisecond)},
	}))
	if err := s.sender(1).CancelScheduledMessages(s.ctx, []int64{1}, nil); err == nil {
		s.Error("it was cancelled")
	}
	if m := s.get(r); m.Properties.MessageID != "m1" {
		s.Errorf("received %v", m.Properties.MessageID)
	}
}

// With a back-off, each failed attempt is followed by a longer pause, up to the maximum;
// the last attempt dead-letters immediately.
func backOff(s suite) {
	s.send(1)
	r := s.receiver(2)
	var abandoned time.Time
	for attempt, pause := range []time.Duration{0, 500 * time.Millisecond, time.Second, time.Second} {
		m := s.receiveOne(r)
		if waited := time.Since(abandoned); waited < pause-time.Millisecond { // both ends are rounded to milliseconds
			s.Errorf("attempt %d after %v, want %v", attempt+1, waited, pause)
		}
		if m.DeliveryCount != uint32(attempt+1) {
			s.Errorf("delivery count %d at attempt %d", m.DeliveryCount, attempt+1)
		}
		abandoned = time.Now() // or later: it reaches the broker after this
		s.must("abandon", r.AbandonMessage(s.ctx, m, nil))
	}
	s.counts(harness.Counts{DeadLetter: 1})
}

// An expired lock is a failed attempt too, and is followed by the pause.
func backOffOfLockEnds(s suite) {
	s.send(1)
	m := s.receiveOne(s.receiver(2))
	s.counts(harness.Counts{Scheduled: 1})
	again := s.receiveOne(s.receiver(3))
	s.notBefore("the second attempt", m.LockedUntil.Add(time.Second), time.Now())
	if again.DeliveryCount != 2 {
		s.Errorf("delivery count %d", again.DeliveryCount)
	}
}

// Commands create and delete topics, subscriptions and rules, and purge and redrive the messages of
// a subscription like those of a queue.
func topicByCommand(s suite) {
	topic, sub := s.queue+".topic", s.queue+".topic/Subscriptions/reds"
	run := func(args ...string) {
		s.Helper()
		_, err := s.Members[1].Command(s.ctx, args...)
		s.must("command", err)
	}
	run("topic", "create", topic)
	run("subscription", "create", sub)
	run("rule", "add", sub, "red", "--sql", "color = 'red'", "--action", "SET color = 'green'")
	run("rule", "remove", sub, "$Default")
	published := s
	published.queue = topic
	copied := s
	copied.queue = sub
	published.publishAll(orders())
	m := copied.receiveOne(copied.receiver(3))
	if m.MessageID != "small" || m.ApplicationProperties["color"] != "green" {
		s.Errorf("%s came with the properties %v", m.MessageID, m.ApplicationProperties)
	}
	s.must("dead-letter", copied.receiver(3).DeadLetterMessage(s.ctx, byToken(m), nil))
	copied.counts(harness.Counts{DeadLetter: 1})
	type redriven struct{ Matched, Redriven int }
	if got := command[redriven](s, 3, "message", "redrive", sub); got.Redriven != 1 {
		s.Errorf("redriven %+v, want one", got)
	}
	copied.counts(harness.Counts{Active: 1})
	if got := command[purged](s, 1, "message", "purge", sub, "--yes"); got.Purged != 1 {
		s.Errorf("purged %+v, want one", got)
	}
	copied.counts(harness.Counts{})
	run("topic", "delete", topic, "--yes")
	s.CreateQueue(s.T, topic, harness.Settings{}) // the name can be used again
}
