package partition

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// sessionGroup is one replica with an entity 1 that requires sessions, whose locks last half a minute.
func sessionGroup(t *testing.T, tune func(*Config)) (*Group, *asker) {
	t.Helper()
	ms := newMembers(t, 1, tune)
	ms[0].start(1)
	_, g := leader(t, ms, 1)
	a := &asker{origin: 7}
	s := settings()
	s.RequiresSession = true
	s.LockDuration = 30_000
	must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	return g, a
}

func sendIn(session string, bodies ...[]byte) fsm.SendMessages {
	c := send(1, bodies...)
	for i := range c.Messages {
		c.Messages[i].Session, c.Messages[i].HasSession = session, true
	}
	return c
}

// wait starts a request and returns when it waits.
func wait(t *testing.T, g *Group, r LockRequest, life time.Duration) chan Answer {
	t.Helper()
	standing := func() int {
		g.proposer.mu.Lock()
		defer g.proposer.mu.Unlock()
		if l := g.proposer.queues[r.waitKey()]; l != nil {
			return l.waiters.Len()
		}
		return 0
	}
	got, before := make(chan Answer, 1), standing()
	r.Until, r.Done = time.Now().Add(life), func(a Answer) { got <- a }
	g.Lock(r)
	kit.Eventually(t, "the request stands in line", func() bool { return standing() > before || len(got) > 0 })
	return got
}

func acceptAny(receiver uint64) LockRequest {
	return LockRequest{
		Header: fsm.Header{Incarnation: 8, Receiver: receiver, Serial: 1, Low: 1},
		Accept: &fsm.AcceptSession{Entity: 1},
	}
}

// A receiver that waits for a session gets the next one; a receiver that holds a session gets its messages
// and no others; in the entry of the send once one has matched.
func TestAcceptWaitsForASession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := sessionGroup(t, nil)
		second := wait(t, g, acceptAny(2), time.Minute)
		first := wait(t, g, acceptAny(1), time.Minute) // the newest gets the first session
		must(t, g, a.next(), sendIn("red", body(1)))
		got := await1(t, first).Result
		if got.Session.ID != "red" || got.Session.Epoch == 0 {
			t.Fatalf("got session %+v", got.Session)
		}
		locks := LockRequest{Header: fsm.Header{Incarnation: 8, Receiver: 1, Serial: 2, Low: 2}, Lock: lockOf(1, 10)}
		locks.Lock.Session = got.Session
		if ds := await1(t, wait(t, g, locks, time.Minute)).Result.Deliveries; len(ds) != 1 || string(ds[0].Payload) != string(body(1)) {
			t.Fatalf("got %d deliveries", len(ds))
		}
		locks.Header.Serial, locks.Header.Low = 3, 3
		more := wait(t, g, locks, time.Minute)
		before := g.Status().Applied
		must(t, g, a.next(), sendIn("blue", body(2)))
		must(t, g, a.next(), sendIn("red", body(3)))
		if ds := await1(t, more).Result.Deliveries; len(ds) != 1 || string(ds[0].Payload) != string(body(3)) {
			t.Fatalf("got %d deliveries", len(ds))
		}
		if s := await1(t, second).Result.Session; s.ID != "blue" {
			t.Fatalf("got session %+v", s)
		}
		if n := g.Status().Applied - before; n > 4 {
			t.Errorf("%d entries for two messages and those who waited for them", n)
		}
	})
}

// Of several receivers that wait for a session, the newest gets the next one. Receivers of messages are served in their order.
func TestNewestWaiterGetsTheNextSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := sessionGroup(t, nil)
		const waiters = 3
		var waits []chan Answer
		for i := range uint64(waiters) {
			waits = append(waits, wait(t, g, acceptAny(i+1), time.Minute))
		}
		for i := range waiters {
			session := fmt.Sprint("s", i)
			must(t, g, a.next(), sendIn(session, body(i)))
			newest := waiters - 1 - i
			if s := await1(t, waits[newest]).Result.Session; s.ID != session {
				t.Fatalf("waiter %d got session %q, want %q", newest, s.ID, session)
			}
		}
	})
}

