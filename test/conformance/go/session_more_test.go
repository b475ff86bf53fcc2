package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
)

func sessionMoreChecks() []check {
	sessions := grouped(harness.Settings{})
	return []check{
		{name: "state", settings: sessions, run: sessionState},
		{name: "state too large", settings: grouped(harness.Settings{More: harness.Fields{"maxMessageBytes": 1024}}), run: stateTooLarge},
		{name: "defer in session", settings: sessions, run: deferInSession},
		{name: "dead letters of sessions", settings: sessions, run: deadLettersOfSessions},
		{name: "max delivery count in session", settings: grouped(harness.Settings{MaxDeliveryCount: 2}), run: maxDeliveryInSession},
		{name: "schedule in session", settings: sessions, run: scheduleInSession},
		{name: "expire in session", settings: grouped(harness.Settings{More: asDeadLetters()}), run: expireInSession},
		{name: "peek in session", settings: sessions, run: peekInSession},
		{name: "list sessions", settings: sessions, run: listSessions},
		{name: "sessions of subscriptions", run: sessionsOfSubscriptions},
		{name: "forward to sessions", run: forwardToSessions},
		{name: "purge sessions", settings: sessions, run: purgeSessions},
		{name: "batch delete in session", settings: sessions, run: batchDeleteInSession},
		{name: "take over a session", settings: sessions, run: takeOverSession},
	}
}

// The state of a session outlives its holders and its messages, at every member.
// azservicebus sends nil as an empty state, which deletes it.
func sessionState(s suite) {
	state := func(r *azservicebus.SessionReceiver) []byte {
		s.Helper()
		got, err := r.GetSessionState(s.ctx, nil)
		s.must("get state", err)
		return got
	}
	s.sendIn("red", "m1")
	bytes := make([]byte, 10_000)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	is := func(got, set []byte) bool { return string(got) == string(set) && (got == nil) == (len(set) == 0) }
	for i, set := range [][]byte{nil, []byte("half way"), {}, bytes, nil} {
		r := s.accept(i%3+1, "red")
		if got := state(r); i == 0 && got != nil {
			s.Errorf("a new session has the state %v", got)
		}
		s.must("set state", r.SetSessionState(s.ctx, set, nil))
		if got := state(r); !is(got, set) {
			s.Errorf("state %v after setting %v", got, set)
		}
		s.must("close", r.Close(s.ctx))
		other := s.accept((i+1)%3+1, "red")
		if got := state(other); !is(got, set) {
			s.Errorf("another holder sees the state %v, set was %v", got, set)
		}
		if i == 1 { // also without messages
			s.completed(other, s.inSession(other, "m1")...)
		}
		s.must("close", other.Close(s.ctx))
	}
	if got := state(s.accept(3, "blue")); got != nil {
		s.Errorf("another session has the state %v", got)
	}
}

// A state may be as large as a message, but no larger.
func stateTooLarge(s suite) {
	r := s.accept(2, "red")
	s.must("set state", r.SetSessionState(s.ctx, make([]byte, 1024), nil))
	if err := r.SetSessionState(s.ctx, make([]byte, 1025), nil); err == nil {
		s.Error("a state of 1025 bytes was taken, the most are 1024")
	}
	if got, err := r.GetSessionState(s.ctx, nil); err != nil || len(got) != 1024 {
		s.Errorf("the state has %d bytes afterwards, %v", len(got), err)
	}
}

