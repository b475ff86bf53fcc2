package amqp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// as changes the client id of a connection.
func as(client string) func(*wire.Open, *wire.Begin) {
	return func(o *wire.Open, _ *wire.Begin) { o.ContainerID = client }
}

// subscriber makes an attach of a consumer with a named subscription.
func subscriber(link string, durable bool, capabilities ...wire.Symbol) func(*wire.Attach) {
	return func(a *wire.Attach) {
		a.Name, a.Source.Capabilities = link, append([]wire.Symbol{topicCapability}, capabilities...)
		if durable {
			a.Source.Durable, a.Source.DistributionMode = ptr(uint32(2)), ptr(distributionCopy)
		}
	}
}

// refusedSubscriber attaches a consumer with a named subscription, which is refused.
func (p *peer) refusedSubscriber(topic string, change func(*wire.Attach)) *wire.Error {
	p.Helper()
	a := &wire.Attach{Handle: 99, Role: wire.RoleReceiver, Source: &wire.Source{Address: topic}, Target: &wire.Target{}}
	change(a)
	p.send(a)
	return p.refusedLink()
}

// publish sends a message of one byte to a topic.
func (h *fakeBroker) publish(t *testing.T, topic string, body byte) {
	t.Helper()
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, topic)
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encodedMessage(t, []byte{body}))
	if err != nil {
		t.Fatal(err)
	}
	h.do(sendOne(at, m))
}

// TestDurableSubscriptionStays checks that a durable subscription collects messages while its client is away, and has
// one consumer at a time.
func TestDurableSubscriptionStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events")
		s, p := piped(t, h)
		p.login(as("client"))
		p.consumer(0, "events", subscriber("mine", true))
		if names := h.subscriptions("events"); len(names) != 1 || !strings.HasPrefix(names[0], "jms.mine.") || len(names[0]) > 50 {
			t.Fatalf("subscriptions %v", names)
		}
		at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, fsm.SubscriptionPath("events", h.subscriptions("events")[0]))
		if err != nil || at.Settings.AutoDeleteOnIdle != fsm.Forever || at.Settings.UserMetadata != `JMS subscription "mine" of client "client"` {
			t.Errorf("settings %+v, %v", at.Settings, err)
		}
		second := connect(t, s)
		second.login(as("client"))
		if cause := second.refusedSubscriber("events", subscriber("mine", true)); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("second consumer: %+v", cause)
		}
		if cause := second.refusedSubscriber("events", subscriber("mine|2", true, sharedCapability)); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("second consumer, shared: %+v", cause)
		}
		p.send(&wire.Detach{Handle: 0})
		p.untilDetach()
		h.publish(t, "events", 5)
		second.consumer(1, "events", subscriber("mine", true))
		second.credit(1, 0, 1)
		if got := second.received(); got != 5 {
			t.Errorf("received %d", got)
		}
		_ = second.net.Close()
		<-second.ended
		p.consumer(2, "events", subscriber("mine", true)) // the end of a connection frees it too
		if n := len(h.subscriptions("events")); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		_ = p.net.Close()
	})
}

// TestSubscriptionsOfClientsAreApart checks that no name and no client id lead to the subscription of another client, of
// another kind, or of an administrator.
func TestSubscriptionsOfClientsAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events", "billing")
		s, p := piped(t, h)
		p.login(as("a"))
		p.consumer(0, "events", subscriber("x", true))
		own := h.subscriptions("events")[1]
		connections, n := []*peer{p}, 2
		for _, c := range []struct {
			client, link string
			durable      bool
			capabilities []wire.Symbol
		}{
			{"b", "x", true, nil},
			{"A", "x", true, nil},
			{"", own + "|global", true, []wire.Symbol{sharedCapability, globalCapability}},
			{"b", own, true, nil},
			{"ax", "|", true, nil}, // refused
			{"a$x", "x", true, nil},
			{"a", "X", true, nil},
			{"a", "x$a$D", true, nil},
			{"a", "billing", true, nil},
			{"a", "x|volatile1", false, []wire.Symbol{sharedCapability}},
			{"a", "x|global-volatile1", false, []wire.Symbol{sharedCapability, globalCapability}},
			{"a", "x|global", true, []wire.Symbol{sharedCapability, globalCapability}},
			{"", "y", true, nil}, // refused
			{strings.Repeat("c", clientIDBytesMax), "x", true, nil},
			{strings.Repeat("c", clientIDBytesMax+1), "x", true, nil}, // refused
		} {
			other := connect(t, s)
			connections = append(connections, other)
			other.login(as(c.client))
			if c.link == "|" || c.link == "y" || len(c.client) > clientIDBytesMax {
				if cause := other.refusedSubscriber("events", subscriber(c.link, c.durable, c.capabilities...)); cause.Condition != wire.ConditionInvalidField {
					t.Errorf("client %q, link %q: %+v", c.client, c.link, cause)
				}
				continue
			}
			a := other.consumer(0, "events", subscriber(c.link, c.durable, c.capabilities...))
			if n++; len(h.subscriptions("events")) != n {
				t.Errorf("client %q, link %q: no subscription of its own", c.client, c.link)
			}
			if slices.Contains(a.OfferedCapabilities, sharedSubscriptions) != (c.capabilities != nil) {
				t.Errorf("offered %v", a.OfferedCapabilities)
			}
		}
		for _, c := range connections {
			_ = c.net.Close()
		}
	})
}

