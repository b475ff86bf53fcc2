package amqp

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/receiver"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// selecting gives an attach a selector, as Qpid JMS does.
func selecting(selector string) func(*wire.Attach) {
	return func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: wire.Symbol("jms-selector"), Value: wire.Described{Descriptor: selectorCode, Value: selector}}}
	}
}

// colored stores messages with a subject, whose bodies are numbers from first on.
func (h *fakeBroker) colored(t testing.TB, queue, subject string, first, n int) {
	t.Helper()
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, queue)
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i < first+n; i++ {
		sent := goamqp.NewMessage([]byte(fmt.Sprint(i)))
		sent.Properties = &goamqp.MessageProperties{Subject: &subject}
		encoded, err := sent.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		m, err := message.Parse(encoded)
		if err != nil {
			t.Fatal(err)
		}
		h.do(sendOne(at, m))
	}
}

// expectBodies reads deliveries with the numbers given as bodies.
func (p *peer) expectBodies(t *testing.T, first, n int) {
	p.Helper()
	for i := first; i < first+n; i++ {
		if got := string(decoded(t, expect[*wire.Transfer](p)).GetData()); got != fmt.Sprint(i) {
			p.Fatalf("delivery %q, want %d", got, i)
		}
	}
}

// TestBrowserShowsWhatItsSelectorSelects checks that a browser with a selector shows the messages that match, in order,
// also behind more messages than one peek returns, and new ones, and that the reply names the selector.
func TestBrowserShowsWhatItsSelectorSelects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		h.colored(t, "orders", "red", 0, 3)
		h.colored(t, "orders", "blue", 0, 2*management.PeekMessagesMax)
		h.colored(t, "orders", "red", 3, 4)
		p := loggedIn(t, h)
		a := p.receiver(0, "orders", browsing, selecting("JMSType = 'red'"))
		if d, ok := a.Source.Filter.Get("jms-selector").(wire.Described); !ok || d.Value != "JMSType = 'red'" {
			t.Errorf("reply with the filters %v", a.Source.Filter)
		}
		p.credit(0, 0, 2) // less than the first peek shows
		p.expectBodies(t, 0, 2)
		p.credit(0, 2, 10)
		p.expectBodies(t, 2, 5)
		p.credit(0, 7, 5, func(f *wire.Flow) { f.Drain = true })
		if f := expect[*wire.Flow](p); *f.LinkCredit != 0 {
			t.Errorf("drained: %+v", f)
		}
		if counts := h.counts("orders"); counts.Locked != 0 {
			t.Errorf("afterwards %+v", counts)
		}
		p.credit(0, 12, 5)
		synctest.Wait()
		h.colored(t, "orders", "blue", 0, 1)
		h.colored(t, "orders", "red", 7, 1)
		p.expectBodies(t, 7, 1)
		_ = p.net.Close()
	})
}

// TestSelectorsAreRefusedWithAReason checks the conditions with which selectors are refused.
func TestSelectorsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	both := wire.Map{
		{Key: wire.Symbol("a"), Value: wire.Described{Descriptor: selectorCode, Value: "a = 1"}},
		{Key: wire.Symbol("b"), Value: wire.Described{Descriptor: selectorDescriptor, Value: "b = 1"}},
	}
	for name, c := range map[string]struct {
		filter wire.Map
		want   wire.Symbol
	}{
		"syntax":      {wire.Map{{Key: wire.Symbol("s"), Value: wire.Described{Descriptor: selectorCode, Value: "a = "}}}, wire.ConditionInvalidField},
		"not visible": {wire.Map{{Key: wire.Symbol("s"), Value: wire.Described{Descriptor: selectorDescriptor, Value: "JMSPriority = 4"}}}, wire.ConditionInvalidField},
		"no string":   {wire.Map{{Key: wire.Symbol("s"), Value: wire.Described{Descriptor: selectorCode, Value: int32(4)}}}, wire.ConditionInvalidField},
		"no symbol":   {wire.Map{{Key: int32(4), Value: wire.Described{Descriptor: selectorCode, Value: "a = 1"}}}, wire.ConditionInvalidField},
		"two":         {both, wire.ConditionInvalidField},
		"session":     {wire.Map{{Key: sessionFilterKey, Value: "one"}, both[0]}, wire.ConditionNotImplemented},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loggedIn(t, newFakeBroker("orders"))
			a := &wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders", Filter: c.filter}, Target: &wire.Target{}}
			if name != "session" {
				browsing(a)
			}
			p.send(a)
			if cause := p.refusedLink(); cause.Condition != c.want {
				t.Errorf("%+v", cause)
			}
		})
	}
}

// TestScansAreLimited checks that connections with selectors together look at no more messages in a second than
// scanWorkPerSecondPerProcessor allows.
func TestScansAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		const peeks = 40
		h.colored(t, "orders", "blue", 0, peeks*management.PeekMessagesMax)
		s, p := piped(t, h, func(c *Config) { c.Processors = 1 })
		others := []*peer{connect(t, s), connect(t, s), connect(t, s)}
		began := time.Now()
		for i, p := range append(others, p) {
			p.login()
			p.receiver(0, "orders", browsing, selecting(fmt.Sprintf("JMSType = 'red%d'", i)))
			p.credit(0, 0, 5, func(f *wire.Flow) { f.Drain = true })
		}
		for _, p := range append(others, p) {
			if f := expect[*wire.Flow](p); *f.LinkCredit != 0 {
				t.Errorf("drained: %+v", f)
			}
		}
		cost := (1 + len(others)) * peeks * (receiver.PeekCost + management.PeekMessagesMax/receiver.MessagesPerUnit)
		least := time.Duration(cost-scanWorkPerSecondPerProcessor/workBurstsPerSecond) * time.Second / scanWorkPerSecondPerProcessor
		if took := time.Since(began); took < least*9/10 {
			t.Errorf("four searches took %s, less than %s", took, least)
		}
		for _, p := range append(others, p) {
			_ = p.net.Close()
		}
	})
}
