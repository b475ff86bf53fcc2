package amqp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

const shortLock = 5 * time.Second

// newShortSessions is newSessions with locks that end soon.
func newShortSessions(t *testing.T, messages int) *fakeBroker {
	t.Helper()
	return newSessions(t, shortLock, messages)
}

// newSessions returns a broker with queue "orders", whose session locks last for a time, and messages in session "red".
func newSessions(t *testing.T, lock time.Duration, messages int) *fakeBroker {
	t.Helper()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: fsm.Millis(lock.Milliseconds()), MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		m, err := message.Parse(encodedMessage(t, []byte("x")))
		if err != nil {
			t.Fatal(err)
		}
		m.Session, m.HasSession = "red", true
		h.do(sendOne(at, m))
	}
	return h
}

// acceptRed attaches a link to session "red".
func (p *peer) acceptRed(handle uint32) {
	p.Helper()
	p.receiver(handle, "orders", func(a *wire.Attach) { a.Source.Filter = wire.Map{{Key: sessionFilterKey, Value: "red"}} })
}

// lostBy reads the detach of a link whose session is lost, and returns when it came.
func (p *peer) lostBy(handle uint32) time.Time {
	p.Helper()
	d := expect[*wire.Detach](p)
	if d.Handle != handle || !d.Closed || d.Error == nil || d.Error.Condition != wire.ConditionSessionLockLost {
		p.Fatalf("detach %+v, error %+v", d, d.Error)
	}
	return time.Now()
}

// complete completes a delivery, and reads the answer.
func (p *peer) complete(id uint32) {
	p.Helper()
	p.send(dispose(id, id, false, &wire.Accepted{}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "accepted" {
		p.Fatalf("disposition %+v, want accepted", d.State)
	}
}

// lostSettlement settles a delivery of a session whose lock has ended.
func (p *peer) lostSettlement(id uint32) {
	p.Helper()
	p.send(dispose(id, id, false, &wire.Accepted{}))
	p.refused(id, wire.RoleSender, wire.ConditionSessionLockLost)
}

// A link whose session lock has ended, and whose client has no message in hand, is detached within a second, with or
// without credit, and not before a client gives up that began to wait for as long as the lock lasts right after it got the
// session.
func TestLinkOfALostSessionIsDetached(t *testing.T) {
	t.Parallel()
	for name, credit := range map[string]uint32{"without credit": 1, "with credit": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := loggedIn(t, newShortSessions(t, 1))
				began := time.Now()
				p.acceptRed(0)
				p.credit(0, 0, credit)
				id := *expect[*wire.Transfer](p).DeliveryID
				p.complete(id)
				if late := p.lostBy(0).Sub(began) - shortLock; late < 400*time.Millisecond || late > time.Second {
					t.Errorf("detached %v after the end of the lock", late)
				}
				p.send(&wire.Detach{Handle: 0, Closed: true})
				p.acceptRed(0)
			})
		})
	}
}

// A link whose session lock has ended while the client has messages in hand stays until the client has settled all of them
// and then sends a flow. It gets no message more, whatever its credit; the session is free for others at once.
func TestLinkOfALostSessionIsHeldWhileMessagesAreInHand(t *testing.T) {
	t.Parallel()
	for name, credit := range map[string]uint32{"without credit": 2, "with credit": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newShortSessions(t, 2)
				p := loggedIn(t, h)
				p.acceptRed(0)
				p.credit(0, 0, credit)
				p.deliveries(2)
				<-time.After(shortLock + time.Second)
				p.acceptRed(1)
				p.credit(0, 2, 5) // not all is settled
				p.credit(0, 2, 5, func(f *wire.Flow) { f.Echo = true })
				if f := expect[*wire.Flow](p); *f.Handle != 0 {
					t.Errorf("flow %+v", f)
				}
				p.lostSettlement(0)
				p.lostSettlement(1)
				p.credit(1, 0, 1)
				if d := expect[*wire.Transfer](p); d.Handle != 1 {
					t.Errorf("delivery over link %d, want 1", d.Handle)
				}
				p.credit(0, 2, 5)
				p.lostBy(0)
			})
		})
	}
}

// A flow that comes before the settlements are answered counts when they are.
func TestFlowBehindTheLastSettlementEndsALostLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newShortSessions(t, 1))
		p.acceptRed(0)
		p.credit(0, 0, 1)
		p.deliveries(1)
		<-time.After(shortLock + time.Second)
		p.send(dispose(0, 0, false, &wire.Accepted{}), &wire.Flow{Handle: new(uint32), DeliveryCount: ptr(uint32(1)), LinkCredit: ptr(uint32(1))})
		p.refused(0, wire.RoleSender, wire.ConditionSessionLockLost)
		p.lostBy(0)
	})
}

