package amqp

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Every entity in every spelling of docs/service-bus-protocol.md#addresses, with the operations that it
// allows.
func TestEntitiesAreFoundInEverySpelling(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, newFakeBroker().topic("Shop/Orders", "Paid"))
	handle := uint32(0)
	for _, path := range []string{
		"Shop/Orders/Subscriptions/Paid", "shop/orders/subscriptions/paid", "/SHOP/ORDERS/SUBSCRIPTIONS/PAID",
		"amqps://host:5671/Shop/Orders/Subscriptions/Paid", "amqp://host/shop%2Forders%2FSubscriptions%2Fpaid",
	} {
		for _, sub := range []string{
			"", "/$DeadLetterQueue", "/$deadletterqueue", "/%24DeadLetterQueue",
			"/$Transfer/$DeadLetterQueue", "/$transfer/$deadletterqueue", "/%24Transfer%2F%24DeadLetterQueue",
		} {
			p.receiver(handle, path+sub)
			p.receiver(handle+1, path+sub+"/$management")
			p.sender(handle+2, path+sub+"/$Management")
			handle += 3
		}
	}
	for _, path := range []string{"shop/orders", "/Shop/Orders", "amqps://host/SHOP%2forders"} {
		p.sender(handle, path)
		p.sender(handle+1, path+"/$management")
		p.receiver(handle+2, path+"/%24management")
		handle += 3
	}
}

// A token may name an entity of any kind in any spelling, and is valid for that entity and everything in it.
func TestTokenIsValidForItsEntityAndAllInIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		audience string
		status   int32
		covers   string
	}{
		{"amqp://h/orders", 202, "orders/Subscriptions/paid/$Transfer/$DeadLetterQueue"},
		{"sb://h/Orders/Subscriptions/Paid", 202, "orders/subscriptions/paid/$deadletterqueue"},
		{"amqps://h/orders/subscriptions/paid/$management", 202, "orders/subscriptions/paid/$management"},
		{"amqps://h/orders/Subscriptions/paid/$Transfer/$DeadLetterQueue", 202, "orders/Subscriptions/paid/$Transfer/$DeadLetterQueue"},
		{"amqps://h/orders/Subscriptions/paid/$Transfer/$DeadLetterQueue/$management", 202, "orders/Subscriptions/paid/$Transfer/$DeadLetterQueue/$management"},
		{"amqps://h/orders/Subscriptions/nobody", 404, ""},
	} {
		_, p := piped(t, newFakeBroker().topic("Orders", "Paid"))
		open, begin := &wire.Open{ContainerID: "test"}, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000}
		p.anonymous(open, begin)
		p.putToken(c.audience, c.status)
		if c.covers != "" {
			p.receiver(0, c.covers)
		}
	}
}

// anonymous opens without a credential, as clients that put tokens do.
func (p *peer) anonymous(open *wire.Open, begin *wire.Begin) {
	p.Helper()
	b := append([]byte(nil), headerAMQP...)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, open)
	b = wire.AppendFrame(b, wire.FrameAMQP, 0, begin)
	done := make(chan struct{})
	go func() { defer close(done); p.write(b) }()
	p.header(headerAMQP)
	expect[*wire.Open](p)
	expect[*wire.Begin](p)
	<-done
}

// The links that can be attached at each entity; the refusals give advice.
func TestRolesOfLinks(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("queue", "out", "dead").topic("topic", "sub", "fwd")
	h.change("out", func(s *fsm.EntitySettings) { s.ForwardTo = "queue" })
	h.change("dead", func(s *fsm.EntitySettings) { s.ForwardDeadLettersTo = "Topic" })
	h.change("topic/subscriptions/fwd", func(s *fsm.EntitySettings) { s.ForwardTo = "queue" })
	p := loggedIn(t, h)
	for i, c := range []struct {
		path  string
		sends bool
		text  string // text of the refusal
	}{
		{"queue", true, ""},
		{"queue", false, ""},
		{"queue/$deadletterqueue", false, ""},
		{"queue/$transfer/$deadletterqueue", false, ""},
		{"queue/$deadletterqueue", true, "Send to the queue or topic itself."},
		{"queue/$transfer/$deadletterqueue", true, "Send to the queue or topic itself."},
		{"topic", true, ""},
		{"topic", false, "The topic 'topic' cannot be received from."},
		{"topic/$deadletterqueue", false, "The topic 'topic' has no dead-letter queue."},
		{"topic/$transfer/$deadletterqueue", false, ""},
		{"topic/$transfer/$deadletterqueue", true, "A dead-letter queue cannot be sent to."},
		{"topic/$deadletterqueue", true, "A dead-letter queue cannot be sent to."},
		{"topic/subscriptions/sub", false, ""},
		{"topic/subscriptions/sub/$deadletterqueue", false, ""},
		{"topic/subscriptions/sub", true, "The subscription 'topic/Subscriptions/sub' cannot be sent to. Send to its topic."},
		{"out", true, ""},
		{"out", false, "The messages of 'out' are forwarded to 'queue'"},
		{"out/$deadletterqueue", false, ""},
		{"out/$transfer/$deadletterqueue", false, ""},
		{"dead", false, ""},
		{"dead/$transfer/$deadletterqueue", false, ""},
		{"dead/$deadletterqueue", false, ""}, // for those that could not be forwarded
		{"topic/subscriptions/fwd", false, "clear ForwardTo."},
		{"topic/subscriptions/fwd/$deadletterqueue", false, ""},
	} {
		a := wire.Attach{Name: c.path, Handle: uint32(i), Role: wire.Role(!c.sends)}
		if c.sends {
			a.Target = &wire.Target{Address: c.path}
		} else {
			a.Source = &wire.Source{Address: c.path}
		}
		p.send(&a)
		expect[*wire.Attach](p)
		switch {
		case c.text == "" && c.sends:
			expect[*wire.Flow](p)
		case c.text != "":
			d := expect[*wire.Detach](p)
			if !d.Closed || d.Error == nil || d.Error.Condition != wire.ConditionNotAllowed || !strings.Contains(d.Error.Description, c.text) {
				t.Errorf("%s, sends %v: %+v, want %q", c.path, c.sends, d.Error, c.text)
			}
		}
	}
	p.quiet()
}

