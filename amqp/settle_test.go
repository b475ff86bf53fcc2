package amqp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/fsm"
)

// settledHow lists the ways to settle, as the client names them, and their visible effects.
func settledHow() map[string]struct {
	do    func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error
	after fsm.Counts
} {
	return map[string]struct {
		do    func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error
		after fsm.Counts
	}{
		"complete": {func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.CompleteMessage(p.ctx, m, nil)
		}, fsm.Counts{}},
		"abandon": {func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.AbandonMessage(p.ctx, m, nil)
		}, fsm.Counts{Active: 1}},
		"defer": {func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.DeferMessage(p.ctx, m, nil)
		}, fsm.Counts{Deferred: 1}},
		"dead-letter": {func(p sdkPair, r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.DeadLetterMessage(p.ctx, m, nil)
		}, fsm.Counts{DeadLetter: 1}},
	}
}

// A client with the token can settle anywhere: on the link, through the management node after the link has
// ended, over another connection, at another member (docs/requirements.md#t9 to #t13). The second settlement
// of a lock, and a settlement of an expired lock, get an error that says so.
func TestSDKSettlesAnywhere(t *testing.T) {
	t.Parallel()
	ways := map[string]func(p sdkPair, m *azservicebus.ReceivedMessage) (*azservicebus.Receiver, *azservicebus.ReceivedMessage){
		"on the link": func(p sdkPair, m *azservicebus.ReceivedMessage) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
			return p.receiver, m
		},
		"when the link is gone": func(p sdkPair, m *azservicebus.ReceivedMessage) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
			p.must(p.receiver.Close(p.ctx))
			return p.another(p.client), m
		},
		"over another connection": func(p sdkPair, m *azservicebus.ReceivedMessage) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
			return p.another(sdk(p.T, p.address)), byToken(m)
		},
		"at another member": func(p sdkPair, m *azservicebus.ReceivedMessage) (*azservicebus.Receiver, *azservicebus.ReceivedMessage) {
			_, address := gateway(p.T, p.broker)
			return p.another(sdk(p.T, address)), byToken(m)
		},
	}
	for way, by := range ways {
		for verb, v := range settledHow() {
			t.Run(verb+" "+way, func(t *testing.T) {
				t.Parallel()
				p := newSDKPair(t, nil)
				p.send("a")
				receiver, m := by(p, p.receive(p.receiver, 1)[0])
				p.must(v.do(p, receiver, m))
				counts := p.broker.counts("orders")
				if counts.Bytes = 0; counts != v.after {
					t.Errorf("after: %+v", counts)
				}
				p.isLost(v.do(p, receiver, byToken(m)))
				if again := p.broker.counts("orders"); again.Active != counts.Active || again.DeadLetter != counts.DeadLetter || again.Deferred != counts.Deferred {
					t.Errorf("the second settlement did something: %+v", again)
				}
			})
			t.Run(verb+" too late "+way, func(t *testing.T) {
				t.Parallel()
				p := newSDKPair(t, nil)
				p.send("a")
				receiver, m := by(p, p.receive(p.receiver, 1)[0])
				p.broker.advanceClock(time.Minute)
				p.isLost(v.do(p, receiver, m))
				if c := p.broker.counts("orders"); c.Active != 1 {
					t.Errorf("after: %+v", c)
				}
			})
		}
	}
}

// another is one more receiver of the queue.
func (p sdkPair) another(client *azservicebus.Client) *azservicebus.Receiver {
	p.Helper()
	r, err := client.NewReceiverForQueue("orders", nil)
	p.must(err)
	return r
}

func (p sdkPair) isLost(err error) {
	p.Helper()
	var coded *azservicebus.Error
	if !errors.As(err, &coded) || coded.Code != azservicebus.CodeLockLost {
		p.Errorf("got %v, want a lost lock", err)
	}
}

// A settlement that could not be confirmed is not reported as successful.
func TestSDKUnconfirmedSettlementIsNotSuccess(t *testing.T) {
	t.Parallel()
	for _, code := range []fsm.Code{fsm.ServerBusy, fsm.Timeout, fsm.Internal, fsm.InvalidArgument} {
		p := newSDKPair(t, nil)
		p.send("a")
		m := p.receive(p.receiver, 1)[0]
		p.broker.mu.Lock()
		p.broker.settle = code
		p.broker.mu.Unlock()
		if err := p.receiver.CompleteMessage(p.ctx, m, nil); err == nil {
			t.Errorf("%v: reported as done", code)
		}
	}
}

// Messages return to the front of the queue, and only an abandon counts (docs/requirements.md#t7, #t8).
func TestSDKFrontOfTheQueue(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.send("a", "b", "c")
	m := p.receive(p.receiver, 1)[0]
	p.must(p.receiver.AbandonMessage(p.ctx, m, nil))
	m = p.receive(p.receiver, 1)[0]
	if string(m.Body) != "a" || m.DeliveryCount != 2 {
		t.Errorf("after an abandon: %q for the time %d", m.Body, m.DeliveryCount)
	}
	p.broker.advanceClock(time.Minute)
	m = p.receive(p.receiver, 1)[0]
	if string(m.Body) != "a" || m.DeliveryCount != 3 {
		t.Errorf("after the lock ran out: %q for the time %d", m.Body, m.DeliveryCount)
	}
}

// deliveriesOf returns n deliveries that alternate among the given number of links.
func deliveriesOf(n, links int) []settledDelivery {
	of := make([]*outgoingLink, links)
	for i := range of {
		of[i] = &outgoingLink{}
	}
	taken := make([]settledDelivery, n)
	for i := range taken {
		taken[i] = settledDelivery{uint32(i), unsettled{link: of[i%links]}}
	}
	return taken
}

// A disposition over deliveries of many links costs as much as one over deliveries of one link: each delivery
// is examined once.
func TestSettlementCostsByDeliveriesNotLinks(t *testing.T) {
	t.Parallel()
	for _, links := range []int{1, 2, 1000} {
		taken := deliveriesOf(1000, links)
		looked := 0
		groups := byLink(len(taken), func(i int) settledDelivery { looked++; return taken[i] })
		if looked != len(taken) || len(groups) != links || ofOneLink(taken) != (links == 1) {
			t.Errorf("%d links: %d deliveries looked at, %d groups", links, looked, len(groups))
		}
		for g, group := range groups {
			for i, d := range group {
				if want := taken[i*links+g]; d != want {
					t.Fatalf("%d links: delivery %d of group %d is %d, want %d", links, i, g, d.id, want.id)
				}
			}
		}
	}
}

func BenchmarkByLink(b *testing.B) {
	for _, links := range []int{1, 100, 10_000} {
		taken := deliveriesOf(10_000, links)
		b.Run(fmt.Sprint(links), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				byLink(len(taken), func(i int) settledDelivery { return taken[i] })
			}
		})
	}
}
