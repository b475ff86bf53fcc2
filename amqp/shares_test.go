package amqp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manyRules is a broker whose subscriptions have rules without end, and which answers when it is told to.
type manyRules struct {
	*fakeBroker
	answer chan struct{}
}

func (b *manyRules) ListRules(ctx context.Context, _ fsm.EntityRef, _, most int) ([]fsm.Rule, error) {
	select {
	case <-b.answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rules := make([]fsm.Rule, most)
	for i := range rules {
		rules[i] = fsm.Rule{Name: strings.Repeat("r", 50), Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: strings.Repeat("x", 100)}}}
	}
	return rules, nil
}

// Requests of one key whose responses are large wait for each other, on however many connections they come, and are refused
// after a while with the resource in the text. Nothing is held when all is answered.
func TestResponsesOfOneKeyAreBoundedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &manyRules{newFakeBroker().topic("events", "sub"), make(chan struct{})}
		s, first := piped(t, b, littleMemory, manyProcessors)
		all, node := s.Accounts(), "events/Subscriptions/sub/$management"
		peers := []*peer{first, connect(t, s), connect(t, s), connect(t, s)}
		for _, p := range peers {
			p.login()
			p.sender(0, node)
			p.receiver(1, node)
			p.credit(1, 0, 100)
			ask(p, 0, management.EnumerateRulesOperation, wire.Map{{Key: "top", Value: int32(100)}, {Key: "skip", Value: int32(0)}})
		}
		synctest.Wait()
		held := all.Used(account.AnswerBytes)
		if most := account.For(budget.BytesMin)[account.AnswerBytes]; held == 0 || held > most*3/4 {
			t.Errorf("%d bytes of answers are taken by one key, of %d", held, most)
		}
		refused := 0
		<-time.After(shareWithin + time.Second)
		close(b.answer)
		for _, p := range peers {
			r := p.response()
			switch r.properties.Get("statusCode") {
			case int32(503):
				if text, _ := r.properties.Get("statusDescription").(string); !strings.Contains(text, "bytes of answers") {
					t.Errorf("refused with %q", text)
				}
				refused++
			case int32(200):
			default:
				t.Errorf("%+v", r)
			}
		}
		if refused == 0 || refused == len(peers) {
			t.Errorf("%d of %d are refused", refused, len(peers))
		}
		synctest.Wait()
		for r := range account.HTTPBytes + 1 {
			if n := all.Used(r); n != 0 {
				t.Errorf("%d %s at the end", n, r)
			}
		}
	})
}

// A response that the client does not take is in the account of its key until it is written or its link has ended.
func TestUnreadResponsesStayInTheAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &manyRules{newFakeBroker().topic("events", "sub"), make(chan struct{})}
		close(b.answer)
		s, p := piped(t, b, manyProcessors)
		node := "events/Subscriptions/sub/$management"
		p.login()
		p.sender(0, node)
		p.receiver(1, node) // without credit
		const requests = 5
		for i := range uint32(requests) {
			ask(p, i, management.EnumerateRulesOperation, wire.Map{{Key: "top", Value: int32(100)}, {Key: "skip", Value: int32(0)}})
		}
		synctest.Wait()
		used := func() int64 { return s.Accounts().Used(account.AnswerBytes) }
		if n := used(); n < requests*100*150 {
			t.Errorf("%d bytes in the account", n)
		}
		before := used()
		p.credit(1, 0, 1)
		p.response()
		synctest.Wait()
		if n := used(); n >= before || n == 0 {
			t.Errorf("%d bytes in the account after one response, %d before", n, before)
		}
		p.send(&wire.Detach{Handle: 1, Closed: true})
		p.untilDetach()
		synctest.Wait()
		if n := used(); n != 0 {
			t.Errorf("%d bytes in the account after the detach", n)
		}
	})
}

