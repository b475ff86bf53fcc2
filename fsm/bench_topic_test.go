package fsm_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// newTopicBench is a state machine with topic 1 and subscriptions from 2 on, one for each rule.
func newTopicBench(rules []fsm.Rule) *bench { return newTopicBenchOn(&discardBodies{}, rules) }

func newTopicBenchOn(bodies fsm.Bodies, rules []fsm.Rule) *bench {
	b := &bench{q: queue.New(bodies), header: fsm.Header{Incarnation: 1}}
	s := fsm.DefaultSettings()
	s.MaxBytes = 80 << 30
	b.apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: s, Kind: fsm.TopicEntity})
	for i := range rules {
		b.apply(fsm.PutEntity{
			Entity: fsm.EntityID(i + 2), Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 1, Rule: &rules[i],
		})
	}
	return b
}

// order is what a shop says of an order: the properties of a usual message.
func order(customer int) []byte {
	text := func(name, value string, scope filter.Scope) fsm.Property {
		return fsm.Property{Name: filter.Property{Name: name, Scope: scope}, Value: filter.Text(value)}
	}
	return fsm.AppendProperties(nil, []fsm.Property{
		text(filter.MessageID, "0123456789abcdef", filter.System),
		text(filter.Label, "order", filter.System),
		text(filter.ContentType, "application/json", filter.System),
		text("region", "eu", filter.User),
		text("customerId", fmt.Sprintf("customer-%d", customer), filter.User),
		{Name: filter.Property{Name: "amount"}, Value: filter.Int(int64(customer))},
	})
}

func (b *bench) publishes(name string, bb *testing.B, make func() *bench, copies int) {
	bb.Run(name, func(bb *testing.B) {
		bb.ReportAllocs()
		m := make()
		send := sendOf(batch)
		for i := range send.Messages {
			send.Messages[i].Properties = order(i)
		}
		const most = 1 << 20 // copies that exist at a time
		bb.ResetTimer()
		for i, held := 0, 0; i < bb.N; i += batch {
			if held += copies * batch; held > most {
				bb.StopTimer()
				m, held = make(), copies*batch
				bb.StartTimer()
			}
			m.apply(send)
		}
	})
}

// BenchmarkPublish measures one message of a send of 64 to a topic whose subscriptions all match.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{0, 1, 10, 100} {
		(&bench{}).publishes(fmt.Sprintf("subscriptions=%d", n), b, func() *bench {
			rules := make([]fsm.Rule, n)
			for i := range rules {
				rules[i].Name = fsm.DefaultRuleName
			}
			return newTopicBench(rules)
		}, n)
	}
}

// BenchmarkPublishSQL: 1,000 subscriptions with SQL filters, 10 of which match.
func BenchmarkPublishSQL(b *testing.B) {
	rules := make([]fsm.Rule, 1000)
	for i := range rules {
		least := 1_000_000 + i
		if i%100 == 0 {
			least = 0
		}
		rules[i] = fsm.Rule{Name: "r", Filter: sqlFilter(fmt.Sprintf("region = 'eu' AND amount >= %d", least))}
	}
	(&bench{}).publishes("1000", b, func() *bench { return newTopicBench(rules) }, 10)
}

// BenchmarkPublishCorrelation: 100,000 correlation filters in 100 subscriptions, one of which
// matches.
func BenchmarkPublishCorrelation(b *testing.B) {
	(&bench{}).publishes("100000", b, func() *bench {
		m := newTopicBench(make100())
		for i := range 100_000 - 100 {
			m.apply(fsm.PutRule{Subscription: fsm.EntityID(2 + i%100), Rule: fsm.Rule{
				Name: fmt.Sprintf("r%d", i), Filter: customerFilter(i),
			}})
		}
		return m
	}, 1)
}

func make100() []fsm.Rule {
	rules := make([]fsm.Rule, 100)
	for i := range rules {
		rules[i] = fsm.Rule{Name: "first", Filter: customerFilter(1_000_000 + i)}
	}
	return rules
}

func customerFilter(customer int) fsm.RuleFilter {
	return fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
		{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: filter.Text("order")},
		{Property: filter.Property{Name: "customerId"}, Value: filter.Text(fmt.Sprintf("customer-%d", customer))},
	}}
}

// BenchmarkPublishAction: one subscription whose rule changes two properties.
func BenchmarkPublishAction(b *testing.B) {
	rule := fsm.Rule{Name: "r", Action: fsm.SQLText{Text: "SET amount = amount * 2; SET sys.Label = 'changed'"}}
	(&bench{}).publishes("1", b, func() *bench { return newTopicBench([]fsm.Rule{rule}) }, 1)
}

// BenchmarkDropSubscription measures how long dropping a subscription with a million copies blocks
// the state machine: while another one shares the bodies, and as the last one.
func BenchmarkDropSubscription(b *testing.B) {
	for _, others := range []int{1, 0} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				rules := []fsm.Rule{{Name: "r"}, {Name: "r"}}
				m := newTopicBench(rules[:1+others])
				m.fill(kit.Size(1_000_000))
				b.StartTimer()
				start := time.Now()
				m.apply(fsm.DropEntity{Entity: 2})
				b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "stall-ms")
			}
		})
	}
}

// TestCopiesCostNoMoreIndexThanMessages: a copy costs no more index than a message of a queue, and
// the message that they share costs that once.
func TestCopiesCostNoMoreIndexThanMessages(t *testing.T) {
	const messages, subscriptions = 200_000, 5
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	m := newTopicBench([]fsm.Rule{{Name: "r"}, {Name: "r"}, {Name: "r"}, {Name: "r"}, {Name: "r"}})
	before := heap()
	m.fill(messages)
	perCopy := float64(heap()-before) / messages / subscriptions
	t.Logf("%.1f bytes a copy, the topic's part included", perCopy)
	if perCopy > 64 {
		t.Errorf("a copy takes %.1f bytes of index, more than 64", perCopy)
	}
	runtime.KeepAlive(m)
}

// TestPublishAllocatesPerMatch: a subscription that does not match costs no allocation.
func TestPublishAllocatesPerMatch(t *testing.T) { // not parallel: it counts allocations
	allocs := func(subscriptions int) float64 {
		rules := make([]fsm.Rule, subscriptions)
		for i := range rules {
			rules[i] = fsm.Rule{Name: "r", Filter: sqlFilter("amount > 1000000")}
			if i%2 == 0 {
				rules[i].Filter = customerFilter(1_000_000 + i)
			}
		}
		m := newTopicBench(rules)
		send := sendOf(1)
		send.Messages[0].Properties = order(1)
		return testing.AllocsPerRun(200, func() { m.apply(send) })
	}
	if few, many := allocs(4), allocs(200); many > few {
		t.Errorf("%v allocations with 4 subscriptions, %v with 200", few, many)
	}
}
