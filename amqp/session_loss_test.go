package amqp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

const shortLock = 5 * time.Second

// newShortSessions returns a broker with queue "orders", whose session locks end soon, and messages in
// session "red".
func newShortSessions(t *testing.T, messages int) *fakeBroker {
	t.Helper()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: fsm.Millis(shortLock.Milliseconds()), MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
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

// A link whose session lock has ended is detached within a second, with or without credit, and not before a client gives
// up that began to wait for as long as the lock lasts right after it got the session; settlements that
// cross the detach are answered with the same condition.
func TestLinkOfALostSessionIsDetached(t *testing.T) {
	t.Parallel()
	for name, credit := range map[string]uint32{"without credit": 1, "with credit": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, p := piped(t, newShortSessions(t, 1))
				p.login()
				began := time.Now()
				p.acceptRed(0)
				p.credit(0, 0, credit)
				id := *expect[*wire.Transfer](p).DeliveryID
				if late := p.lostBy(0).Sub(began) - shortLock; late < 400*time.Millisecond || late > time.Second {
					t.Errorf("detached %v after the end of the lock", late)
				}
				p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}})
				p.refused(id, wire.RoleSender, wire.ConditionSessionLockLost)
				p.send(&wire.Detach{Handle: 0, Closed: true})
				p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}})
				p.refused(id, wire.RoleSender, wire.ConditionMessageLockLost) // the delivery is forgotten
				p.acceptRed(0)
			})
		})
	}
}

// A session that is renewed keeps its link, whether the session or one of its messages is renewed.
func TestRenewedSessionKeepsItsLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newShortSessions(t, 1)
		_, p := piped(t, h)
		p.login()
		p.acceptRed(0)
		p.credit(0, 0, 1)
		lock := lockOf(t, h, expect[*wire.Transfer](p).DeliveryTag)
		at, _ := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
		var renewed time.Time
		for range 4 {
			<-time.After(shortLock - time.Second)
			renewed = time.Now()
			h.do(fsm.RenewLocks{Address: at.Address(), Locks: []fsm.LockID{lock}})
		}
		if late := p.lostBy(0).Sub(renewed) - shortLock; late < 0 || late > time.Second {
			t.Errorf("detached %v after the end of the renewed lock", late)
		}
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

// A settlement that finds the lock of its session ended says so, and its link is detached, whatever the
// clock of the member says.
func TestSettlementsUnderALostSessionSaySo(t *testing.T) {
	t.Parallel()
	h := newShortSessions(t, 1)
	_, p := piped(t, h)
	p.login()
	p.acceptRed(0)
	p.credit(0, 0, 1)
	id := *expect[*wire.Transfer](p).DeliveryID
	h.advanceClock(shortLock)
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}})
	p.refused(id, wire.RoleSender, wire.ConditionSessionLockLost)
	p.lostBy(0)
}

// Renewals, settlements and states of a session whose lock has ended are refused as those of a lost session,
// before and after its link is detached.
func TestRequestsUnderALostSessionSaySo(t *testing.T) {
	t.Parallel()
	for name, detached := range map[string]bool{"before the detach": false, "after the detach": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newShortSessions(t, 1)
			p := managementPeer(t, h, fsm.Manage)
			p.acceptRed(2)
			p.credit(2, 0, 1)
			d := expect[*wire.Transfer](p)
			id, token := *d.DeliveryID, message.UUIDFromToken(fsm.LockToken(d.DeliveryTag))
			h.advanceClock(shortLock)
			if detached {
				p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}})
				p.refused(id, wire.RoleSender, wire.ConditionSessionLockLost)
				p.lostBy(2)
			}
			for i, operation := range []string{renewOperation, dispositionOperation, renewSessionOperation, getStateOperation, setStateOperation, deferredOperation} {
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
		if status, _, _ := p.manage(uint32(2*i), setStateOperation, of(wire.Pair{Key: "session-state", Value: state})); status != int32(200) {
			t.Errorf("set %v: status %v", state, status)
		}
		want := state
		if i == 1 {
			want = nil
		}
		if status, _, body := p.manage(uint32(2*i+1), getStateOperation, of()); status != int32(200) || len(body) != 1 || !cmp.Equal(body[0].Value, want) {
			t.Errorf("state %v after setting %v", body, state)
		}
	}
}