// TestSharedVolatileSubscription checks that consumers share a subscription that is not durable, and that it is deleted
// when nobody has used it.
func TestSharedVolatileSubscription(t *testing.T) {
	t.Parallel()
	h := newFakeBroker().topic("events")
	_, p := piped(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Listen}} })
	p.login(as("client"))
	p.consumer(0, "events", subscriber("news|volatile1", false, sharedCapability))
	p.consumer(1, "events", subscriber("news|volatile2", false, sharedCapability))
	names := h.subscriptions("events")
	if len(names) != 1 {
		t.Fatalf("subscriptions %v", names)
	}
	if at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, fsm.SubscriptionPath("events", names[0])); err != nil || at.Settings.AutoDeleteOnIdle != fsm.Millis(temporaryIdle.Milliseconds()) {
		t.Errorf("idle for %d, %v", at.Settings.AutoDeleteOnIdle, err)
	}
	if cause := p.refusedSubscriber("events", subscriber("news", true)); cause.Condition != wire.ConditionUnauthorizedAccess || !strings.Contains(cause.Description, "durable subscription") {
		t.Errorf("durable without the right to manage: %+v", cause)
	}
	if n := len(h.subscriptions("events")); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// TestVolatileSubscriptionsAreBounded checks how many subscriptions that outlive their links one connection creates.
func TestVolatileSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	h := newFakeBroker().topic("events")
	s, p := piped(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Listen}} })
	p.login(as("client"))
	attach := func(i int) func(*wire.Attach) {
		return subscriber(fmt.Sprintf("news%d|volatile1", i), false, sharedCapability)
	}
	for i := range volatilesMax {
		p.consumer(0, "events", attach(i))
		p.send(&wire.Detach{Closed: true})
		p.untilDetach()
	}
	if cause := p.refusedSubscriber("events", attach(volatilesMax)); cause.Condition != wire.ConditionResourceLimitExceeded {
		t.Errorf("%+v", cause)
	}
	if n := len(h.subscriptions("events")); n != volatilesMax {
		t.Errorf("%d subscriptions", n)
	}
	p.consumer(0, "events", attach(0)) // exists
	other := connect(t, s)
	other.login(as("client"))
	other.consumer(0, "events", attach(volatilesMax))
}

// TestListenSufficesForADurableSubscriptionThatExists checks the rights of clients to durable subscriptions.
func TestListenSufficesForADurableSubscriptionThatExists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events")
		_, creating := piped(t, h)
		creating.login(as("client"))
		creating.consumer(0, "events", subscriber("mine", true))
		_ = creating.net.Close()
		<-creating.ended

		_, p := piped(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Listen}} })
		p.login(as("client"))
		p.consumer(0, "events", subscriber("mine", true))
		p.send(&wire.Detach{Handle: 0})
		p.untilDetach()
		p.send(&wire.Attach{Name: "mine", Handle: 1, Role: wire.RoleReceiver, Target: &wire.Target{}})
		if cause := p.refusedLink(); cause.Condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("unsubscribe: %+v", cause)
		}
		if n := len(h.subscriptions("events")); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		_ = p.net.Close()
	})
}

