package amqp

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// publishColored sends messages to a topic over link 50, each with a subject and a body of one byte.
func (p *peer) publishColored(t *testing.T, topic string, subjects ...string) {
	t.Helper()
	p.sender(50, topic)
	for i, subject := range subjects {
		sent := goamqp.NewMessage([]byte{byte(i)})
		sent.Properties = &goamqp.MessageProperties{Subject: &subject}
		encoded, err := sent.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		p.transfer(50, uint32(i), encoded)
		p.accepted()
	}
	p.send(&wire.Detach{Handle: 50, Closed: true})
	p.untilDetach()
}

// noMore checks by a drain that a link with that delivery count gets nothing more.
func (p *peer) noMore(handle, count uint32) {
	p.Helper()
	p.credit(handle, count, 5, func(f *wire.Flow) { f.Drain = true })
	for {
		switch body := p.next().Body.(type) {
		case *wire.Transfer:
			p.Fatalf("got %v", body.Payload)
		case *wire.Flow:
			return
		}
	}
}

// TestSelectorOfAConsumerIsTheRuleOfItsSubscription checks that consumers of topics get what their selector selects, and
// that nothing else comes into their subscription.
func TestSelectorOfAConsumerIsTheRuleOfItsSubscription(t *testing.T) {
	t.Parallel()
	global := []wire.Symbol{sharedCapability, globalCapability}
	for name, change := range map[string]func(*wire.Attach){
		"own":             func(*wire.Attach) {},
		"durable":         subscriber("mine", true),
		"shared":          subscriber("mine|volatile1", false, sharedCapability),
		"shared durable":  subscriber("mine", true, sharedCapability),
		"global":          subscriber("mine|global-volatile1", false, global...),
		"global, durable": subscriber("a long name of a subscription|global", true, global...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newFakeBroker().topic("events")
				_, p := piped(t, h)
				p.login(as("client"))
				a := p.consumer(0, "events", change, selecting("JMSType = 'red'"))
				if d, ok := a.Source.Filter.Get("jms-selector").(wire.Described); !ok || d.Value != "JMSType = 'red'" {
					t.Errorf("reply with the filters %v", a.Source.Filter)
				}
				subscription := fsm.SubscriptionPath("events", h.subscriptions("events")[0])
				at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, subscription)
				if err != nil {
					t.Fatal(err)
				}
				if rules, err := h.ListRules(t.Context(), at, 0, 10); err != nil || len(rules) != 1 || rules[0].Name != fsm.DefaultRuleName || rules[0].Filter.Kind != fsm.SQLFilter {
					t.Errorf("rules %+v, %v", rules, err)
				}
				p.publishColored(t, "events", "blue", "red", "blue", "red")
				if counts := h.counts(subscription); counts.Active != 2 {
					t.Errorf("counts %+v", counts)
				}
				p.credit(0, 0, 2)
				if one, two := p.received(), p.received(); one != 1 || two != 3 {
					t.Errorf("received %d, %d", one, two)
				}
				p.noMore(0, 2)
				_ = p.net.Close()
			})
		})
	}
}

// TestChangedSelectorReplacesADurableSubscription checks that a client which changes the selector of its durable
// subscription gets a new one, only while it has no consumer, and only with the right to manage.
func TestChangedSelectorReplacesADurableSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events")
		s, p := piped(t, h)
		p.login(as("client"))
		p.consumer(0, "events", subscriber("mine", true), selecting("JMSType = 'red'"))
		red := h.subscriptions("events")
		changed := func(a *wire.Attach) { subscriber("mine", true)(a); selecting("JMSType = 'blue'")(a) }
		other := connect(t, s)
		other.login(as("client"))
		if cause := other.refusedSubscriber("events", changed); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("with a consumer: %+v", cause)
		}
		p.send(&wire.Detach{Handle: 0})
		p.untilDetach()
		p.publishColored(t, "events", "red", "blue")

		_, listening := piped(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Listen}} })
		listening.login(as("client"))
		if cause := listening.refusedSubscriber("events", changed); cause.Condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("without the right to manage: %+v", cause)
		}
		if names := h.subscriptions("events"); !slices.Equal(names, red) {
			t.Errorf("subscriptions %v, not %v", names, red)
		}
		other.consumer(0, "events", changed)
		other.noMore(0, 0)
		other.publishColored(t, "events", "red", "blue")
		other.credit(0, 5, 1)
		if got := other.received(); got != 1 {
			t.Errorf("received %d", got)
		}
		if names := h.subscriptions("events"); len(names) != 1 || names[0] == red[0] || len(names[0]) > 50 {
			t.Errorf("subscriptions %v", names)
		}
		other.send(&wire.Detach{Handle: 0})
		other.untilDetach()
		p.consumer(0, "events", subscriber("mine", true)) // without selector
		p.noMore(0, 0)
		if n := len(h.subscriptions("events")); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		for _, c := range []*peer{p, other, listening} {
			_ = c.net.Close()
		}
	})
}

// TestSharedSubscriptionsKeepTheirSelector checks that no consumer changes the selector of others.
func TestSharedSubscriptionsKeepTheirSelector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events", "billing")
		_, p := piped(t, h)
		p.login(as("client"))
		shared := func(link string, durable bool, selector string) func(*wire.Attach) {
			return func(a *wire.Attach) {
				subscriber(link, durable, sharedCapability)(a)
				selecting(selector)(a)
			}
		}
		p.consumer(0, "events", shared("mine", true, "JMSType = 'red'"))
		p.consumer(1, "events", shared("mine|2", true, "JMSType = 'red'"))
		for handle := range uint32(3) { // with and without consumers
			if cause := p.refusedSubscriber("events", shared("mine|3", true, "JMSType = 'blue'")); cause.Condition != wire.ConditionNotAllowed {
				t.Errorf("%+v", cause)
			}
			if handle < 2 {
				p.send(&wire.Detach{Handle: handle})
				p.untilDetach()
			}
		}
		if names := h.subscriptions("events"); len(names) != 2 {
			t.Errorf("subscriptions %v", names)
		}
		p.consumer(2, "events", shared("volatile|volatile1", false, "JMSType = 'red'"))
		p.consumer(3, "events", shared("volatile|volatile2", false, "JMSType = 'blue'"))
		if names := h.subscriptions("events"); len(names) != 4 {
			t.Errorf("subscriptions %v", names)
		}
		global := subscriber("billing|global", true, sharedCapability, globalCapability)
		if cause := p.refusedSubscriber("events", func(a *wire.Attach) { global(a); selecting("JMSType = 'red'")(a) }); cause.Condition != wire.ConditionNotAllowed || !strings.Contains(cause.Description, "administrator") {
			t.Errorf("of an administrator: %+v", cause)
		}
		_ = p.net.Close()
	})
}
