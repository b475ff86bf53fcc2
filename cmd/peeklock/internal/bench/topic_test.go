package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/kit"
)

// Each copy of a message is classified on its own.
func TestLedgerCountsCopies(t *testing.T) {
	t.Parallel()
	l := newDeliveryLedger(7, 1, 3, false)
	l.tracks[0].attempted.Store(2)
	l.tracks[0].confirmed.set(0)
	l.tracks[0].confirmed.set(1)
	at := func(counter uint64) messageHeader { return messageHeader{run: 7, counter: counter} }
	for c := range 3 {
		if v, _ := l.recordDelivery(at(0), c, false); v != firstDelivery {
			t.Errorf("copy %d: verdict %d", c, v)
		}
	}
	_, f := l.recordDelivery(at(1), 2, false)
	f.settled.set(1)
	if v, _ := l.recordDelivery(at(1), 2, false); v != duplicated {
		t.Errorf("settled and again: verdict %d", v)
	}
	if v, _ := l.recordDelivery(at(1), 1, false); v != firstDelivery {
		t.Errorf("another copy: verdict %d", v)
	}
	if got := l.lost(); got != 1 {
		t.Errorf("%d copies lost, want 1", got)
	}
}

// The rules are distributed so that exactly the subscriptions with receivers match the messages, as the filter
// package of the broker evaluates them.
func TestBenchRulesMatchTheGivenNumber(t *testing.T) {
	t.Parallel()
	for _, b := range []benchTopic{
		{subscriptions: 1, sqlRules: 1000, matching: 10},
		{subscriptions: 10, sqlRules: 10, matching: 3},
		{subscriptions: 4, sqlRules: 9, matching: 6},
		{subscriptions: 3, correlationRules: 7, matching: 1},
		{subscriptions: 5, sqlRules: 5, correlationRules: 11, matching: 5},
	} {
		kit.OK(t, b.check(1))
		m := new(amqp.Message)
		b.setProperties(m)
		seen := sentMessage{m}
		takers := make(map[int]bool)
		for i := range b.rules() {
			rule := b.correlationRule
			at := i - b.sqlRules
			if i < b.sqlRules {
				rule, at = b.sqlRule, i
			}
			if benchTakes(t, rule(at), seen) {
				takers[at%b.subscriptions] = true
			}
		}
		if len(takers) != b.copies() {
			t.Errorf("%+v: %d subscriptions take a message, want %d", b, len(takers), b.copies())
		}
		for i := range b.copies() {
			if !takers[i] {
				t.Errorf("%+v: subscription %d takes nothing", b, i)
			}
		}
		for i := range b.subscriptions {
			if b.firstRule(i) == nil {
				t.Errorf("%+v: subscription %d would take everything", b, i)
			}
		}
	}
}

// sentMessage is a message of the load generator in the form that filters evaluate.
type sentMessage struct{ *amqp.Message }

func (m sentMessage) System(name string) filter.Value {
	if name == filter.Label && m.Properties != nil && m.Properties.Subject != nil {
		return filter.Text(*m.Properties.Subject)
	}
	return filter.Value{}
}

func (m sentMessage) User(folded string) (filter.Value, bool) {
	switch value := m.ApplicationProperties[folded].(type) {
	case int64:
		return filter.Int(value), true
	case string:
		return filter.Text(value), true
	}
	return filter.Value{}, false
}

func (sentMessage) NewID(int) filter.GUID { return filter.GUID{} }

func benchTakes(t *testing.T, r entity.Rule, m sentMessage) bool {
	t.Helper()
	if r.Filter.Kind == entity.FilterSQL {
		expr := kit.Must(filter.Parse(r.Filter.Expression, nil))(t)
		truth := kit.Must(expr.Match(m))(t)
		return truth == filter.True
	}
	correlation := kit.Must(filter.NewCorrelation([]filter.Condition{
		{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: r.Filter.Conditions["sys.Label"].Value},
		{Property: filter.Property{Name: "customer"}, Value: r.Filter.Conditions["customer"].Value},
	}))(t)
	return correlation.Match(m)
}

func TestParallelStopsAtAnError(t *testing.T) {
	t.Parallel()
	var done atomic.Int32
	if err := parallel(t.Context(), 1000, func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 1000 {
		t.Error(err, done.Load())
	}
	wrong := errors.New("wrong")
	err := parallel(t.Context(), 1_000_000, func(_ context.Context, i int) error {
		if i == 100 {
			return wrong
		}
		done.Add(1)
		return nil
	})
	if !errors.Is(err, wrong) || done.Load() > 500_000 {
		t.Error(err, done.Load())
	}
	if err := parallel(t.Context(), 0, nil); err != nil {
		t.Error(err)
	}
}
