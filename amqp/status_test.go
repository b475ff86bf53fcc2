package amqp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func TestStatusOfNewLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status          fsm.EntityStatus
		sends, receives bool
	}{
		{fsm.Active, true, true}, {fsm.Disabled, false, false}, {fsm.SendDisabled, false, true}, {fsm.ReceiveDisabled, true, false},
	} {
		h := newFakeBroker("orders")
		h.change("orders", func(s *fsm.EntitySettings) { s.Status = c.status })
		p := loggedIn(t, h)
		attach := func(handle uint32, a wire.Attach, allowed bool) {
			t.Helper()
			a.Handle = handle
			p.send(&a)
			expect[*wire.Attach](p)
			if !allowed {
				if d := expect[*wire.Detach](p); !d.Closed || d.Error.Condition != wire.ConditionEntityDisabled || !strings.Contains(d.Error.Description, "'orders'") {
					t.Errorf("status %d: detach %+v", c.status, d.Error)
				}
			} else if a.Role == wire.RoleSender {
				expect[*wire.Flow](p)
			}
		}
		attach(0, wire.Attach{Target: &wire.Target{Address: "orders"}}, c.sends)
		attach(1, wire.Attach{Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}}, c.receives)
		attach(2, wire.Attach{Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders/$management"}}, true)
		attach(3, wire.Attach{Target: &wire.Target{Address: "orders/$management"}}, true)
		p.quiet()
	}
}

// When an entity is disabled or deleted, its receivers lose their link at once and its senders get their sends
// refused. A sender whose entity is deleted also loses its link, in a way that lets every client attach again;
// a sender of a disabled entity continues when it is enabled again.
func TestDeletedEntityEndsItsLinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(h *fakeBroker)
		want wire.Symbol
	}{
		"disabled": {func(h *fakeBroker) { h.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.Disabled }) }, wire.ConditionEntityDisabled},
		"deleted":  {func(h *fakeBroker) { h.remove("orders") }, wire.ConditionNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeBroker("orders")
			p := loggedIn(t, h)
			p.sender(0, "orders")
			p.receiver(1, "orders")
			p.credit(1, 0, 10) // a Lock waits
			p.quiet()
			done := make(chan struct{})
			go func() { defer close(done); c.end(h) }()
			if d := expect[*wire.Detach](p); d.Handle != 1 || !d.Closed || d.Error.Condition != c.want {
				t.Fatalf("receiver: detach %+v %+v", d, d.Error)
			}
			<-done
			p.transfer(0, 0, encodedMessage(t, nil))
			p.refused(0, wire.RoleReceiver, c.want)
			if c.want == wire.ConditionNotFound {
				if d := expect[*wire.Detach](p); d.Handle != 0 || !d.Closed || d.Error.Condition != wire.ConditionDetachForced {
					t.Fatalf("sender: detach %+v %+v", d, d.Error)
				}
				p.send(&wire.Detach{Handle: 0, Closed: true})
			} else {
				h.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.Active })
				p.transfer(0, 1, encodedMessage(t, nil))
				p.accepted()
			}
			p.send(&wire.Detach{Handle: 1, Closed: true})
			p.quiet()
		})
	}
}

// Sends that are in flight get their own answers before the link ends, and sends after the first refusal are
// refused too.
func TestLinkOfDeletedEntityAnswersAllBeforeItEnds(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	b := &slow{fakeBroker: h, answers: make(chan func(), 3)}
	p := loggedIn(t, b)
	p.sender(0, "orders")
	p.transfer(0, 0, encodedMessage(t, nil)) // will be accepted
	first := <-b.answers
	h.remove("orders")
	p.transfer(0, 1, encodedMessage(t, nil)) // will be refused
	second := <-b.answers
	go second()
	p.refused(1, wire.RoleReceiver, wire.ConditionNotFound)
	p.transfer(0, 2, encodedMessage(t, nil)) // is refused without a call to the broker
	p.refused(2, wire.RoleReceiver, wire.ConditionNotFound)
	go first()
	if first, last := p.accepted(); first != 0 || last != 0 {
		t.Errorf("accepted %d to %d", first, last)
	}
	if d := expect[*wire.Detach](p); d.Error.Condition != wire.ConditionDetachForced {
		t.Errorf("detach %+v", d.Error)
	}
	if len(b.answers) != 0 {
		t.Error("the third send went to the broker")
	}
}

// slow delays the answers of sends.
type slow struct {
	*fakeBroker
	answers chan func()
}