// A deferred message in a session does not block the others. The holder of the
// session can fetch it, also a later holder, but no other client.
func deferInSession(s suite) {
	s.sendIn("red", "m1", "m2", "m3")
	s.sendIn("blue", "x1")
	r := s.accept(2, "red")
	held := s.inSession(r, "m1", "m2")
	s.must("defer", r.DeferMessage(s.ctx, held[0], &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}))
	s.must("defer", r.DeferMessage(s.ctx, held[1], nil))
	s.counts(harness.Counts{Active: 2, Deferred: 2})
	s.completed(r, s.inSession(r, "m3")...)
	s.must("close", r.Close(s.ctx))

	numbers := []int64{*held[0].SequenceNumber, *held[1].SequenceNumber}
	blue := s.next(3, "blue") // deferred messages make no session available
	if got, err := blue.ReceiveDeferredMessages(s.ctx, numbers, nil); len(got) != 0 {
		s.Errorf("session blue got %v of session red, %v", ids(got), err)
	}
	r = s.accept(1, "red")
	s.noneIn(r)
	got, err := r.ReceiveDeferredMessages(s.ctx, numbers, nil)
	s.must("receive deferred", err)
	if diff := cmp.Diff([]string{"m1", "m2"}, ids(got)); diff != "" {
		s.Fatalf("deferred (-want +got)\n%s", diff)
	}
	if got[0].ApplicationProperties["why"] != "later" || got[0].LockedUntil == nil || *got[0].SessionID != "red" {
		s.Errorf("fetched with properties %v, locked until %v, session %v", got[0].ApplicationProperties, got[0].LockedUntil, got[0].SessionID)
	}
	s.must("abandon", r.AbandonMessage(s.ctx, got[0], nil)) // it is deferred as before
	s.completed(r, got[1])
	s.counts(harness.Counts{Active: 1, Locked: 0, Deferred: 1})
	got, err = r.ReceiveDeferredMessages(s.ctx, numbers[:1], nil)
	s.must("receive deferred", err)
	s.completed(r, got...)
	s.completed(blue, s.inSession(blue, "x1")...)
	s.counts(harness.Counts{})
}

// The dead letters of all sessions are in one dead-letter queue without sessions and keep their session
// ids: redriven, they are in their session again, before later messages.
func deadLettersOfSessions(s suite) {
	s.sendIn("red", "m1", "m2", "m3")
	s.sendIn("blue", "x1")
	r, blue := s.accept(2, "red"), s.accept(3, "blue")
	held := s.inSession(r, "m1", "m2")
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, held[0], &azservicebus.DeadLetterOptions{Reason: ptr("why"), ErrorDescription: ptr("because")}))
	s.must("dead-letter", blue.DeadLetterMessage(s.ctx, s.inSession(blue, "x1")[0], nil))
	s.must("close", blue.Close(s.ctx))
	s.counts(harness.Counts{Active: 2, Locked: 1, DeadLetter: 2})
	s.must("close", r.Close(s.ctx))

	dead := s.deadLetters(1)
	got := s.receive(dead, 2)
	if diff := cmp.Diff([]string{"m1", "x1"}, ids(got)); diff != "" {
		s.Errorf("dead letters (-want +got)\n%s", diff)
	}
	if m := got[0]; *m.SessionID != "red" || m.DeadLetterReason == nil || *m.DeadLetterReason != "why" || *m.DeadLetterErrorDescription != "because" {
		s.Errorf("session %v, reason %v, description %v", *m.SessionID, m.DeadLetterReason, m.DeadLetterErrorDescription)
	}
	for _, m := range got {
		s.must("abandon", dead.AbandonMessage(s.ctx, m, nil))
	}
	if got := command[struct{ Redriven int }](s, 2, "message", "redrive", s.queue); got.Redriven != 2 {
		s.Errorf("%d were redriven, want 2", got.Redriven)
	}
	s.counts(harness.Counts{Active: 4})
	for session, want := range map[string][]string{"red": {"m1", "m2", "m3"}, "blue": {"x1"}} {
		r := s.accept(1, session)
		peeked, err := r.PeekMessages(s.ctx, 10, nil)
		s.must("peek", err)
		if have := ids(peeked); !slices.Contains(have, want[0]) || len(have) != len(want) {
			s.Errorf("session %s has %v", session, have)
		}
		s.must("close", r.Close(s.ctx))
	}
}

// A message that is abandoned too often leaves its session; the other messages of the session are not affected.
func maxDeliveryInSession(s suite) {
	s.sendIn("red", "m1", "m2")
	r := s.accept(2, "red")
	for range 2 {
		s.must("abandon", r.AbandonMessage(s.ctx, s.inSession(r, "m1")[0], nil))
	}
	s.completed(r, s.inSession(r, "m2")...)
	s.counts(harness.Counts{DeadLetter: 1})
}