// A wait for a session ends at its deadline, and when it is cancelled.
func TestAcceptEndsAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, _ := sessionGroup(t, nil)
		if a := await1(t, wait(t, g, acceptAny(1), 30*time.Millisecond)); a.Outcome != Done || a.Result.Session.Epoch != 0 || a.Result.Code != fsm.OK {
			t.Errorf("a wait that ended: %+v", a)
		}
		got := make(chan Answer, 1)
		r := acceptAny(2)
		r.Until, r.Done = time.Now().Add(time.Minute), func(a Answer) { got <- a }
		g.Lock(r)()
		if a := await1(t, got); a.Outcome != Done || a.Result.Session.Epoch != 0 {
			t.Errorf("a wait that was cancelled: %+v", a)
		}
	})
}

// A holder that waits for messages is told at once that its lock has expired, and the next receiver gets the
// session.
func TestSessionHolderIsToldOfTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var skew atomic.Int64 // of the clock
		g, a := sessionGroup(t, func(c *Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		})
		must(t, g, a.next(), sendIn("red", body(1)))
		held := must(t, g, a.next(), fsm.AcceptSession{Entity: 1, Named: true, ID: "red"}).Session
		took := must(t, g, a.next(), fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 10, MaxBytes: 1000, Session: held})
		locks := LockRequest{Header: fsm.Header{Incarnation: 8, Receiver: 1, Serial: 1, Low: 1}, Lock: lockOf(1, 10)}
		locks.Lock.Session = held
		holder := wait(t, g, locks, time.Minute)
		next := wait(t, g, acceptAny(2), time.Minute)
		skew.Store(int64(29900 * time.Millisecond)) // just before the lock of the session ends
		must(t, g, a.next(), fsm.Pulse{})
		if code := await1(t, holder).Result.Code; code != fsm.SessionLockLost {
			t.Errorf("the holder is told %v", code)
		}
		s := await1(t, next).Result.Session
		if s.ID != "red" || s.Epoch <= held.Epoch {
			t.Errorf("the next one gets %+v", s)
		}
		again := must(t, g, a.next(), fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 10, MaxBytes: 1000, Session: s})
		if d := cmp.Diff(took.Deliveries[0].Lock.Sequence, again.Deliveries[0].Lock.Sequence); d != "" || again.Deliveries[0].FailedDeliveries != 1 {
			t.Errorf("the message comes back with %d attempts%s", again.Deliveries[0].FailedDeliveries, d)
		}
	})
}

// A receiver that accepts a session again gets the messages that arrived while it was not held, also when its
// last holder had found it empty.
func TestReacceptedSessionIsNotTakenForEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, a := sessionGroup(t, nil)
		serial := uint64(0)
		ask := func(r LockRequest, life time.Duration) fsm.Result {
			serial++
			r.Header = fsm.Header{Incarnation: 8, Receiver: 1, Serial: serial, Low: serial}
			return await1(t, wait(t, g, r, life)).Result
		}
		for i := range 3 {
			must(t, g, a.next(), sendIn("red", body(i)))
			locks := LockRequest{Lock: lockOf(1, 10)}
			locks.Lock.Session = ask(LockRequest{Accept: &fsm.AcceptSession{Entity: 1}}, time.Minute).Session
			ds := ask(locks, time.Minute).Deliveries
			if len(ds) != 1 || string(ds[0].Payload) != string(body(i)) {
				t.Fatalf("turn %d: got %d deliveries", i, len(ds))
			}
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: ds[0].Lock, Verb: fsm.Complete}}})
			if ds := ask(locks, 20*time.Millisecond).Deliveries; len(ds) != 0 {
				t.Fatalf("turn %d: got %d deliveries more", i, len(ds))
			}
			must(t, g, a.next(), fsm.ReleaseSession{Entity: 1, Lock: locks.Lock.Session})
		}
	})
}
