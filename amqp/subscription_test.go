package amqp

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// TestSharedSubscriptionIsNamedByTheLink checks that receivers at a topic that share a durable subscription receive
// from the subscription of that name, each message at one of them.
func TestSharedSubscriptionIsNamedByTheLink(t *testing.T) {
	t.Parallel()
	h := newFakeBroker().topic("events", "billing")
	p := loggedIn(t, h)
	shared := func(name string) func(*wire.Attach) {
		return func(a *wire.Attach) {
			a.Name = name
			a.Source.Durable, a.Source.DistributionMode = ptr(uint32(2)), ptr(distributionCopy)
			a.Source.Capabilities = []wire.Symbol{"topic", sharedCapability, globalCapability}
		}
	}
	for i, name := range []string{"billing|global", "billing|global2"} {
		a := p.receiver(uint32(i), "events", shared(name))
		if !slices.Contains(a.OfferedCapabilities, sharedSubscriptions) || a.Source.Address != "events" {
			t.Errorf("attach %+v", a)
		}
		p.credit(uint32(i), 0, 1)
	}
	p.sender(9, "events")
	seen := make(map[uint32]bool)
	for id := range uint32(2) {
		p.transfer(9, id, encodedMessage(t, []byte{byte(id)}))
	}
	for transfers, accepted := 0, uint32(0); transfers < 2 || accepted < 2; {
		switch body := p.next().Body.(type) {
		case *wire.Transfer:
			seen[body.Handle] = true
			transfers++
		case *wire.Disposition:
			accepted += *body.Last - body.First + 1
		case nil, *wire.Flow:
		default:
			t.Fatalf("got %T", body)
		}
	}
	if len(seen) != 2 {
		t.Errorf("messages at links %v", seen)
	}
}

// consumer attaches a receiver at a topic, as Qpid JMS does for a consumer.
func (p *peer) consumer(handle uint32, topic string, change ...func(*wire.Attach)) *wire.Attach {
	p.Helper()
	return p.receiver(handle, topic, append([]func(*wire.Attach){func(a *wire.Attach) {
		a.Source.Durable, a.Source.ExpiryPolicy = new(uint32), ptr(wire.Symbol("link-detach"))
		a.Source.Capabilities = []wire.Symbol{topicCapability}
	}}, change...)...)
}

// subscriptions returns the names of the subscriptions of a topic, in order.
func (h *fakeBroker) subscriptions(topic string) (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.names {
		if of, name, ok := fsm.SplitSubscriptionPath(e.Name); ok && strings.EqualFold(of, topic) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// received reads a message and returns its body, whose size is one byte.
func (p *peer) received() byte {
	p.Helper()
	for {
		switch body := p.next().Body.(type) {
		case *wire.Transfer:
			return body.Payload[len(body.Payload)-1]
		case nil, *wire.Flow, *wire.Disposition:
		default:
			p.Fatalf("got %T %+v", body, body)
		}
	}
}

// untilDetach reads frames up to a detach.
func (p *peer) untilDetach() *wire.Detach {
	p.Helper()
	for {
		if d, ok := p.next().Body.(*wire.Detach); ok {
			return d
		}
	}
}

// TestConsumersOfATopicHaveASubscriptionEach checks that each consumer of a topic gets all messages from its attach on,
// and that its subscription ends with its link or its connection. Listen suffices.
func TestConsumersOfATopicHaveASubscriptionEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker().topic("events")
		s, p := piped(t, h, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: fsm.Send | fsm.Listen}} })
		other := connect(t, s)
		p.login()
		other.login()
		if a := p.consumer(0, "events"); a.Source.Address != "events" || len(a.OfferedCapabilities) != 0 {
			t.Errorf("attach %+v", a)
		}
		p.credit(0, 0, 10)
		p.consumer(1, "events", func(a *wire.Attach) { a.Source.Capabilities = []wire.Symbol{temporaryTopic} })
		p.credit(1, 0, 10)
		other.consumer(0, "events")
		other.credit(0, 0, 10)
		names := h.subscriptions("events")
		if len(names) != 3 {
			t.Fatalf("subscriptions %v", names)
		}
		if at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, fsm.SubscriptionPath("events", names[0])); err != nil || at.Settings.AutoDeleteOnIdle != fsm.Millis(temporaryIdle.Milliseconds()) {
			t.Errorf("idle for %d, %v", at.Settings.AutoDeleteOnIdle, err)
		}
		p.sender(2, "events")
		p.transfer(2, 0, encodedMessage(t, []byte{7}))
		if one, two, three := p.received(), p.received(), other.received(); one != 7 || two != 7 || three != 7 {
			t.Errorf("received %d, %d, %d", one, two, three)
		}

		p.send(&wire.Detach{Handle: 0}) // also without closing
		p.untilDetach()
		synctest.Wait()
		if n := len(h.subscriptions("events")); n != 2 {
			t.Errorf("%d subscriptions after a detach", n)
		}
		_ = p.net.Close()
		<-p.ended
		synctest.Wait()
		if n := len(h.subscriptions("events")); n != 1 {
			t.Errorf("%d subscriptions after the end of a connection", n)
		}
		_ = other.net.Close()
	})
}