// A scheduled message is in its session from its scheduled time on; until then the session is not
// available, and the message can be cancelled.
func scheduleInSession(s suite) {
	at := time.Now().Add(2 * s.pace)
	early := s.until(at)
	numbers, err := s.sender(1).ScheduleMessages(s.ctx, []*azservicebus.Message{
		{MessageID: ptr("m1"), SessionID: ptr("red"), Body: []byte("body of m1")},
		{MessageID: ptr("m2"), SessionID: ptr("red"), Body: []byte("body of m2")},
		{MessageID: ptr("x1"), SessionID: ptr("blue"), Body: []byte("body of x1")},
	}, at, nil)
	s.must("schedule", err)
	early.counts(harness.Counts{Scheduled: 3})
	early.must("cancel", s.sender(3).CancelScheduledMessages(s.ctx, numbers[1:2], nil))
	early.must("cancel", s.sender(3).CancelScheduledMessages(s.ctx, numbers[2:], nil))
	r := s.next(2, "red")
	s.notBefore("the session", at, time.Now())
	s.completed(r, s.inSession(r, "m1")...)
	s.counts(harness.Counts{})
	// A message is scheduled for a session that is held while its holder waits.
	got := make(chan []*azservicebus.ReceivedMessage, 1)
	go func() {
		some, _ := r.ReceiveMessages(s.ctx, 1, nil)
		got <- some
	}()
	at = time.Now().Add(time.Second)
	_, err = s.sender(1).ScheduleMessages(s.ctx, []*azservicebus.Message{{MessageID: ptr("m3"), SessionID: ptr("red")}}, at, nil)
	s.must("schedule", err)
	if some := <-got; len(some) != 1 || some[0].MessageID != "m3" {
		s.Errorf("came %v", ids(some))
	}
	s.notBefore("m3", at, time.Now())
}

// An expired message leaves its session and is never delivered; a session without other messages
// is not available.
func expireInSession(s suite) {
	sender := s.sender(1)
	for _, id := range []string{"m1", "m2"} {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id, SessionID: ptr("red"), TimeToLive: ptr(500 * time.Millisecond)}, nil))
	}
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr("x1"), SessionID: ptr("blue"), TimeToLive: ptr(500 * time.Millisecond)}, nil))
	s.sendIn("red", "m3")
	s.counts(harness.Counts{Active: 1, DeadLetter: 3})
	r := s.next(2, "red")
	s.completed(r, s.inSession(r, "m3")...)
	s.noSession(3)
	if m := s.receiveOne(s.deadLetters(3)); m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
		s.Errorf("dead-lettered because of %v", m.DeadLetterReason)
	}
}

// The holder of a session can peek at its messages in any state, and at no others.
func peekInSession(s suite) {
	s.sendIn("red", "m1")
	s.sendIn("blue", "x1", "x2")
	s.sendIn("red", "m2", "m3")
	_, err := s.sender(1).ScheduleMessages(s.ctx, []*azservicebus.Message{{MessageID: ptr("m4"), SessionID: ptr("red")}}, time.Now().Add(time.Hour), nil)
	s.must("schedule", err)
	r := s.accept(2, "red")
	held := s.inSession(r, "m1", "m2")
	s.must("defer", r.DeferMessage(s.ctx, held[0], nil))
	peeked, err := r.PeekMessages(s.ctx, 2, nil)
	s.must("peek", err)
	more, err := r.PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	peeked = append(peeked, more...)
	if diff := cmp.Diff([]string{"m1", "m2", "m3", "m4"}, ids(peeked)); diff != "" {
		s.Fatalf("peeked (-want +got)\n%s", diff)
	}
	if peeked[0].State != azservicebus.MessageStateDeferred || peeked[2].State != azservicebus.MessageStateActive || peeked[3].State != azservicebus.MessageStateScheduled {
		s.Errorf("states %v, %v, %v", peeked[0].State, peeked[2].State, peeked[3].State)
	}
	from, err := r.PeekMessages(s.ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: held[1].SequenceNumber})
	s.must("peek", err)
	if diff := cmp.Diff([]string{"m2", "m3", "m4"}, ids(from)); diff != "" {
		s.Errorf("peeked from m2 on (-want +got)\n%s", diff)
	}
	s.counts(harness.Counts{Active: 4, Locked: 1, Deferred: 1, Scheduled: 1})
}

