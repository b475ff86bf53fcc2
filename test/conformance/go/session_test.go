package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func sessionChecks() []check {
	sessions, short := grouped(harness.Settings{}), grouped(harness.Settings{LockDuration: lockMinimum})
	return []check{
		{name: "accept", settings: sessions, run: acceptNamed},
		{name: "accept next", settings: sessions, run: acceptNext},
		{name: "accept at once", settings: sessions, run: acceptAtOnce},
		{name: "wait for a session", settings: sessions, run: waitForSession},
		{name: "order", settings: sessions, run: orderInSession},
		{name: "one holder", settings: sessions, run: oneHolder},
		{name: "several on a connection", settings: sessions, run: severalSessions},
		{name: "connection goes", settings: sessions, run: connectionIsLost},
		{name: "renew session", settings: short, run: renewSession},
		{name: "lock ends", settings: short, run: sessionLockEnds},
		{name: "lock ends unseen", settings: short, run: sessionLockEndsUnseen},
		{name: "by hand", settings: sessions, run: sessionByHand},
		{name: "take session", settings: sessions, run: receiveAndDeleteSession},
		{name: "wrong ends of sessions", settings: sessions, run: wrongEndsOfSessions},
		{name: "names of sessions", settings: sessions, run: namesOfSessions},
		{name: "two hundred sessions", settings: grouped(harness.Settings{LockDuration: lockLong}), run: twoHundredSessions},
	}
}

// A session can be accepted by name at any member, whichever leads, also a session without messages
// or with an empty name; it delivers only its own messages.
func acceptNamed(s suite) {
	s.sendIn("red", "r1", "r2")
	s.sendIn("", "e1")
	s.sendIn("red", "r3")
	for member, v := range map[int]struct {
		session string
		want    []string
	}{1: {"red", []string{"r1", "r2", "r3"}}, 2: {"", []string{"e1"}}, 3: {"empty", nil}} {
		r := s.accept(member, v.session)
		if left := time.Until(r.LockedUntil()); left < 20*time.Second || left > 31*time.Second {
			s.Errorf("session %q is locked for %v, want 30 s", v.session, left)
		}
		got := s.inSession(r, v.want...)
		for _, m := range got {
			if m.LockedUntil == nil || !m.LockedUntil.Equal(r.LockedUntil()) || m.DeliveryCount != 1 {
				s.Errorf("%s is locked until %v, its session until %v; delivery count %d", m.MessageID, m.LockedUntil, r.LockedUntil(), m.DeliveryCount)
			}
		}
		if v.want == nil {
			s.noneIn(r)
			s.sendIn(v.session, "late")
			got = s.inSession(r, "late")
		}
		s.completed(r, got...)
		s.must("close", r.Close(s.ctx))
	}
	s.counts(harness.Counts{})
}

// The next session is the one with the oldest message that nobody holds, at any member.
func acceptNext(s suite) {
	s.sendIn("b", "b1")
	s.sendIn("a", "a1")
	s.sendIn("c", "c1")
	s.sendIn("b", "b2")
	b := s.next(1, "b")
	a := s.next(2, "a")
	c := s.next(3, "c")
	s.noSession(1)
	s.sendIn("a", "a2") // is held: not available to others
	s.noSession(2)
	s.completed(a, s.inSession(a, "a1", "a2")...)
	s.must("close", a.Close(s.ctx))
	s.noSession(3) // is empty now
	s.completed(b, s.inSession(b, "b1")...)
	s.must("close", b.Close(s.ctx))
	again := s.next(2, "b")
	s.completed(again, s.inSession(again, "b2")...)
	s.completed(c, s.inSession(c, "c1")...)
	s.counts(harness.Counts{})
}

// Each of many waiting receivers gets its own session.
func acceptAtOnce(s suite) {
	const n = 12
	got := make(chan string, n)
	var all sync.WaitGroup
	for i := range n {
		client := s.oneTry(i%3 + 1)
		all.Go(func() {
			r, err := s.tryAccept(s.ctx, client, nil, nil)
			if err != nil {
				s.Errorf("accept: %v", err)
				return
			}
			got <- r.SessionID()
		})
	}
	var want []string
	for i := range n {
		session := fmt.Sprintf("s%02d", i)
		s.sendIn(session, "m"+session)
		want = append(want, session)
	}
	all.Wait()
	close(got)
	var have []string
	for session := range got {
		have = append(have, session)
	}
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		s.Errorf("accepted (-want +got)\n%s", diff)
	}
}