// A link whose client never settles is detached after ten minutes; settlements that cross the detach are answered with the
// same condition.
func TestLostLinkIsHeldForTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := loggedIn(t, newShortSessions(t, 1))
		began := time.Now()
		p.acceptRed(0)
		p.credit(0, 0, 1)
		p.deliveries(1)
		go func() {
			for range 6 {
				<-time.After(100 * time.Second)
				p.write(wire.AppendFrame(nil, wire.FrameAMQP, 0, nil)) // a heartbeat
			}
		}()
		if held := p.lostBy(0).Sub(began) - shortLock; held < lostLinkMax || held > lostLinkMax+time.Second {
			t.Errorf("held for %v, want %v", held, lostLinkMax)
		}
		p.lostSettlement(0)
		p.send(&wire.Detach{Handle: 0, Closed: true})
		p.send(dispose(0, 0, false, &wire.Accepted{}))
		p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost) // the delivery is forgotten
		p.acceptRed(0)
	})
}

// A delivery that is half sent when the session lock ends is aborted as soon as the client's window allows it.
func TestHalfSentDeliveryOfALostSessionIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newShortSessions(t, 1)
		at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
		large, err := message.Parse(encodedMessage(t, make([]byte, 4<<10)))
		if err != nil {
			t.Fatal(err)
		}
		large.Session, large.HasSession = "red", true
		h.do(sendOne(at, large))
		_, p := piped(t, h)
		p.login(func(o *wire.Open, b *wire.Begin) { o.MaxFrameSize, b.IncomingWindow = ptr(uint32(1<<10)), 3 })
		p.acceptRed(0)
		p.send(&wire.Flow{NextIncomingID: new(uint32), IncomingWindow: 3, Handle: new(uint32), DeliveryCount: new(uint32), LinkCredit: ptr(uint32(2))})
		for i, want := range []bool{false, true, true} {
			if d := expect[*wire.Transfer](p); d.More != want {
				t.Fatalf("frame %d: more is %v, want %v", i, d.More, want)
			}
		}
		<-time.After(shortLock + time.Second)
		p.send(&wire.Flow{NextIncomingID: ptr(uint32(3)), IncomingWindow: 3})
		if d := expect[*wire.Transfer](p); !d.Aborted || d.More {
			t.Errorf("frame after the loss: %+v, want aborted", d)
		}
		p.lostSettlement(0)
		p.credit(0, 2, 1)
		p.lostBy(0)
	})
}

// A session that is renewed keeps its link, whether the session or one of its messages is renewed. When the renewed lock
// has ended, the session is free, and the link stays while the client has the message in hand.
func TestRenewedSessionKeepsItsLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newShortSessions(t, 1)
		p := loggedIn(t, h)
		p.acceptRed(0)
		p.credit(0, 0, 1)
		lock := lockOf(t, h, expect[*wire.Transfer](p).DeliveryTag)
		at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
		for range 4 {
			<-time.After(shortLock - time.Second)
			h.do(fsm.RenewLocks{Address: at.Address(), Locks: []fsm.LockID{lock}})
		}
		<-time.After(shortLock - 100*time.Millisecond)
		p.send(&wire.Attach{Name: "other", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders", Filter: wire.Map{{Key: sessionFilterKey, Value: "red"}}}, Target: &wire.Target{}})
		if cause := p.refusedLink(); cause.Condition != wire.ConditionSessionCannotBeLocked {
			t.Errorf("accepted by another link before the end of the renewed lock: %+v", cause)
		}
		p.send(&wire.Detach{Handle: 1, Closed: true})
		<-time.After(1100 * time.Millisecond)
		p.acceptRed(1)
		p.lostSettlement(0)
		p.credit(0, 1, 1)
		p.lostBy(0)
	})
}

// lockOf returns the lock of a delivery-tag.
func lockOf(t *testing.T, h *fakeBroker, tag []byte) fsm.LockID {
	t.Helper()
	at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	id, ok := h.ParseLockToken(at, fsm.LockToken(tag))
	if !ok {
		t.Fatalf("% x is no lock token", tag)
	}
	return id
}

// A settlement that finds the lock of its session ended says so, and its link is detached at the next flow, whatever the
// clock of the member says.
func TestSettlementsUnderALostSessionSaySo(t *testing.T) {
	t.Parallel()
	h := newShortSessions(t, 1)
	p := loggedIn(t, h)
	p.acceptRed(0)
	p.credit(0, 0, 1)
	id := *expect[*wire.Transfer](p).DeliveryID
	h.advanceClock(shortLock)
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}})
	p.refused(id, wire.RoleSender, wire.ConditionSessionLockLost)
	p.credit(0, 1, 1)
	p.lostBy(0)
}