// TestUnsubscribe checks that a client deletes its durable subscriptions, and nothing else.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events", "billing")
		s, p := piped(t, h)
		p.login(as("client"))
		other := connect(t, s)
		other.login(as("other"))
		unsubscribe := &wire.Attach{Name: "mine", Handle: 7, Role: wire.RoleReceiver, Target: &wire.Target{}}
		p.consumer(0, "events", subscriber("mine", true))
		p.send(unsubscribe)
		if cause := p.refusedLink(); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("with an active consumer: %+v", cause)
		}
		p.send(&wire.Detach{Handle: 0})
		p.untilDetach()
		other.send(unsubscribe)
		if cause := other.refusedLink(); cause.Condition != wire.ConditionNotFound {
			t.Errorf("by another client: %+v", cause)
		}
		other.send(&wire.Attach{Name: "billing|global", Handle: 8, Role: wire.RoleReceiver, Target: &wire.Target{}, DesiredCapabilities: []wire.Symbol{sharedCapability, globalCapability}})
		if cause := other.refusedLink(); cause.Condition != wire.ConditionNotFound {
			t.Errorf("of an administrator: %+v", cause)
		}

		p.send(unsubscribe)
		a := expect[*wire.Attach](p)
		if a.Source == nil || a.Source.Address != "events" || *a.Source.Durable != 2 {
			t.Fatalf("attach %+v", a)
		}
		p.send(&wire.Detach{Handle: 7}) // does not close: the subscription stays
		expect[*wire.Detach](p)
		if n := len(h.subscriptions("events")); n != 2 {
			t.Fatalf("%d subscriptions", n)
		}
		p.send(unsubscribe)
		expect[*wire.Attach](p)
		p.send(&wire.Detach{Handle: 7, Closed: true})
		if d := expect[*wire.Detach](p); !d.Closed || d.Error != nil {
			t.Errorf("detach %+v", d)
		}
		if names := h.subscriptions("events"); !slices.Equal(names, []string{"billing"}) {
			t.Errorf("subscriptions %v", names)
		}
		s.mu.Lock()
		for c := range s.conns {
			c.mu.Lock()
			if len(c.linksByKey) != 0 {
				t.Errorf("links remembered: %v", c.linksByKey)
			}
			c.mu.Unlock()
		}
		s.mu.Unlock()
		p.send(unsubscribe)
		if cause := p.refusedLink(); cause.Condition != wire.ConditionNotFound {
			t.Errorf("again: %+v", cause)
		}
		p.consumer(0, "events", subscriber("mine", true)) // nobody uses the name any more
		_ = p.net.Close()
		_ = other.net.Close()
	})
}

// TestUnsubscribeDeletesAllOfAName checks that nothing remains of a subscription that two members created at once at two
// topics.
func TestUnsubscribeDeletesAllOfAName(t *testing.T) {
	t.Parallel()
	h := newFakeBroker().topic("events").topic("news")
	_, p := piped(t, h)
	p.login(as("client"))
	p.consumer(0, "events", subscriber("mine", true))
	p.send(&wire.Detach{Handle: 0})
	p.untilDetach()
	if _, err := h.CreateEntity(t.Context(), fsm.DefaultNamespace, fsm.SubscriptionEntity, fsm.SubscriptionPath("news", h.subscriptions("events")[0]), fsm.DefaultSettings(), nil); err != nil {
		t.Fatal(err)
	}
	p.send(&wire.Attach{Name: "mine", Role: wire.RoleReceiver, Target: &wire.Target{}})
	expect[*wire.Attach](p)
	p.send(&wire.Detach{Closed: true})
	p.untilDetach()
	if n := h.queueCount(); n != 2 {
		t.Errorf("%d entities", n)
	}
}

// slowDeletion is a broker that deletes when it is told to.
type slowDeletion struct {
	*fakeBroker
	resume chan struct{}
}

func (s *slowDeletion) DeleteEntity(ctx context.Context, in fsm.NamespaceID, kind fsm.EntityKind, name string) error {
	<-s.resume
	return s.fakeBroker.DeleteEntity(ctx, in, kind, name)
}