// A receiver that waits in vain gets an answer after the time that the client sends, and its request
// leaves nothing behind: it does not get a session that becomes available later.
func waitForSession(s suite) {
	begun := time.Now()
	_, err := s.session(2).NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{
		Filters:    []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, nil)},
		Properties: map[string]any{"com.microsoft:timeout": uint32(noMessageWait.Milliseconds())},
	})
	wantCondition(s, "wait in vain", err, "com.microsoft:timeout")
	if waited := time.Since(begun); waited < noMessageWait {
		s.Errorf("was told so after %v", waited)
	}
	// azservicebus sends its own deadline minus a hundredth, and may give up before the answer.
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	_, err = s.tryAccept(ctx, s.oneTry(2), nil, nil)
	var coded *azservicebus.Error
	if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &coded) || coded.Code != azservicebus.CodeTimeout) {
		s.Errorf("waited in vain: %v, want code %s", err, azservicebus.CodeTimeout)
	}
	s.noSession(1)
	gone := s.oneTry(2)
	waiting, leave := context.WithCancel(s.ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = s.tryAccept(waiting, gone, nil, nil)
	}()
	<-time.After(noMessageWait)
	leave()
	<-over
	s.must("close", gone.Close(s.ctx))
	s.sendIn("red", "m1")
	r := s.next(3, "red")
	s.completed(r, s.inSession(r, "m1")...)
}