// Renewals, settlements and states of a session whose lock has ended are refused as those of a lost session,
// before the loss is known, while its link is held, and after the link is detached.
func TestRequestsUnderALostSessionSaySo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ known, detached bool }{
		"before the loss is known": {}, "while the link is held": {known: true}, "after the detach": {known: true, detached: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newShortSessions(t, 1)
			p := managementPeer(t, h, fsm.Manage)
			p.acceptRed(2)
			p.credit(2, 0, 1)
			d := expect[*wire.Transfer](p)
			id, token := *d.DeliveryID, message.UUIDFromToken(fsm.LockToken(d.DeliveryTag))
			h.advanceClock(shortLock)
			if c.known {
				p.lostSettlement(id)
			}
			if c.detached {
				p.credit(2, 1, 1)
				p.lostBy(2)
			}
			for i, operation := range []string{management.RenewOperation, management.DispositionOperation, management.RenewSessionOperation, management.GetStateOperation, management.SetStateOperation, management.DeferredOperation} {
				status, condition, _ := p.manage(uint32(i), operation, wire.Map{
					{Key: "session-id", Value: "red"},
					{Key: "disposition-status", Value: "completed"},
					{Key: "session-state", Value: []byte("s")},
					{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{token}}},
					{Key: "sequence-numbers", Value: wire.Array{Values: []int64{1}}},
					{Key: "receiver-settle-mode", Value: uint32(1)},
				})
				if status != int32(410) || condition != wire.ConditionSessionLockLost {
					t.Errorf("%s: status %v condition %v", operation, status, condition)
				}
			}
		})
	}
}

// A state of zero bytes reads back as null, also one that an earlier release stored.
func TestEmptySessionStateReadsBackAsNull(t *testing.T) {
	t.Parallel()
	h := newShortSessions(t, 1)
	p := managementPeer(t, h, fsm.Manage)
	p.acceptRed(2)
	of := func(pairs ...wire.Pair) wire.Map {
		return append(wire.Map{{Key: "session-id", Value: "red"}}, pairs...)
	}
	for i, state := range []any{[]byte("s"), []byte{}} {
		if status, _, _ := p.manage(uint32(2*i), management.SetStateOperation, of(wire.Pair{Key: "session-state", Value: state})); status != int32(200) {
			t.Errorf("set %v: status %v", state, status)
		}
		want := state
		if i == 1 {
			want = nil
		}
		if status, _, body := p.manage(uint32(2*i+1), management.GetStateOperation, of()); status != int32(200) || len(body) != 1 || !cmp.Equal(body[0].Value, want) {
			t.Errorf("state %v after setting %v", body, state)
		}
	}
}

// heldReleases is a broker whose sessions are released when free is closed.
type heldReleases struct {
	*fakeBroker
	free chan struct{}
}

func (b heldReleases) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, Session)) (cancel func()) {
	return b.fakeBroker.AcceptSession(at, wants, receiveAndDelete, wait, func(code fsm.Code, s Session) {
		if s != nil {
			s = heldRelease{s, b.free}
		}
		done(code, s)
	})
}

type heldRelease struct {
	Session
	free chan struct{}
}

func (s heldRelease) Release(done func()) {
	go func() { <-s.free; s.Session.Release(done) }()
}

// The detach of a session receiver is answered before the end that follows it at once, when the session is released, but the
// end waits for one second at most.
func TestDetachOfASessionIsAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		release time.Duration
		answers bool
	}{"released soon": {500 * time.Millisecond, true}, "released late": {2 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := heldReleases{newShortSessions(t, 2), make(chan struct{})}
				p := loggedIn(t, b)
				p.acceptRed(0)
				p.credit(0, 0, 2)
				p.deliveries(2)
				time.AfterFunc(c.release, func() { close(b.free) })
				began := time.Now()
				p.send(&wire.Detach{Handle: 0, Closed: true}, &wire.End{})
				if c.answers {
					if d := expect[*wire.Detach](p); d.Error != nil || !d.Closed {
						t.Errorf("detach %+v", d)
					}
				}
				expect[*wire.End](p)
				if took, want := time.Since(began), min(c.release, endWithin); took != want {
					t.Errorf("ended after %v, want %v", took, want)
				}
				<-time.After(2 * time.Second)
				p.send(&wire.Begin{IncomingWindow: 10})
				expect[*wire.Begin](p)
				p.acceptRed(0)
			})
		})
	}
}