// Settlements that store properties wait when the key has too many of them in progress; those that store nothing pass.
func TestSettlementsThatStoreAreBoundedTogether(t *testing.T) {
	t.Parallel()
	properties := wire.Map{{Key: "p", Value: strings.Repeat("x", 30<<10)}}
	encoded, err := message.EncodeProperties(properties)
	if err != nil {
		t.Fatal(err)
	}
	body := append(lockTokens(1000), wire.Pair{Key: "disposition-status", Value: "abandoned"}, wire.Pair{Key: "properties-to-modify", Value: properties})
	at := fsm.EntityRef{}
	if p := management.PriceOf(management.DispositionOperation, &at, body); p.StoredBytes != 1000*len(encoded) || p.Work < 7000 {
		t.Errorf("price %+v of %d bytes", p, len(encoded))
	}
	a := account.New(account.Capacities{account.Requests: 100, account.SettledBytes: 4 * settledAtOnceMax}).Open(account.Owner{Key: "a"})
	var taken []*share
	for {
		one := &share{account: a, settled: settledAtOnceMax}
		if !one.take(t.Context(), 0) {
			if one.refused != account.SettledBytes {
				t.Errorf("refused for %s", one.refused)
			}
			break
		}
		taken = append(taken, one)
	}
	if free := (&share{account: a}); len(taken) != 2 || !free.take(t.Context(), 0) {
		t.Errorf("%d taken; without properties it is refused", len(taken))
	}
	for _, one := range taken {
		one.release()
		one.release() // has no effect
	}
	if a.Held(account.SettledBytes) != 0 || a.Held(account.Requests) != 1 {
		t.Errorf("%d bytes, %d requests at the end", a.Held(account.SettledBytes), a.Held(account.Requests))
	}
}

// A disposition that stores properties is not confirmed while the key has too many in progress; one that stores nothing is done.
func TestDispositionsThatStoreAreRefusedAboveTheShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders")
		s, p := piped(t, h)
		p.login()
		p.receiver(0, "orders")
		p.credit(0, 0, 2)
		h.messages(t, "orders", 2)
		p.deliveries(2)
		a := onlyConn(t, s).account
		a.Add(account.SettledBytes, 1<<40)
		defer a.Release(account.SettledBytes, 1<<40)
		abandon := &wire.Disposition{Role: wire.RoleReceiver, First: 0, State: &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol("p"), Value: "v"}}}}
		p.send(abandon)
		if e := p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost); !strings.Contains(e.Description, "not confirmed") { // see refusal.ForSettlement
			t.Errorf("refused with %+v", e)
		}
		p.send(&wire.Disposition{Role: wire.RoleReceiver, First: 1, State: &wire.Accepted{}})
		if d := expect[*wire.Disposition](p); d.First != 1 || d.State == nil {
			t.Errorf("%+v", d)
		} else if _, ok := d.State.(*wire.Accepted); !ok {
			t.Errorf("completed with %+v", d.State)
		}
		a.Release(account.SettledBytes, 1<<40)
		p.send(abandon)
		if d := expect[*wire.Disposition](p); d.First != 0 {
			t.Errorf("%+v", d)
		} else if _, ok := d.State.(*wire.Modified); !ok {
			t.Errorf("abandoned with %+v", d.State)
		}
		a.Add(account.SettledBytes, 1<<40)
	})
}

// One key has at most as many links as are free, on all its connections; a link that ends is free again.
func TestLinksOfOneKeyAreBoundedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, first := piped(t, newFakeBroker("orders"))
		all := s.Accounts()
		others := all.Open(account.Owner{Namespace: 7, Key: "others"})
		const free = 8
		others.Add(account.Links, others.Capacity(account.Links)-free)
		peers := []*peer{first, connect(t, s)}
		attach := func(i uint32) *wire.Detach {
			p := peers[i%2]
			p.send(&wire.Attach{Name: fmt.Sprint(i), Handle: i, Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{}})
			if a := expect[*wire.Attach](p); a.Source != nil {
				return nil
			}
			return expect[*wire.Detach](p)
		}
		for _, p := range peers {
			p.login()
		}
		links := uint32(0)
		refused := attach(0)
		for ; refused == nil && links < free; refused = attach(links) {
			links++
		}
		if links != free/2 {
			t.Fatalf("%d links were attached of %d that are free, want half", links, free)
		}
		if e := refused.Error; e.Condition != wire.ConditionResourceLimitExceeded || !strings.Contains(e.Description, "The key has 4 links") {
			t.Errorf("refused with %+v", e)
		}
		peers[0].send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](peers[0])
		if d := attach(links + 2); d != nil {
			t.Errorf("a link in the place of one that has ended: %+v", d.Error)
		}
		for _, p := range peers {
			_ = p.net.Close()
		}
		synctest.Wait()
		if n := all.Used(account.Links) - others.Held(account.Links); n != 0 {
			t.Errorf("%d links at the end", n)
		}
	})
}