// Several messages are in flight, in order; they can be settled in any order, and released messages
// are delivered first again, at their old place before later messages.
func orderInSession(s suite) {
	s.sendIn("red", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
	s.sendIn("blue", "x1")
	r := s.accept(2, "red")
	held := s.inSession(r, "m1", "m2", "m3", "m4", "m5")
	s.counts(harness.Counts{Active: 9, Locked: 5})
	s.completed(r, held[4], held[0])
	s.must("abandon", r.AbandonMessage(s.ctx, held[3], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": "once"}}))
	s.must("abandon", r.AbandonMessage(s.ctx, held[1], nil))
	again := s.inSession(r, "m2", "m4", "m6")
	if again[0].DeliveryCount != 2 || again[1].DeliveryCount != 2 || again[2].DeliveryCount != 1 || again[1].ApplicationProperties["tried"] != "once" {
		s.Errorf("delivery counts %d, %d, %d; properties %v", again[0].DeliveryCount, again[1].DeliveryCount, again[2].DeliveryCount, again[1].ApplicationProperties)
	}
	s.must("close", r.Close(s.ctx))
	s.counts(harness.Counts{Active: 7})
	r = s.accept(3, "red")
	rest := s.inSession(r, "m2", "m3", "m4", "m6", "m7", "m8")
	// The end of the link does not count an attempt for its messages; abandoning did.
	for i, want := range []uint32{2, 1, 2, 1, 1, 1} {
		if rest[i].DeliveryCount != want {
			s.Errorf("%s comes with delivery count %d, want %d", rest[i].MessageID, rest[i].DeliveryCount, want)
		}
	}
	s.completed(r, rest...)
	s.counts(harness.Counts{Active: 1})
}

// A session has one holder across all members; closing frees it immediately.
func oneHolder(s suite) {
	s.sendIn("red", "m1", "m2")
	r := s.accept(1, "red")
	held := s.inSession(r, "m1")
	for member := range 3 {
		s.held(member+1, "red")
	}
	s.noSession(2)
	s.completed(r, held...)
	s.must("close", r.Close(s.ctx))
	r = s.accept(2, "red") // immediately
	s.held(1, "red")
	s.completed(r, s.inSession(r, "m2")...)
	s.must("close", r.Close(s.ctx))
	r = s.accept(3, "red")
	s.held(1, "red")
	s.noneIn(r)
}

// One connection holds several sessions; a request for one of them is not answered
// for another.
func severalSessions(s suite) {
	client := s.oneTry(2)
	receivers := map[string]*azservicebus.SessionReceiver{}
	for _, session := range []string{"a", "b", "c"} {
		s.sendIn(session, session+"1", session+"2")
		r, err := s.tryAccept(s.ctx, client, &session, nil)
		s.must("accept "+session, err)
		s.must("set state", r.SetSessionState(s.ctx, []byte("state of "+session), nil))
		receivers[session] = r
	}
	s.must("close", receivers["b"].Close(s.ctx))
	for _, session := range []string{"c", "a"} {
		r := receivers[session]
		state, err := r.GetSessionState(s.ctx, nil)
		if err != nil || string(state) != "state of "+session {
			s.Errorf("session %q has the state %q, %v", session, state, err)
		}
		s.must("renew", r.RenewSessionLock(s.ctx, nil))
		got := s.inSession(r, session+"1", session+"2")
		s.completed(r, got[0])
		s.must("defer", r.DeferMessage(s.ctx, got[1], nil))
		deferred, err := r.ReceiveDeferredMessages(s.ctx, []int64{*got[1].SequenceNumber}, nil)
		s.must("receive deferred", err)
		s.completed(r, deferred...)
	}
	b := s.next(3, "b")
	s.completed(b, s.inSession(b, "b1", "b2")...)
	s.counts(harness.Counts{})
}

// The loss of a connection frees its sessions immediately, and no attempt is counted.
func connectionIsLost(s suite) {
	s.sendIn("red", "m1", "m2")
	client := s.client(2)
	r, err := s.tryAccept(s.ctx, client, ptr("red"), nil)
	s.must("accept", err)
	s.inSession(r, "m1", "m2")
	s.held(1, "red")
	s.must("close the client", client.Close(s.ctx))
	again := s.next(3, "red")
	got := s.inSession(again, "m1", "m2")
	if got[0].DeliveryCount != 1 || got[1].DeliveryCount != 1 {
		s.Errorf("delivery counts %d and %d", got[0].DeliveryCount, got[1].DeliveryCount)
	}
	s.completed(again, got...)
}

// A renewed session is held beyond its first expiry, with all messages locked under it.
func renewSession(s suite) {
	s.sendIn("red", "m1", "m2")
	r := s.accept(2, "red")
	held := s.inSession(r, "m1", "m2")
	first := r.LockedUntil()
	for time.Now().Before(first.Add(s.lock() / 2)) {
		before := r.LockedUntil()
		<-time.After(s.lock() / 3)
		s.until(before).must("renew", r.RenewSessionLock(s.ctx, nil))
		if !r.LockedUntil().After(before) {
			s.Errorf("renewed from %v to %v", before, r.LockedUntil())
		}
	}
	s.held(1, "red")
	s.completed(r, held...)
	s.counts(harness.Counts{})
}

// A session that is not renewed goes to the next receiver, with one more delivery counted for the
// messages locked under it; all requests of its first holder fail with the reason, and settle nothing.
func sessionLockEnds(s suite) {
	s.sendIn("red", "m1", "m2", "m3")
	early := s.until(time.Now().Add(s.lock()))
	idle := s.linkTo(2, "red", 2) // has no credit left for m3
	held := []*amqp.Message{early.get(idle), early.get(idle)}
	until, _ := held[0].Annotations["x-opt-locked-until"].(time.Time)
	next := s.next(3, "red")
	if now := time.Now(); now.Before(until) {
		s.Errorf("was given to another %v before the end of the lock", until.Sub(now))
	}
	got := s.inSession(next, "m1", "m2", "m3")
	for i, want := range []uint32{2, 2, 1} {
		if got[i].DeliveryCount != want {
			s.Errorf("%s comes with delivery count %d, want %d", got[i].MessageID, got[i].DeliveryCount, want)
		}
	}
	for what, err := range map[string]error{
		"complete": idle.AcceptMessage(s.ctx, held[0]), "abandon": idle.ModifyMessage(s.ctx, held[1], nil),
	} {
		wantCondition(s, what+" by the first holder", err, sessionLockLost) // its link was detached
	}
	s.until(next.LockedUntil()).completed(next, got...)
	s.must("close", next.Close(s.ctx))
	s.counts(harness.Counts{})

	waits := s.linkTo(1, "red", 5)
	_, err := waits.Receive(s.ctx, nil) // until the lock has expired
	wantCondition(s, "wait beyond the end of the lock", err, sessionLockLost)
	s.must("close", s.accept(3, "red").Close(s.ctx))
}

// azservicebus treats a lost session lock as a lost link: it accepts the session again, if it is
// available, and reports success for the refused request. The broker does not settle the message.
func sessionLockEndsUnseen(s suite) {
	s.sendIn("red", "m1", "m2")
	early := s.until(time.Now().Add(s.lock()))
	r := s.accept(2, "red")
	late := early.inSession(r, "m1")
	early.counts(harness.Counts{Active: 2, Locked: 1})
	s.counts(harness.Counts{Active: 2}) // the lock has expired
	if err := r.CompleteMessage(s.ctx, late[0], nil); err != nil {
		s.Logf("a settlement that is too late: %v", err)
	}
	got := s.inSession(r, "m1", "m2")
	if got[0].DeliveryCount != 2 || got[1].DeliveryCount != 1 {
		s.Errorf("delivery counts %d and %d, want 2 and 1", got[0].DeliveryCount, got[1].DeliveryCount)
	}
	s.held(1, "red")
	s.completed(r, got...)
	s.counts(harness.Counts{})
}

// By hand: the reply names the session in the form of the request, with the expiry of the lock
// in the ticks of .NET; a null state deletes the state, which azservicebus cannot do.
func sessionByHand(s suite) {
	const ticks1970 = 621355968000000000
	s.sendIn("red", "m1")
	session := s.session(2)
	for name, f := range map[string]amqp.LinkFilter{
		"plain, named":     amqp.NewLinkFilter(sessionFilter, 0, "red"),
		"plain, next":      amqp.NewLinkFilter(sessionFilter, 0, nil),
		"described, named": amqp.NewLinkFilter(sessionFilter, 0x137000000C, "red"),
		"described, next":  amqp.NewLinkFilter(sessionFilter, 0x137000000C, nil),
	} {
		r, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{Credit: -1, Filters: []amqp.LinkFilter{f}})
		s.must(name, err)
		if got := r.LinkSourceFilterValue(sessionFilter); got != "red" {
			s.Errorf("%s: session %v", name, got)
		}
		ticks, _ := r.Properties()["com.microsoft:locked-until-utc"].(int64)
		if left := time.Until(time.UnixMilli((ticks - ticks1970) / 10_000)); left < 25*time.Second || left > 31*time.Second {
			s.Errorf("%s: locked for %v, want 30 s", name, left)
		}
		s.must("close", r.Close(s.ctx))
	}
	r, err := session.NewReceiver(s.ctx, s.queue, &amqp.ReceiverOptions{Credit: -1, Filters: []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, "red")}})
	s.must("accept", err)
	for _, state := range []any{nil, []byte{}, []byte("x"), nil} {
		if status, _ := s.askOver(session, "com.microsoft:set-session-state", map[string]any{"session-id": "red", "session-state": state}); status != http.StatusOK {
			s.Errorf("set state %v: status %d", state, status)
		}
		status, body := s.askOver(session, "com.microsoft:get-session-state", map[string]any{"session-id": "red"})
		want := state
		if b, ok := state.([]byte); ok && len(b) == 0 {
			want = nil // an empty state is none
		}
		if got, there := body["session-state"]; status != http.StatusOK || !there || !cmp.Equal(want, got) {
			s.Errorf("status %d, state %v, there %v; set was %v", status, got, there, state)
		}
	}
	for operation, body := range map[string]map[string]any{
		"com.microsoft:renew-session-lock": {}, "com.microsoft:get-session-state": {}, "com.microsoft:set-session-state": {"session-state": nil},
	} {
		body["session-id"] = "red"
		if status, _ := s.ask(3, operation, body); status != http.StatusGone { // belongs to another connection
			s.Errorf("%s over another connection: status %d, want 410", operation, status)
		}
	}
	s.must("close", r.Close(s.ctx))
	if status, _ := s.askOver(session, "com.microsoft:renew-session-lock", map[string]any{"session-id": "red"}); status != http.StatusGone {
		s.Errorf("renew what was given back: status %d, want 410", status)
	}
}