// TestRefusedConsumersCreateNothing checks consumers of topics that are refused.
func TestRefusedConsumersCreateNothing(t *testing.T) {
	t.Parallel()
	noLocal := wire.Map{{Key: wire.Symbol("no-local"), Value: wire.Described{Descriptor: noLocalDescriptor, Value: "NoLocalFilter{}"}}}
	for name, c := range map[string]struct {
		rights fsm.Rights
		source wire.Source
		want   wire.Symbol
	}{
		"without the right": {fsm.Send, wire.Source{Address: "events"}, wire.ConditionUnauthorizedAccess},
		"no local":          {fsm.Listen, wire.Source{Address: "events", Filter: noLocal}, wire.ConditionNotImplemented},
		"queue":             {fsm.Listen, wire.Source{Address: "orders"}, wire.ConditionNotAllowed},
		"unknown topic":     {fsm.Listen, wire.Source{Address: "nowhere"}, wire.ConditionNotFound},
		"browser":           {fsm.Listen, wire.Source{Address: "events", DistributionMode: ptr(distributionCopy)}, wire.ConditionNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newFakeBroker("orders").topic("events")
				deleted := &deletions{fakeBroker: h}
				p := loggedIn(t, deleted, func(config *Config) { config.Authorizer = fakeAuthorizer{Grant{Rights: c.rights}} })
				c.source.Capabilities = []wire.Symbol{topicCapability}
				for range temporariesMax + 1 { // a refused consumer does not count
					p.send(&wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &c.source, Target: &wire.Target{}})
					if cause := p.refusedLink(); cause.Condition != c.want {
						t.Fatalf("%+v", cause)
					}
				}
				synctest.Wait()
				if n := h.queueCount(); n != 2 || deleted.calls.Load() != 0 {
					t.Errorf("%d entities, %d deletions", n, deleted.calls.Load())
				}
				_ = p.net.Close()
			})
		})
	}
}

// deletions is a broker that counts deletions.
type deletions struct {
	*fakeBroker
	calls atomic.Int32
}

func (d *deletions) DeleteEntity(ctx context.Context, in fsm.NamespaceID, kind fsm.EntityKind, name string) error {
	d.calls.Add(1)
	return d.fakeBroker.DeleteEntity(ctx, in, kind, name)
}

// TestFullTopicRefusesConsumers checks the reason that a consumer gets when a topic has all the subscriptions that it
// may have.
func TestFullTopicRefusesConsumers(t *testing.T) {
	t.Parallel()
	p := loggedIn(t, fullTopic{newFakeBroker().topic("events")})
	p.send(&wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "events", Capabilities: []wire.Symbol{topicCapability}}, Target: &wire.Target{}})
	if cause := p.refusedLink(); cause.Condition != wire.ConditionResourceLimitExceeded || !strings.Contains(cause.Description, "as many subscriptions or selectors as it may have") {
		t.Errorf("%+v", cause)
	}
}

// fullTopic is a broker that creates nothing more.
type fullTopic struct{ *fakeBroker }

func (fullTopic) CreateEntity(context.Context, fsm.NamespaceID, fsm.EntityKind, string, fsm.EntitySettings, *fsm.Rule) (fsm.EntityRef, error) {
	return fsm.EntityRef{}, fsm.QuotaExceeded
}

// TestTemporaryTopicEndsWithItsLink checks that a temporary topic has consumers, and ends with them and their
// subscriptions when the link that created it ends.
func TestTemporaryTopicEndsWithItsLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker()
		s, p := piped(t, h)
		other := connect(t, s)
		p.login()
		other.login()
		p.send(&wire.Attach{Name: "creator", Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Dynamic: true, Capabilities: []wire.Symbol{temporaryTopic}}, InitialDeliveryCount: new(uint32)})
		name, _ := expect[*wire.Attach](p).Target.Address.(string)
		expect[*wire.Flow](p)
		if at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, name); err != nil || at.Kind != fsm.TopicEntity || at.Settings.AutoDeleteOnIdle != fsm.Millis(temporaryTopicIdle.Milliseconds()) {
			t.Fatalf("%q: %v %v", name, at, err)
		}
		p.consumer(1, name, func(a *wire.Attach) { a.Source.Capabilities = []wire.Symbol{temporaryTopic} })
		p.credit(1, 0, 1)
		other.sender(0, name)
		other.transfer(0, 0, encodedMessage(t, []byte{9}))
		other.accepted()
		if got := p.received(); got != 9 {
			t.Errorf("received %d", got)
		}
		p.send(&wire.Detach{Handle: 0, Closed: true})
		p.untilDetach()
		synctest.Wait()
		if n := h.queueCount(); n != 0 {
			t.Errorf("%d entities remain", n)
		}
		_ = p.net.Close()
		_ = other.net.Close()
	})
}
