package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestSessionSurvivesItsLeader checks that a session that is locked through one member survives the death of
// its leader: its holder continues, in order, with its state, and no other receiver gets it
// (docs/requirements.md#c5).
func TestSessionSurvivesItsLeader(t *testing.T) { inBubble(t, sessionSurvivesItsLeader) }

func sessionSurvivesItsLeader(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", withSessions)
	leader := c.leader(at.Partition)
	one, two := c.nodes[(leader+1)%3], c.nodes[(leader+2)%3]

	sendAll(t, two, at, inSession("red", "1", "2", "3", "4")...)
	s := acceptNamed(t, one, at, "red")
	got := lockMessages(s.Receiver, 2, time.Minute)
	if d := cmp.Diff([]string{"1", "2"}, payloads(got.deliveries)); d != "" {
		t.Fatal(d)
	}
	kit.OK(t, s.SetState(t.Context(), []byte("half way")))
	c.kill(leader)
	if code := settleMessage(t, one, at, got.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
		t.Errorf("settle under the next leader: %v", code)
	}
	more := lockMessages(s.Receiver, 10, time.Minute)
	if d := cmp.Diff([]string{"3", "4"}, payloads(more.deliveries)); d != "" {
		t.Error(d)
	}
	if state, err := s.State(t.Context()); string(state) != "half way" || err != nil {
		t.Errorf("state %q, %v", state, err)
	}
	name := "red"
	thief, _ := accepting(two, at, &name, waitMax)
	if a := <-thief; a.code != fsm.SessionCannotBeLocked {
		t.Errorf("somebody else gets %v", a.code)
	}
	released := make(chan struct{})
	s.Release(func() { close(released) })
	<-released
	next := acceptNamed(t, two, at, "red")
	defer next.Close()
	got = lockMessages(next.Receiver, 10, time.Minute)
	if d := cmp.Diff([]string{"2", "3", "4"}, payloads(got.deliveries)); d != "" {
		t.Error(d)
	}
	for _, d := range got.deliveries {
		if d.FailedDeliveries != 0 {
			t.Errorf("%s counts %d attempts after an orderly release", d.Payload, d.FailedDeliveries)
		}
	}
	if err := s.SetState(t.Context(), nil); !errors.Is(err, fsm.SessionLockLost) {
		t.Errorf("the old holder sets the state: %v", err)
	}
}

// TestReceiverOfAnySessionGetsTheOldest checks that a receiver that waits for any session gets the one with the oldest message,
// through any member, and that a wait that times out or is cancelled takes no session.
func TestReceiverOfAnySessionGetsTheOldest(t *testing.T) {
	inBubble(t, receiverOfAnySessionGetsTheOldest)
}

func receiverOfAnySessionGetsTheOldest(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", withSessions)
	leader := c.leader(at.Partition)
	none, _ := accepting(c.nodes[(leader+1)%3], at, nil, 50*time.Millisecond)
	if a := <-none; a.code != fsm.Timeout {
		t.Errorf("without sessions: %v", a.code)
	}
	gone, cancel := accepting(c.nodes[(leader+2)%3], at, nil, time.Minute)
	cancel()
	if a := <-gone; a.code != fsm.Timeout {
		t.Errorf("cancelled: %v", a.code)
	}
	var waiting []chan acceptedSession
	for i := range 3 {
		got, _ := accepting(c.nodes[i], at, nil, time.Minute)
		waiting = append(waiting, got)
	}
	for i := range 3 {
		sendAll(t, c.nodes[0], at, inSession(fmt.Sprint("s", i), "x")...)
	}
	names := map[string]bool{}
	for _, got := range waiting {
		a := <-got
		if a.code != fsm.OK {
			t.Fatalf("accept: %v", a.code)
		}
		names[a.session.Name()] = true
		defer a.session.Close()
	}
	if len(names) != 3 {
		t.Errorf("got sessions %v", names)
	}
	list, err := c.nodes[0].Router().Sessions(t.Context(), at, 0, 0, 10)
	if err != nil || len(list) != 3 {
		t.Errorf("%d sessions are listed: %v", len(list), err)
	}
}

// TestExpiredSessionLockFreesTheSession checks that the lock of a session expires: the holder gets an error, its messages
// count a failed delivery, and a waiting receiver gets the session.
func TestExpiredSessionLockFreesTheSession(t *testing.T) {
	inBubble(t, expiredSessionLockFreesTheSession)
}

func expiredSessionLockFreesTheSession(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 1)
	c.startAll()
	at := c.create("orders", withSessions)
	node, other := c.nodes[0], c.nodes[1]
	sendAll(t, node, at, inSession("", "1", "2")...)
	s := acceptNamed(t, node, at, "")
	first := lockMessages(s.Receiver, 1, time.Minute)
	until := make(chan fsm.Instant, 1)
	s.Renew(func(_ fsm.Code, at fsm.Instant) { until <- at })
	if at := <-until; at == 0 || at != s.Until() {
		t.Errorf("renewed until %d, known as %d", at, s.Until())
	}
	waiting, _ := accepting(other, at, nil, time.Minute)
	c.pass(clock, time.Hour)
	next := <-waiting
	if next.code != fsm.OK || next.session.Name() != "" {
		t.Fatalf("accept: %v", next.code)
	}
	defer next.session.Close()
	if got := lockMessages(s.Receiver, 1, time.Minute); got.code != fsm.SessionLockLost {
		t.Errorf("the old holder gets %v", got.code)
	}
	if code := settleMessage(t, node, at, first.deliveries[0].Lock, fsm.Complete); code != fsm.MessageLockLost {
		t.Errorf("the old holder settles: %v", code)
	}
	again := lockMessages(next.session.Receiver, 5, time.Minute)
	if d := cmp.Diff([]string{"1", "2"}, payloads(again.deliveries)); d != "" || again.deliveries[0].FailedDeliveries != 1 || again.deliveries[1].FailedDeliveries != 0 {
		t.Errorf("attempts %+v %s", again.deliveries, d)
	}
	s.Close()
	peeked, err := node.Router().PeekSession(t.Context(), at, "", 0, 10, 1<<20)
	if d := cmp.Diff([]string{"1", "2"}, payloads(peeked)); d != "" || err != nil {
		t.Errorf("peek: %v %s", err, d)
	}
}
