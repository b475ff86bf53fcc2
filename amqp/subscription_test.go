package amqp

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// TestSharedSubscriptionIsNamedByTheLink checks that receivers at a topic that share a durable subscription receive
// from the subscription of that name, each message at one of them.
func TestSharedSubscriptionIsNamedByTheLink(t *testing.T) {
	t.Parallel()
	h := newFakeBroker().topic("events", "billing")
	_, p := piped(t, h)
	p.login()
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

	unknown := &wire.Attach{Name: "x", Handle: 5, Role: wire.RoleReceiver, Source: &wire.Source{Address: "events"}, Target: &wire.Target{}}
	shared("unknown|global")(unknown)
	p.send(unknown)
	if cause := p.refusedLink(); cause.Condition != wire.ConditionNotFound {
		t.Errorf("a subscription that does not exist: %+v", cause)
	}
	unknown.Source.Capabilities = []wire.Symbol{"topic", sharedCapability} // of one client id
	unknown.Name = "billing"
	p.send(unknown)
	if cause := p.refusedLink(); cause.Condition != wire.ConditionNotAllowed {
		t.Errorf("a subscription of a client id: %+v", cause)
	}
}