// Receive-and-delete takes the messages of a session in order, once, and no others.
func receiveAndDeleteSession(s suite) {
	s.sendIn("red", "m1", "m2", "m3")
	s.sendIn("blue", "x1")
	r, err := s.tryAccept(s.ctx, s.oneTry(3), ptr("red"), &azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	s.must("accept", err)
	s.inSession(r, "m1", "m2", "m3")
	s.counts(harness.Counts{Active: 1})
	s.held(1, "red")
	s.noneIn(r)
}

// A message without a session is refused, a receiver that asks for no session is refused, and a
// queue without sessions refuses receivers that ask for one.
func wrongEndsOfSessions(s suite) {
	sender := s.sender(1)
	s.notAllowed("send without session", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("x")}, nil))
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	s.must("add", batch.AddMessage(&azservicebus.Message{SessionID: ptr("red")}, nil))
	s.must("add", batch.AddMessage(&azservicebus.Message{}, nil))
	s.notAllowed("send a batch of which one has no session", sender.SendMessageBatch(s.ctx, batch, nil))
	once, err := s.oneTry(1).NewSender(s.queue, nil)
	s.must("new sender", err)
	if _, err := once.ScheduleMessages(s.ctx, []*azservicebus.Message{{}}, time.Now().Add(time.Hour), nil); err == nil || !strings.Contains(err.Error(), "the SessionId was not set") {
		s.Errorf("schedule without session: %v", err)
	}
	s.counts(harness.Counts{})

	for member := range 3 {
		_, err := s.receiver(member+1).ReceiveMessages(s.ctx, 1, nil)
		s.notAllowed("receive without session", err)
	}
	plain := s.another("plain", s, harness.Settings{})
	_, err = plain.tryAccept(s.ctx, s.oneTry(2), ptr("red"), nil)
	s.notAllowed("accept where there are no sessions", err)
	_, err = plain.tryAccept(s.ctx, s.oneTry(2), nil, nil)
	s.notAllowed("accept the next where there are no sessions", err)
	plain.sendIn("red", "m1")
	if m := plain.gets(3, "m1")[0]; m.SessionID == nil || *m.SessionID != "red" {
		s.Errorf("the message has lost its session id, which is %v", m.SessionID)
	}
	s.sendIn("red", "m2") // the sender's links are still open
	r := s.next(1, "red")
	s.completed(r, s.inSession(r, "m2")...)
}

