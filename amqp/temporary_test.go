package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// temporarySender attaches as Qpid JMS does for a temporary queue, and returns the name that the broker chose.
func (p *peer) temporarySender(handle uint32) string {
	p.Helper()
	var address string
	p.send(&wire.Attach{Name: "temp-queue-creator", Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Dynamic: true, Capabilities: []wire.Symbol{"temporary-queue"}}, InitialDeliveryCount: new(uint32)})
	a := expect[*wire.Attach](p)
	if a.Target == nil {
		p.Fatalf("refused: %+v", expect[*wire.Detach](p).Error)
	}
	address, _ = a.Target.Address.(string)
	expect[*wire.Flow](p)
	return address
}

// exists reports whether a broker has a queue.
func (h *fakeBroker) exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := h.Resolve(t.Context(), fsm.DefaultNamespace, name)
	if err != nil && !errors.Is(err, fsm.EntityNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// TestTemporaryQueuesEndWithTheirLink checks that a temporary queue carries a reply between two connections, and
// ends with its link or its connection.
func TestTemporaryQueuesEndWithTheirLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker()
		s, asking := piped(t, h)
		answering := connect(t, s)
		asking.login()
		answering.login()
		name := asking.temporarySender(0)
		if at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, name); err != nil || at.Settings.AutoDeleteOnIdle != fsm.Millis(temporaryIdle.Milliseconds()) {
			t.Fatalf("%q: %v, idle for %d", name, err, at.Settings.AutoDeleteOnIdle)
		}
		asking.receiver(1, name)
		asking.credit(1, 0, 1)
		answering.sender(0, name)
		answering.transfer(0, 0, encodedMessage(t, []byte("reply")))
		answering.accepted()
		expect[*wire.Transfer](asking)

		asking.send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](asking)
		synctest.Wait()
		if h.exists(t, name) {
			t.Error("the queue outlives its link")
		}

		second := answering.temporaryReceiver(5)
		if second == name || !h.exists(t, second) {
			t.Errorf("second queue %q", second)
		}
		_ = answering.net.Close()
		<-answering.ended
		synctest.Wait()
		if h.exists(t, second) {
			t.Error("the queue outlives its connection")
		}
		_ = asking.net.Close()
	})
}

// Nobody but the connection that created a temporary queue receives from it, whatever rights others have: its name is in
// every request.
func TestTemporaryQueuesAreReadByTheirConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker()
		s, asking := piped(t, h)
		answering := connect(t, s)
		asking.login()
		answering.login()
		name := asking.temporarySender(0)
		for i, address := range []string{name, strings.ToUpper(name), name + "/$deadletterqueue", name + "/$management"} {
			answering.send(&wire.Attach{Name: fmt.Sprint("thief", i), Handle: uint32(i), Role: wire.RoleReceiver, Source: &wire.Source{Address: address}})
			if e := answering.refusedLink(); e.Condition != wire.ConditionNotAllowed {
				t.Errorf("%s: %+v", address, e)
			}
		}
		answering.send(&wire.Attach{Name: "manager", Handle: 9, Role: wire.RoleSender, Target: &wire.Target{Address: name + "/$management"}})
		if e := answering.refusedLink(); e.Condition != wire.ConditionNotAllowed {
			t.Errorf("management: %+v", e)
		}
		answering.sender(10, name)
		asking.receiver(1, name)
		_ = asking.net.Close()
		_ = answering.net.Close()
	})
}

// temporaryReceiver attaches as rhea does for replies, and returns the name that the broker chose.
func (p *peer) temporaryReceiver(handle uint32) string {
	p.Helper()
	name, _ := p.receiver(handle, "", func(a *wire.Attach) { a.Source = &wire.Source{Dynamic: true} }).Source.Address.(string)
	return name
}

func TestTemporaryQueuesPerConnectionMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker()
		p := loggedIn(t, h)
		for handle := range uint32(temporariesMax) {
			p.temporaryReceiver(handle)
		}
		dynamic := &wire.Attach{Name: "one more", Handle: temporariesMax, Role: wire.RoleReceiver, Source: &wire.Source{Dynamic: true}, Target: &wire.Target{}}
		p.send(dynamic)
		if cause := p.refusedLink(); cause.Condition != wire.ConditionResourceLimitExceeded {
			t.Errorf("%+v", cause)
		}
		p.send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](p)
		p.send(dynamic)
		if a := expect[*wire.Attach](p); a.Source == nil {
			t.Error("the end of a link frees no place")
		}
		_ = p.net.Close()
	})
}

// TestTemporaryQueuesNeedTheRightToManage checks that a credential which may only send and receive creates nothing.
func TestTemporaryQueuesNeedTheRightToManage(t *testing.T) {
	t.Parallel()
	h := newFakeBroker()
	p := loggedIn(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Send | fsm.Listen}} })
	p.send(&wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Dynamic: true}, Target: &wire.Target{}})
	if cause := p.refusedLink(); cause.Condition != wire.ConditionUnauthorizedAccess {
		t.Errorf("%+v", cause)
	}
	if len(h.names) != 0 {
		t.Errorf("created %v", h.names)
	}
}

// TestRefusedTemporaryQueueIsDeleted checks that nothing remains of a temporary queue whose link is refused after the
// queue was created.
func TestRefusedTemporaryQueueIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker()
		p := loggedIn(t, h)
		before := h.queueCount()
		filter := wire.Map{{Key: sessionFilterKey, Value: "one"}}
		p.send(&wire.Attach{Name: "session", Role: wire.RoleReceiver, Source: &wire.Source{Dynamic: true, Filter: filter}, Target: &wire.Target{}})
		p.refusedLink()
		synctest.Wait()
		if n := h.queueCount(); n != before {
			t.Errorf("%d queues, want %d", n, before)
		}
		_ = p.net.Close()
	})
}

func (h *fakeBroker) queueCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.names)
}

// slowCreation is a broker whose queues are created when it is told to.
type slowCreation struct {
	*fakeBroker
	resume chan struct{}
}

func (s *slowCreation) CreateEntity(ctx context.Context, in fsm.NamespaceID, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error) {
	<-s.resume
	return s.fakeBroker.CreateEntity(ctx, in, kind, name, settings, rule)
}

// TestTemporaryQueuesAreCountedWhileTheyAreCreated checks that a client which attaches and detaches cannot have more
// queues created at a time than a connection may have.
func TestTemporaryQueuesAreCountedWhileTheyAreCreated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &slowCreation{fakeBroker: newFakeBroker(), resume: make(chan struct{})}
		p := loggedIn(t, h)
		before := h.queueCount()
		dynamic := func(handle uint32) *wire.Attach {
			return &wire.Attach{Name: fmt.Sprint(handle), Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Dynamic: true}, Target: &wire.Target{}}
		}
		for handle := range uint32(temporariesMax) {
			p.send(dynamic(handle), &wire.Detach{Handle: handle, Closed: true})
			expect[*wire.Attach](p)
			expect[*wire.Detach](p)
		}
		p.send(dynamic(temporariesMax))
		if cause := p.refusedLink(); cause.Condition != wire.ConditionResourceLimitExceeded {
			t.Errorf("%+v", cause)
		}
		close(h.resume)
		synctest.Wait()
		if n := h.queueCount(); n != before {
			t.Errorf("%d queues, want %d", n, before)
		}
		p.temporaryReceiver(0)
		_ = p.net.Close()
	})
}