// All sessions with messages or a state are listed, over as many pages as needed, or only those
// whose state was set after a given time.
func listSessions(s suite) {
	const n = 250 // a page of azservicebus has 100
	list := func(member int, after *time.Time) []string {
		s.Helper()
		pager := s.client(member).NewListSessionsForQueuePager(s.queue, &azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: after})
		var all []string
		for pager.More() {
			page, err := pager.NextPage(s.ctx)
			s.must("next page", err)
			all = append(all, page.Sessions...)
		}
		slices.Sort(all)
		return all
	}
	if got := list(1, nil); len(got) != 0 {
		s.Errorf("a queue without messages has the sessions %q", got)
	}
	sender := s.sender(1)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	var want []string
	for i := range n {
		session := fmt.Sprintf("s%03d", i)
		want = append(want, session)
		s.must("add", batch.AddMessage(&azservicebus.Message{SessionID: &session}, nil))
	}
	s.must("send", sender.SendMessageBatch(s.ctx, batch, nil))
	for member := range 3 {
		if diff := cmp.Diff(want, list(member+1, nil)); diff != "" {
			s.Errorf("sessions at member %d (-want +got)\n%s", member+1, diff)
		}
	}
	before := time.Now().Add(-time.Minute)
	if got := list(2, &before); len(got) != 0 {
		s.Errorf("no state was set, but listed are %q", got)
	}
	r := s.accept(2, "only a state")
	s.must("set state", r.SetSessionState(s.ctx, []byte("x"), nil))
	s.must("close", r.Close(s.ctx))
	s.accept(3, "neither")
	if diff := cmp.Diff(append([]string{"only a state"}, want...), list(1, nil)); diff != "" {
		s.Errorf("with a state more (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"only a state"}, list(3, &before)); diff != "" {
		s.Errorf("with a state (-want +got)\n%s", diff)
	}
	after := time.Now().Add(time.Minute)
	if got := list(3, &after); len(got) != 0 {
		s.Errorf("listed as set in the future are %q", got)
	}
}

// A subscription with sessions groups its copies; it dead-letters a copy without a session
// with the reason, while another subscription delivers that copy as usual.
func sessionsOfSubscriptions(s suite) {
	topic := s.topic(nil)
	a := topic.subscription("a", grouped(harness.Settings{}))
	plain := topic.subscription("plain", harness.Settings{})
	named := topic.subscription("named", grouped(harness.Settings{}), harness.Rule{Name: "name", SQL: "1 = 1", Action: "SET sys.SessionId = 'of the rule'"})
	topic.sendIn("red", "m1")
	topic.send(1) // m1 again, without a session
	topic.sendIn("", "m2")
	topic.sendIn("red", "m3")

	red := a.next(2, "red")
	a.completed(red, a.inSession(red, "m1", "m3")...)
	empty := a.next(3, "")
	a.held(1, "red")
	a.completed(empty, a.inSession(empty, "m2")...)
	a.counts(harness.Counts{DeadLetter: 1})
	dead := a.receiveOne(a.deadLetters(1))
	if dead.SessionID != nil || dead.DeadLetterReason == nil || *dead.DeadLetterReason != "Session ID is null" ||
		dead.DeadLetterErrorDescription == nil || *dead.DeadLetterErrorDescription != "Session enabled entity doesn't allow a message whose session identifier is null." {
		s.Errorf("dead letter of session %v, reason %v, description %v", dead.SessionID, dead.DeadLetterReason, dead.DeadLetterErrorDescription)
	}
	got := plain.gets(3, "m1", "m1", "m2", "m3")
	if got[1].SessionID != nil || got[2].SessionID == nil || *got[2].SessionID != "" || *got[3].SessionID != "red" {
		s.Errorf("beside came sessions %v, %v, %v", got[1].SessionID, got[2].SessionID, got[3].SessionID)
	}
	one := named.next(2, "of the rule")
	named.completed(one, named.inSession(one, "m1", "m1", "m2", "m3")...)
	named.counts(harness.Counts{})
	s.WaitTopicCounts(s.T, topic.queue, harness.Counts{Subscriptions: 3})
}

// A message that is forwarded to a queue with sessions is in its session there; its source dead-letters
// a message without one.
func forwardToSessions(s suite) {
	to := s.another("to", s, grouped(harness.Settings{}))
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	s.sendIn("red", "m1", "m2")
	s.send(1)
	s.sendIn("blue", "x1")
	s.counts(harness.Counts{DeadLetter: 1})
	to.counts(harness.Counts{Active: 3})
	red := to.next(2, "red")
	to.completed(red, to.inSession(red, "m1", "m2")...)
	blue := to.next(3, "blue")
	to.completed(blue, to.inSession(blue, "x1")...)
	if m := s.receiveOne(s.deadLetters(1)); m.DeadLetterReason == nil || *m.DeadLetterReason != "Session ID is null" {
		s.Errorf("dead-lettered because of %v", m.DeadLetterReason)
	}
}