func (b *slow) Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code)) {
	b.fakeBroker.Send(at, messages, func(code fsm.Code) { b.answers <- func() { done(code) } })
}

// The management link of a deleted entity cannot be used either: a new entity with the old name is a different
// entity.
func TestManagementOfADeletedEntity(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := managementPeer(t, h, fsm.Manage)
	h.remove("orders")
	status, condition, _ := p.manage(0, management.ScheduleOperation, entries(scheduled(time.Now())))
	if status != int32(404) || condition != wire.ConditionNotFound {
		t.Errorf("status %v condition %v", status, condition)
	}
	if d := expect[*wire.Detach](p); d.Handle != 0 || d.Error.Condition != wire.ConditionDetachForced {
		t.Errorf("detach %+v", d.Error)
	}
}

// Locks are settled regardless of the status.
func TestSettlingGoesOnWhenDisabled(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a", "b", "c")
	messages := p.receive(p.receiver, 3)
	p.broker.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.Disabled })
	p.must(p.receiver.RenewMessageLock(p.ctx, messages[0], nil))
	p.must(p.receiver.CompleteMessage(p.ctx, messages[0], nil))
	p.must(p.receiver.DeadLetterMessage(p.ctx, messages[1], nil))
	p.must(p.receiver.AbandonMessage(p.ctx, messages[2], nil))
	if c := p.broker.counts("orders"); c.Active != 1 || c.Locked != 0 || c.DeadLetter != 1 {
		t.Errorf("counts %+v", c)
	}
}

func TestSDKDisabledEntity(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	p.broker.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
	for range 2 {
		err := p.sender.SendMessage(p.ctx, &azservicebus.Message{}, nil)
		if err == nil || !strings.Contains(err.Error(), "entity-disabled") {
			t.Fatalf("send: %v", err)
		}
	}
	p.receive(p.receiver, 1)
	p.broker.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.ReceiveDisabled })
	p.send("b")
	_, err := p.receiver.ReceiveMessages(p.ctx, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "entity-disabled") {
		t.Fatalf("receive: %v", err)
	}
	p.broker.change("orders", func(s *fsm.EntitySettings) { s.Status = fsm.Active })
	p.receive(p.receiver, 1)
}

// Clients that used a queue find it again after it is deleted and created again with the same name.
func TestSDKDeletedEntity(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a")
	p.receive(p.receiver, 1)
	before, err := p.sender.ScheduleMessages(p.ctx, []*azservicebus.Message{{}}, time.Now().Add(time.Hour), nil)
	p.must(err)
	p.broker.remove("orders")
	for range 2 { // on the old link, and at the attach
		err := p.sender.SendMessage(p.ctx, &azservicebus.Message{}, nil)
		if err == nil || !strings.Contains(err.Error(), "The messaging entity 'sb://127.0.0.1:") || !strings.Contains(err.Error(), "/orders' could not be found.") {
			t.Fatalf("send: %v", err)
		}
	}
	if _, err := p.receiver.ReceiveMessages(p.ctx, 1, nil); err == nil || !strings.Contains(err.Error(), "amqp:not-found") {
		t.Fatalf("receive: %v", err)
	}
	p.broker.add("Orders")
	p.send("b")
	if m := p.receive(p.receiver, 1)[0]; string(m.Body) != "b" || *m.SequenceNumber != 1 {
		t.Errorf("got %q with number %d", m.Body, *m.SequenceNumber)
	}
	if err := p.sender.CancelScheduledMessages(p.ctx, before, nil); err == nil {
		t.Error("what was scheduled in the old queue was found in the new one")
	}
}

func TestSDKQuotaExceeded(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 1, MaxMessageBytes: 600 << 10, MaxBytes: 1 << 20}, "Orders")
	p := sdkPairOf(t, h, nil)
	body := make([]byte, 500<<10)
	p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: body}, nil))
	p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: body}, nil))
	err := p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: body}, nil)
	if err == nil || !strings.Contains(err.Error(), "amqp:resource-limit-exceeded") || !strings.Contains(err.Error(), "A retry helps only after that.") {
		t.Fatalf("send to a full queue: %v", err)
	}
	m := p.receive(p.receiver, 1)[0]
	p.must(p.receiver.CompleteMessage(p.ctx, m, nil))
	p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: body}, nil))
	// Only one attempt is made.
	m = p.receive(p.receiver, 1)[0]
	p.must(p.receiver.AbandonMessage(p.ctx, m, nil))
	if c := h.counts("orders"); c.Active != 1 || c.DeadLetter != 1 {
		t.Errorf("counts %+v", c)
	}
}

