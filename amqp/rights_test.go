package amqp

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// detached reads n detaches and returns their errors by handle.
func (p *peer) detached(n int) map[uint32]*wire.Error {
	p.Helper()
	got := make(map[uint32]*wire.Error)
	for len(got) < n {
		d := expect[*wire.Detach](p)
		got[d.Handle] = d.Error
	}
	return got
}

// still checks that a connection has not changed: only the answer to an echo is received.
func (p *peer) undisturbed() {
	p.Helper()
	p.send(&wire.Flow{Echo: true})
	expect[*wire.Flow](p)
}

// A token that expires ends exactly the links that no other grant covers.
func TestExpiryDetachesWhatNothingElseCovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := func(minutes int) time.Time { return time.Now().Add(time.Duration(minutes) * time.Minute) }
		g := &scriptedAuthorizer{grants: map[string]Grant{
			"sb://h/":       {Rights: fsm.Listen},
			"sb://h/orders": {Rights: fsm.Send | fsm.Listen, Expires: in(2)},
			"sb://h/topic":  {Rights: fsm.Send, Expires: in(3)},
			"sb://h/bills":  {Rights: fsm.Send, Expires: in(2)},
		}}
		_, p := piped(t, newFakeBroker("orders", "bills", "orders/new").topic("topic", "sub"), g.through)
		p.unknown()
		for audience := range g.grants {
			p.putToken(audience, 202)
		}
		p.sender(0, "orders")
		p.receiver(1, "orders")                  // the namespace covers it
		p.sender(2, "orders/$management")        // the namespace covers it too, with Listen
		p.receiver(3, "topic/subscriptions/sub") // the namespace covers it too
		p.sender(4, "topic")                     // its grant lives longer
		p.sender(5, "bills", through("topic"))   // the grant of its destination does not
		p.send(&wire.Attach{Name: "c", Handle: 6, Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: &wire.Coordinator{}})
		expect[*wire.Attach](p)
		expect[*wire.Flow](p)
		p.send(&wire.Attach{Name: "n", Handle: 9, Role: wire.RoleSender, Target: &wire.Target{Address: "orders/new"}})
		if e := p.refusedLink(); e.Condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("a token for one entity opened another one: %+v", e)
		}

		first := p.detached(2)
		if first[0] == nil || first[5] == nil || first[0].Condition != wire.ConditionUnauthorizedAccess || !strings.Contains(first[0].Description, "ExpiredToken: The token for 'orders' has expired. Expiration time: '") {
			t.Errorf("after two minutes: %+v", first)
		}
		p.send(&wire.Attach{Name: "late", Handle: 8, Role: wire.RoleSender, Target: &wire.Target{Address: "orders"}})
		if e := p.refusedLink(); e.Condition != wire.ConditionUnauthorizedAccess || !strings.HasPrefix(e.Description, "ExpiredToken: The token for 'orders' has expired.") {
			t.Errorf("attached after the token has expired: %+v", e)
		}
		p.undisturbed()
		if second := p.detached(1); second[4] == nil {
			t.Errorf("after three minutes: %+v", second)
		}
		p.undisturbed()
		p.receiver(7, "orders") // the client may attach it again
	})
}

// through makes the links of a sender go through another entity.
func through(via string) func(*wire.Attach) {
	return func(a *wire.Attach) {
		a.Properties = wire.Map{{Key: destinationKey, Value: a.Target.Address}}
		a.Target.Address = via
	}
}

// revocable is a grant whose key can be revoked.
func revocable(rights fsm.Rights) (grant Grant, revoke func()) {
	var gone atomic.Bool
	return Grant{Rights: rights, Valid: func() bool { return !gone.Load() }}, func() { gone.Store(true) }
}

// A changed or removed key ends its links within login.CheckEvery, including those that wait for a session, and
// nothing else.
func TestRevokedKeyDetachesItsLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entity, revoke := revocable(fsm.Send)
		g := &scriptedAuthorizer{grants: map[string]Grant{"sb://h/": {Rights: fsm.Listen}, "sb://h/orders": entity}}
		var j auditCapture
		_, p := piped(t, newFakeBroker("orders"), g.through, j.into)
		p.unknown().putToken("sb://h/", 202)
		p.putToken("sb://h/orders", 202)
		p.sender(0, "orders")
		p.receiver(1, "orders")
		p.elapse(time.Minute + time.Second) // no heartbeat is due soon
		revoke()
		before := time.Now()
		lost := p.detached(1)
		if d := time.Since(before); lost[0] == nil || lost[0].Condition != wire.ConditionUnauthorizedAccess || !strings.Contains(lost[0].Description, "the key was changed or removed") || d > login.CheckEvery {
			t.Errorf("after %v: %+v", d, lost)
		}
		p.undisturbed()
		p.send(&wire.Detach{Handle: 0, Closed: true})
		p.send(&wire.Attach{Name: "again", Handle: 0, Role: wire.RoleSender, Target: &wire.Target{Address: "orders"}})
		if e := p.refusedLink(); e.Condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("attached again: %+v", e)
		}
		lines := j.lines(t)
		if len(lines) != 3 || lines[0]["event"] != "login" || lines[1]["event"] != "key_lost" || lines[1]["kind"] != "sas" || lines[1]["path"] != "orders" || lines[2]["event"] != "right_missing" {
			t.Errorf("audit %v", lines)
		}
	})
}