// Purging removes the available messages of sessions that nobody holds.
func purgeSessions(s suite) {
	s.sendIn("red", "m1", "m2")
	s.sendIn("blue", "x1", "x2")
	r := s.accept(2, "red")
	held := s.inSession(r, "m1")
	if got := command[purged](s, 1, "message", "purge", s.queue, "--yes"); got.Purged != 2 {
		s.Errorf("purged %d, want those of session blue", got.Purged)
	}
	s.completed(r, held...)
	s.completed(r, s.inSession(r, "m2")...)
	s.counts(harness.Counts{})
	s.noSession(3)
}

// com.microsoft:batch-delete-messages with a session-id deletes the unlocked messages of that session,
// whoever holds it, and none of other sessions, at most 4,000 at a time. The official Go client has no method
// for it: these are the frames of the .NET client.
func batchDeleteInSession(s suite) {
	s.sendIn("red", "m1", "m2", "m3")
	s.sendIn("blue", "x1", "x2")
	r := s.accept(2, "red")
	held := s.inSession(r, "m1")
	deleted := func(session string, count int32) {
		s.Helper()
		_, body := s.ask(3, "com.microsoft:batch-delete-messages", map[string]any{
			"message-count": int32(5000), "enqueued-time-utc": time.Now().Add(time.Hour), "session-id": session,
		})
		if n, _ := body["message-count"].(int32); n != count {
			s.Errorf("deleted %d of %s, want %d", n, session, count)
		}
	}
	deleted("red", 2)
	s.counts(harness.Counts{Active: 3, Locked: 1})
	deleted("red", 0)
	deleted("blue", 2)
	sender := s.sender(1)
	for range 3 {
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must("new batch", err)
		for range 1400 {
			s.must("add to batch", batch.AddMessage(&azservicebus.Message{SessionID: ptr("green")}, nil))
		}
		s.must("send batch", sender.SendMessageBatch(s.ctx, batch, nil))
	}
	deleted("green", 4000)
	deleted("green", 200)
	deleted("green", 0)
	s.completed(r, held...)
	s.counts(harness.Counts{})
}

// A session lock with a token is taken over at another member, as the client for .NET does it: the link before is
// detached, what it got is settled by its lock, and the link after gets what follows.
func takeOverSession(s suite) {
	s.sendIn("red", "m1", "m2")
	accept := func(member int, session, token any) (r *raw, name string, assigned wire.UUID) {
		s.Helper()
		r = s.rawSession(member)
		a := r.attach(wire.RoleReceiver, 0)
		a.Source.Filter = wire.Map{{
			Key:   wire.Symbol("com.microsoft:non-exclusive-session-filter:list"),
			Value: wire.Described{Descriptor: uint64(0x000000137000000E), Value: []any{session, token}},
		}}
		r.write(a)
		reply := expect[*wire.Attach](r)
		if reply.Source == nil || len(reply.Source.Filter) != 1 {
			s.Fatalf("reply %+v", reply.Source)
		}
		d, _ := reply.Source.Filter[0].Value.(wire.Described)
		fields, _ := d.Value.([]any)
		if len(fields) != 2 {
			s.Fatalf("filter %+v", d)
		}
		return r, fields[0].(string), fields[1].(wire.UUID)
	}
	first, name, token := accept(1, nil, nil)
	first.write(flow(0, 0, 1, false))
	t := expect[*wire.Transfer](first).DeliveryTag // a lock token in the byte order of .NET
	lock := amqp.UUID{t[3], t[2], t[1], t[0], t[5], t[4], t[7], t[6], t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15]}
	next, again, same := accept(2, name, token)
	if name != "red" || again != "red" || same != token {
		s.Errorf("session %q with token %v, then %q with %v", name, token, again, same)
	}
	status, answer := s.ask(3, "com.microsoft:update-disposition", map[string]any{
		"session-id": name, "disposition-status": "completed", "lock-tokens": []amqp.UUID{lock},
	})
	if status != 200 {
		s.Errorf("settlement of the first message: %d %v", status, answer)
	}
	// The link before stays until its client asks for more with nothing in hand.
	first.write(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Settled: true, State: &wire.Accepted{}})
	first.write(flow(0, 1, 1, false))
	if lost := expect[*wire.Detach](first); lost.Error == nil || lost.Error.Condition != wire.ConditionSessionLockLost {
		s.Errorf("detached with %+v", lost.Error)
	}
	next.write(flow(0, 0, 1, false))
	expect[*wire.Transfer](next)
	s.counts(harness.Counts{Active: 1, Locked: 1})
}