// A session id has up to 128 characters and is compared case-sensitively, character by character.
func namesOfSessions(s suite) {
	long := ""
	for len(long) < 3*126 {
		long += "\u20ac" // three bytes
	}
	names := []string{"", " ", "red", "Red", "a/b?c=d&e", "$default", "\u00e9\u00e8", long + "ab"}
	for i, name := range names {
		s.sendIn(name, fmt.Sprint(i))
	}
	for i, name := range names {
		r := s.accept(i%3+1, name)
		s.completed(r, s.inSession(r, fmt.Sprint(i))...)
	}
	too := long + "abc"
	once, err := s.oneTry(1).NewSender(s.queue, nil)
	s.must("new sender", err)
	if err := once.SendMessage(s.ctx, &azservicebus.Message{SessionID: &too}, nil); err == nil {
		s.Error("a session id of 129 characters was taken")
	}
	if _, err := s.tryAccept(s.ctx, s.oneTry(1), &too, nil); err == nil {
		s.Error("a session id of 129 characters was accepted")
	}
	s.counts(harness.Counts{})
}

// Two consumers at different members process two hundred sessions that receive more messages
// meanwhile: each message arrives once, the messages of a session in order.
func twoHundredSessions(s suite) {
	const sessions, rounds = 200, 5
	var mu sync.Mutex
	seen, total := map[string][]string{}, 0
	waiting, all := context.WithCancel(s.ctx)
	defer all()
	var consumers sync.WaitGroup
	for member := range 2 {
		client := s.oneTry(member + 2)
		consumers.Go(func() {
			for waiting.Err() == nil {
				session, got, err := s.receiveAllSessions(waiting, client)
				if err != nil {
					s.Errorf("consumer at member %d: %v", member+2, err)
					return
				}
				mu.Lock()
				seen[session] = append(seen[session], got...)
				if total += len(got); total == sessions*rounds && len(got) > 0 {
					all()
				}
				mu.Unlock()
			}
		})
	}
	sender := s.sender(1)
	for round := range rounds {
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must("new batch", err)
		for i := range sessions {
			session := fmt.Sprintf("s%03d", i)
			s.must("add", batch.AddMessage(&azservicebus.Message{SessionID: &session, MessageID: ptr(fmt.Sprintf("%s-%d", session, round))}, nil))
		}
		s.must("send", sender.SendMessageBatch(s.ctx, batch, nil))
	}
	consumers.Wait()
	for i := range sessions {
		session := fmt.Sprintf("s%03d", i)
		var want []string
		for round := range rounds {
			want = append(want, fmt.Sprintf("%s-%d", session, round))
		}
		if diff := cmp.Diff(want, seen[session]); diff != "" {
			s.Errorf("session %s (-want +got)\n%s", session, diff)
		}
	}
	s.counts(harness.Counts{})
}