// Forwarding may be enabled while a client receives: the state machine refuses the next lock, and the link
// ends with an explanation and a condition after which no client retries.
func TestForwardingEndsReceivingLinks(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.receiver(0, "orders")
	h.mu.Lock()
	h.lockCode = fsm.NotAllowed
	h.mu.Unlock()
	p.credit(0, 0, 1)
	d := expect[*wire.Detach](p)
	if !d.Closed || d.Error == nil || d.Error.Condition != wire.ConditionNotAllowed || !strings.Contains(d.Error.Description, "they are forwarded") {
		t.Errorf("detach %+v", d.Error)
	}
}

// The operations that work at each entity; the refusals name the right entity.
func TestRolesOfOperations(t *testing.T) {
	t.Parallel()
	places := map[string]fsm.EntityRef{
		"queue": {}, "dead": {Sub: fsm.DeadLetterQueue},
		"topic":        {Entity: fsm.Entity{Kind: fsm.TopicEntity}},
		"subscription": {Entity: fsm.Entity{Kind: fsm.SubscriptionEntity}},
		"dead copies":  {Entity: fsm.Entity{Kind: fsm.SubscriptionEntity}, Sub: fsm.DeadLetterQueue},
	}
	for operation, allowed := range map[string][]string{
		management.ScheduleOperation: {"queue", "topic"}, management.CancelOperation: {"queue", "topic"},
		management.AddRuleOperation: {"subscription"}, management.RemoveRuleOperation: {"subscription"}, management.EnumerateRulesOperation: {"subscription"},
		management.RenewOperation:       {"queue", "dead", "subscription", "dead copies"},
		management.PeekOperation:        {"queue", "dead", "subscription", "dead copies"},
		management.DispositionOperation: {"queue", "dead", "subscription", "dead copies"},
		management.DeferredOperation:    {"queue", "dead", "subscription", "dead copies"},
		management.BatchDeleteOperation: {"queue", "dead", "subscription", "dead copies"},
		"what is not known":             {"queue", "dead", "topic", "subscription", "dead copies"},
	} {
		for name, place := range places {
			want := false
			for _, a := range allowed {
				want = want || a == name
			}
			cause := management.NotAllowed(operation, &place)
			if (cause.Condition == "") != want || !want && (cause.Condition != wire.ConditionNotAllowed || !strings.Contains(cause.Text, ". ")) {
				t.Errorf("%s at %s: %+v", operation, name, cause)
			}
		}
	}
}

// On the wire, a topic accepts scheduled messages and refuses other operations; an unknown operation is not
// implemented at a topic either.
func TestOperationsOfATopic(t *testing.T) {
	t.Parallel()
	p := managementPeerAt(t, newFakeBroker().topic("topic", "sub"), fsm.Manage, "topic/$management")
	for i, c := range []struct {
		operation string
		status    int32
		condition wire.Symbol
	}{
		{management.PeekOperation, 400, wire.ConditionNotAllowed},
		{management.RenewOperation, 400, wire.ConditionNotAllowed},
		{management.DeferredOperation, 400, wire.ConditionNotAllowed},
		{management.DispositionOperation, 400, wire.ConditionNotAllowed},
		{management.BatchDeleteOperation, 400, wire.ConditionNotAllowed},
		{management.AddRuleOperation, 400, wire.ConditionNotAllowed},
		{"com.microsoft:get-message-sessions", 400, wire.ConditionNotAllowed},
		{"nonsense", 501, wire.ConditionNotImplemented},
	} {
		status, condition, _ := p.manage(uint32(i), c.operation, nil)
		if status != c.status || condition != c.condition {
			t.Errorf("%s: %v %v", c.operation, status, condition)
		}
	}
}