func TestReattachedNameTakesOverTheLink(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	named := func(handle uint32, role wire.Role) *wire.Attach {
		return &wire.Attach{Name: "mine", Handle: handle, Role: role, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{Address: "orders"}}
	}
	p.send(named(0, wire.RoleSender))
	expect[*wire.Attach](p)
	expect[*wire.Flow](p)
	p.send(named(1, wire.RoleReceiver)) // the other direction: another link
	expect[*wire.Attach](p)
	p.credit(1, 0, 1)
	h.messages(t, "orders", 2)
	p.deliveries(1)

	p.sendOn(1, &wire.Begin{IncomingWindow: 100})
	expect[*wire.Begin](p)
	p.sendOn(1, named(5, wire.RoleReceiver))
	if d := expect[*wire.Detach](p); d.Handle != 1 || !d.Closed || d.Error.Condition != wire.ConditionStolen {
		t.Fatalf("detach %+v", d)
	}
	if a := expect[*wire.Attach](p); a.Handle != 5 || a.Source == nil {
		t.Fatalf("attach %+v", a)
	}
	p.send(&wire.Detach{Handle: 1, Closed: true}) // the answer for the old link does not affect the new one
	p.sendOn(1, named(6, wire.RoleReceiver))
	if d := expect[*wire.Detach](p); d.Handle != 5 || d.Error.Condition != wire.ConditionStolen {
		t.Fatalf("detach %+v", d)
	}
	expect[*wire.Attach](p)
	credit, handle := uint32(1), uint32(6)
	p.sendOn(1, &wire.Flow{NextIncomingID: new(uint32), IncomingWindow: 100, Handle: &handle, LinkCredit: &credit})
	if tr := expect[*wire.Transfer](p); tr.Handle != 6 {
		t.Errorf("transfer on handle %d", tr.Handle)
	}
	// The sender of the same name still works, and a name is free after a detach.
	p.transfer(0, 0, encodedMessage(t, nil))
	p.accepted()
	p.send(&wire.Detach{Handle: 0, Closed: true})
	expect[*wire.Detach](p)
	p.send(named(0, wire.RoleSender))
	expect[*wire.Attach](p)
	expect[*wire.Flow](p)
}

// Java names the link to a session after the session: two queues can have links of one name.
func TestSameNameAtTwoAddressesIsTwoLinks(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders", "bills")
	p := loggedIn(t, h)
	for handle, queue := range []string{"orders", "bills"} {
		p.send(&wire.Attach{Name: "s1", Handle: uint32(handle), Role: wire.RoleReceiver, Source: &wire.Source{Address: queue}})
		expect[*wire.Attach](p)
		p.credit(uint32(handle), 0, 1)
	}
	h.messages(t, "orders", 1)
	p.deliveries(1)
	p.send(&wire.Attach{Name: "s1", Handle: 2, Role: wire.RoleReceiver, Source: &wire.Source{Address: "BILLS"}})
	if d := expect[*wire.Detach](p); d.Handle != 1 || d.Error.Condition != wire.ConditionStolen {
		t.Errorf("detach %+v", d)
	}
}

// gated is a broker whose catalog answers after the gate opens.
type gated struct {
	*fakeBroker
	gate chan struct{}
}

func (b *gated) Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	<-b.gate
	return b.fakeBroker.Resolve(ctx, namespace, path)
}

func TestReattachedNameTakesOverAnAttachingLink(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	b := &gated{fakeBroker: h, gate: make(chan struct{})}
	s, p := piped(t, b)
	p.login()
	p.send(&wire.Attach{Name: "mine", Handle: 0, Target: &wire.Target{Address: "orders"}})
	p.send(&wire.Attach{Name: "mine", Handle: 1, Target: &wire.Target{Address: "orders"}})
	if a := expect[*wire.Attach](p); a.Handle != 0 || a.Target != nil {
		t.Errorf("attach %+v", a)
	}
	if d := expect[*wire.Detach](p); d.Handle != 0 || d.Error.Condition != wire.ConditionStolen {
		t.Errorf("detach %+v", d)
	}
	close(b.gate)
	if a := expect[*wire.Attach](p); a.Handle != 1 || a.Target == nil {
		t.Errorf("attach %+v", a)
	}
	expect[*wire.Flow](p)
	c := onlyConn(t, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links.open != 1 || len(c.linksByKey) != 1 {
		t.Errorf("%d links, %d names", c.links.open, len(c.linksByKey))
	}
}
