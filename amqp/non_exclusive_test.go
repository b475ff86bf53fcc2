package amqp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// sharing makes an attach ask for a session that is not held exclusively, as the client for .NET does.
func sharing(session, token any) func(*wire.Attach) {
	return func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: nonExclusiveDescriptor, Value: wire.Described{Descriptor: nonExclusiveCode, Value: []any{session, token}}}}
	}
}

// acceptShared attaches a link to a session that is not held exclusively, and returns what the reply names.
func (p *peer) acceptShared(handle uint32, session, token any) (name string, assigned wire.UUID) {
	p.Helper()
	reply := p.receiver(handle, "orders", sharing(session, token))
	if len(reply.Source.Filter) != 1 || reply.Source.Filter[0].Key != nonExclusiveDescriptor {
		p.Fatalf("filter of the reply %+v", reply.Source.Filter)
	}
	d, _ := reply.Source.Filter[0].Value.(wire.Described)
	fields, ok := d.Value.([]any)
	if d.Descriptor != nonExclusiveCode || !ok || len(fields) != 2 {
		p.Fatalf("filter of the reply %+v", d)
	}
	return fields[0].(string), fields[1].(wire.UUID)
}

// TestSessionLockIsTakenOver: the reply names the session and the token of its lock, which stays the same when another
// link takes it over. The link before loses the session, and the link after settles what the other one got; so does the link
// before, which is held until then.
func TestSessionLockIsTakenOver(t *testing.T) {
	t.Parallel()
	h := newShortSessions(t, 3)
	p := managementPeer(t, h, fsm.Manage)
	name, token := p.acceptShared(2, nil, nil)
	if name != "red" || token == (wire.UUID{}) {
		t.Fatalf("session %q, token %v", name, token)
	}
	p.credit(2, 0, 2)
	first := *expect[*wire.Transfer](p).DeliveryID
	second := expect[*wire.Transfer](p)
	id, got := *second.DeliveryID, message.UUIDFromToken(fsm.LockToken(second.DeliveryTag))
	if again, same := p.acceptShared(3, "red", token); again != "red" || same != token {
		t.Fatalf("taken over: session %q, token %v, want %v", again, same, token)
	}
	p.credit(2, 2, 1)
	p.complete(first)
	for i, operation := range []string{management.GetStateOperation, management.RenewSessionOperation, management.DispositionOperation} {
		status, condition, _ := p.manage(uint32(i), operation, wire.Map{
			{Key: "session-id", Value: "red"},
			{Key: "disposition-status", Value: "completed"},
			{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{got}}},
		})
		if status != int32(200) {
			t.Errorf("%s: status %v condition %v", operation, status, condition)
		}
	}
	p.lostSettlement(id) // it is settled
	p.credit(2, 2, 1)
	p.lostBy(2)
	p.credit(3, 0, 5)
	expect[*wire.Transfer](p)
	if counts := h.counts("orders"); counts.Active != 1 || counts.Locked != 1 {
		t.Errorf("%+v", counts)
	}
}

// TestLinkWithoutCreditLosesATakenSession: a link that asks for nothing is detached when the lock would have ended that
// it had.
func TestLinkWithoutCreditLosesATakenSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newShortSessions(t, 1)
		p := loggedIn(t, h)
		_, token := p.acceptShared(0, "red", nil)
		<-time.After(time.Second)
		p.acceptShared(1, "red", token)
		p.lostBy(0)
		p.lostBy(1)
	})
}

// TestNonExclusiveSessionsThatAreRefused lists the conditions that clients get.
func TestNonExclusiveSessionsThatAreRefused(t *testing.T) {
	t.Parallel()
	unknown := wire.UUID{1}
	for name, c := range map[string]struct {
		session, token any
		held           bool // exclusively
		want           wire.Symbol
	}{
		"held":            {"red", nil, true, wire.ConditionSessionCannotBeLocked},
		"another token":   {"red", unknown, true, wire.ConditionSessionCannotBeLocked},
		"no lock":         {"red", unknown, false, wire.ConditionSessionLockLost},
		"token, no id":    {nil, unknown, false, wire.ConditionInvalidField},
		"zero token":      {"red", wire.UUID{}, false, wire.ConditionInvalidField},
		"token of a text": {"red", "token", false, wire.ConditionInvalidField},
		"id of a number":  {int32(1), nil, false, wire.ConditionInvalidField},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newShortSessions(t, 1)
			p := loggedIn(t, h)
			if c.held {
				p.acceptRed(0)
			}
			a := &wire.Attach{Name: "r", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{}}
			sharing(c.session, c.token)(a)
			p.send(a)
			if cause := p.refusedLink(); cause.Condition != c.want {
				t.Errorf("%+v, want %v", cause, c.want)
			}
		})
	}
}