// TestNobodyConsumesWhatIsBeingDeleted checks a consumer that attaches while its subscription is deleted, under the name
// of the link that deletes it.
func TestNobodyConsumesWhatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &slowDeletion{fakeBroker: newFakeBroker().topic("events"), resume: make(chan struct{})}
		_, p := piped(t, h)
		p.login(as("client"))
		p.consumer(0, "events", subscriber("mine", true))
		p.send(&wire.Detach{Handle: 0})
		p.untilDetach()
		unsubscribe := &wire.Attach{Name: "mine", Handle: 1, Role: wire.RoleReceiver, Target: &wire.Target{}}
		p.send(unsubscribe)
		expect[*wire.Attach](p)
		p.send(&wire.Detach{Handle: 1, Closed: true})
		unsubscribe.Handle = 2
		p.send(unsubscribe)
		if cause := p.refusedLink(); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("deleted twice: %+v", cause)
		}
		if cause := p.refusedSubscriber("events", subscriber("mine", true)); cause.Condition != wire.ConditionResourceLocked {
			t.Errorf("consumer: %+v", cause)
		}
		close(h.resume)
		if d := expect[*wire.Detach](p); d.Handle != 1 || d.Error != nil {
			t.Errorf("detach %+v", d)
		}
		p.consumer(0, "events", subscriber("mine", true))
		_ = p.net.Close()
	})
}

// TestConnectionEndsDuringAnAttach checks that the consumer of a connection that ends before its subscription exists
// locks nobody out.
func TestConnectionEndsDuringAnAttach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, refused := range []bool{false, true} {
			h := &slowCreation{fakeBroker: newFakeBroker().topic("events"), resume: make(chan struct{})}
			s, p := piped(t, h)
			p.login(as("client"))
			a := &wire.Attach{Role: wire.RoleReceiver, Source: &wire.Source{Address: "events"}, Target: &wire.Target{}}
			subscriber("mine", true)(a)
			p.send(a)
			synctest.Wait()
			if refused { // the connection ends when the peer has answered the close
				p.send(&wire.Attach{Handle: 1 << 30})
				expect[*wire.Close](p)
			} else {
				_ = p.net.Close()
			}
			synctest.Wait()
			close(h.resume)
			synctest.Wait()
			_ = p.net.Close()
			<-p.ended
			other := connect(t, s)
			other.login(as("client"))
			other.consumer(0, "events", subscriber("mine", true))
			_ = other.net.Close()
		}
	})
}

// TestNamesOfDurableSubscriptionsArePerTopic checks that a client takes nothing from the subscription of the same name at
// another topic, and that unsubscribing by a name ends those that the client may manage.
func TestNamesOfDurableSubscriptionsArePerTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events").topic("news")
		g := &scriptedAuthorizer{grants: map[string]Grant{"sb://h/events": {Rights: fsm.Manage, Path: "events"}, "sb://h/news": {Rights: fsm.Manage, Path: "news"}}}
		s, p := piped(t, h, g.through)
		other := connect(t, s)
		for peer, audience := range map[*peer]string{p: "sb://h/events", other: "sb://h/news"} {
			peer.beginAt(login.MechanismAnonymous, "", "-", "-") // both with the same client id
			expect[*wire.Begin](peer)
			peer.putToken(audience, 202)
		}
		p.consumer(0, "events", subscriber("mine", true))
		other.consumer(0, "news", subscriber("mine", true))
		for _, peer := range []*peer{p, other} {
			peer.send(&wire.Detach{Handle: 0})
			peer.untilDetach()
		}
		other.consumer(0, "news", subscriber("mine", true))
		p.consumer(1, "events", subscriber("ours", true, sharedCapability))
		if events, news := h.subscriptions("events"), h.subscriptions("news"); len(events) != 2 || len(news) != 1 {
			t.Errorf("subscriptions %v and %v", events, news)
		}
		p.send(&wire.Attach{Name: "mine", Handle: 7, Role: wire.RoleReceiver, Target: &wire.Target{}})
		expect[*wire.Attach](p)
		p.send(&wire.Detach{Handle: 7, Closed: true})
		p.untilDetach()
		if events, news := h.subscriptions("events"), h.subscriptions("news"); len(events) != 1 || len(news) != 1 {
			t.Errorf("after unsubscribing: %v and %v", events, news)
		}
		_ = p.net.Close()
		_ = other.net.Close()
	})
}