// A request that needs a right detects at once that the key was revoked, and all links that depend on the key
// end with it.
func TestRevokedKeyIsNoticedAtTheNextUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		act  func(p *peer)
	}{
		{"attach", func(p *peer) {
			p.send(&wire.Attach{Name: "late", Handle: 7, Role: wire.RoleSender, Target: &wire.Target{Address: "orders"}})
		}},
		{"request", func(p *peer) { askOn(p, 1, 0, management.PeekOperation, nil) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all, revoke := revocable(fsm.Manage)
				g := &scriptedAuthorizer{grants: map[string]Grant{ruleName: all}}
				p := loggedIn(t, newFakeBroker("orders"), g.through)
				p.sender(0, "orders")
				p.sender(1, "orders/$management")
				p.receiver(2, "orders/$management")
				p.credit(2, 0, 10)
				revoke()
				before := time.Now()
				c.act(p)
				left := 3
				for left > 0 {
					switch f := p.next().Body.(type) {
					case *wire.Detach:
						if f.Error.Condition != wire.ConditionUnauthorizedAccess {
							t.Errorf("detach %+v", f.Error)
						}
						if f.Handle < 3 {
							left--
						}
					case *wire.Attach, *wire.Disposition:
					default:
						t.Errorf("%T %+v", f, f)
					}
				}
				if time.Since(before) > 0 {
					t.Errorf("noticed after %v", time.Since(before))
				}
			})
		})
	}
}

// A link that waits for a session loses its right like an attached one.
func TestRevokedKeyEndsWaitingForASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, revoke := revocable(fsm.Manage)
		h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
		p := loggedIn(t, h, (&scriptedAuthorizer{grants: map[string]Grant{ruleName: all}}).through)
		p.send(&wire.Attach{Name: "r", Handle: 0, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders", Filter: wire.Map{{Key: sessionFilterKey}}}, Target: &wire.Target{}})
		synctest.Wait()
		revoke()
		if e := p.refusedLink(); e.Condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("%+v", e)
		}
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.accepts) != 0 {
			t.Error("the broker still waits for a session")
		}
	})
}

// Only the latest token for an audience is valid: links that it does not allow are detached.
func TestTokenWithFewerRightsDetachesLinks(t *testing.T) {
	t.Parallel()
	g := &scriptedAuthorizer{grants: map[string]Grant{"sb://h/orders": {Rights: fsm.Manage}}}
	_, p := piped(t, newFakeBroker("orders"), g.through)
	p.unknown().putToken("sb://h/orders", 202)
	p.sender(0, "orders")
	p.receiver(1, "orders")
	g.give("sb://h/orders", Grant{Rights: fsm.Listen, Expires: time.Now().Add(time.Hour)})
	p.sender(100, "$cbs")
	p.receiver(101, "$cbs")
	p.credit(101, 0, 300)
	p.transfer(100, 0, requestMessage(wire.Properties{MessageID: uint64(0)}, wire.Map{
		{Key: "operation", Value: "put-token"}, {Key: "type", Value: "jwt"}, {Key: "name", Value: "sb://h/orders"},
	}, "SharedAccessSignature sr=x&sig=y&se=1&skn="+ruleName), settled)
	if lost := p.detached(1); lost[0] == nil || !strings.Contains(lost[0].Description, "fewer rights") {
		t.Errorf("%+v", lost)
	}
	if r := p.response(); r.properties.Get("status-code") != int32(202) {
		t.Errorf("response %+v", r)
	}
	p.undisturbed()
}

// Putting tokens repeatedly does not delay the check of a key.
func TestPuttingTokensDoesNotHideARevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, revoke := revocable(fsm.Manage)
		other, _ := revocable(fsm.Listen)
		g := &scriptedAuthorizer{grants: map[string]Grant{ruleName: all, "sb://h/bills": other}}
		s, p := piped(t, newFakeBroker("orders", "bills"), g.through)
		p.login()
		p.sender(0, "orders")
		revoke()
		c := onlyConn(t, s)
		for range 8 {
			time.Sleep(login.CheckEvery / 4) //nolint:forbidigo // of the bubble's clock
			if r := c.credentials.PutToken(t.Context(), "a token", "jwt", "sb://h/bills"); r.Status != http.StatusAccepted {
				t.Errorf("put-token: %+v", r)
			}
		}
		c.mu.Lock()
		left := len(c.linksByKey)
		c.mu.Unlock()
		if left != 0 {
			t.Errorf("%d links are left after %v", left, 2*login.CheckEvery)
		}
		if lost := p.detached(1); lost[0] == nil {
			t.Errorf("%+v", lost)
		}
	})
}
