package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// worstRules returns sets of the most expensive rules: each text is used n times.
func worstRules() map[string]struct {
	n    int
	rule func(i int) fsm.Rule
} {
	sql := func(text string) func(int) fsm.Rule {
		return func(int) fsm.Rule { return fsm.Rule{Filter: sqlFilter(text)} }
	}
	like := "long LIKE '%" + strings.Repeat("_", 900) + "b%'" // the attack that was reported
	within := "long LIKE '%" + strings.Repeat("a", 31) + "b%'"
	numbers := "1" + strings.Repeat("+n", 500) + ">0"
	var twenty []filter.Condition
	for j := range 20 {
		twenty = append(twenty, filter.Condition{Property: filter.Property{Name: fmt.Sprint("c", j)}, Value: filter.Int(1)})
	}
	acting := fsm.Rule{Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: twenty}, Action: fsm.SQLText{Text: "SET a=1"}}
	return map[string]struct {
		n    int
		rule func(i int) fsm.Rule
	}{
		"like-900-of-200":  {200, sql(like)},
		"like-900-of-2000": {2000, sql(like)},
		"like-within":      {2000, sql(within)},
		"like-short":       {2000, sql("n=0" + strings.Repeat(" OR s LIKE '%_b%'", 60))},
		"in":               {2000, sql("n IN (0" + strings.Repeat(",0", 490) + ")")},
		"in-strings":       {2000, sql("long IN (also" + strings.Repeat(",also", 3) + ")")},
		"or":               {2000, sql("n=0" + strings.Repeat(" OR n=0", 140))},
		"arithmetic":       {2000, sql(numbers)},
		"nested":           {2000, sql(strings.Repeat("NOT ", 99) + strings.Repeat("(", 1) + "n=0" + strings.Repeat(")", 1))},
		"remainder":        {2000, sql("1e308" + strings.Repeat("%d", 200) + ">0")},
		"join":             {2000, sql("long+long=also OR long+s=also")},
		"decimals":         {2000, sql("''" + strings.Repeat("+d", 30) + "=''")},
		"names":            {2000, sql("p(s)=0" + strings.Repeat(" OR p(s)=0", 80))},
		"actions": {2000, func(int) fsm.Rule {
			return fsm.Rule{Filter: sqlFilter("n=1"), Action: fsm.SQLText{Text: strings.Repeat("SET a=s+d;", 15)}}
		}},
		"correlation":            {100_000, func(int) fsm.Rule { return fsm.Rule{Filter: acting.Filter} }},
		"correlation-20-actions": {100_000, func(int) fsm.Rule { return acting }},
		"all": {102_000, func(i int) fsm.Rule {
			if i < 2000 {
				return fsm.Rule{Filter: sqlFilter(numbers)}
			}
			return acting
		}},
		"correlation-actions": {100_000, func(int) fsm.Rule {
			return fsm.Rule{
				Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{{Property: filter.Property{Name: "n"}, Value: filter.Int(1)}}},
				Action: fsm.SQLText{Text: "SET a=1"},
			}
		}},
	}
}

// worstMessage has the properties that worstRules read.
func worstMessage() []byte {
	text := func(name, value string) fsm.Property {
		return fsm.Property{Name: filter.Property{Name: name}, Value: filter.Text(value)}
	}
	list := []fsm.Property{
		text("long", strings.Repeat("a", 30_000)), text("also", strings.Repeat("a", 29_999)+"b"), text("s", strings.Repeat("a", 60)),
		{Name: filter.Property{Name: "n"}, Value: filter.Int(1)},
		{Name: filter.Property{Name: "d"}, Value: filter.Double(1.2345678901234e-300)},
	}
	for j := range 20 {
		list = append(list, fsm.Property{Name: filter.Property{Name: fmt.Sprint("c", j)}, Value: filter.Int(1)})
	}
	return fsm.AppendProperties(nil, list)
}

// BenchmarkPublishWorstFilters measures how long an entry with ten messages, and each pulse that
// publishes the rest, holds the lock of a group: the longest of them is the delay for others. It
// reports the median and the minimum of the iterations, which other work on the machine affects less.
func BenchmarkPublishWorstFilters(b *testing.B) {
	for name, worst := range worstRules() {
		b.Run(name, func(b *testing.B) {
			m := newTopicBenchOn(&keptBodies{}, []fsm.Rule{{Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}, Name: "first"}})
			m.apply(fsm.PutEntity{Entity: 3, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 1})
			for i := range worst.n - 2*(worst.n/2000)%3 {
				rule := worst.rule(i)
				rule.Name = fmt.Sprint("r", i)
				if res := m.apply(fsm.PutRule{Subscription: fsm.EntityID(2 + i%2), Rule: rule}); res.Code != fsm.OK && res.Code != fsm.QuotaExceeded {
					b.Fatalf("rule %d: %v", i, res.Code)
				}
			}
			send := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 10)}
			for i := range send.Messages {
				send.Messages[i].Properties = worstMessage()
			}
			var longest time.Duration // of one iteration
			var each []time.Duration
			most := uint64(0)
			entry := func(c fsm.Command) {
				began := time.Now()
				m.apply(c)
				longest, most = max(longest, time.Since(began)), max(most, m.q.Steps())
			}
			for b.Loop() {
				longest = 0
				entry(send)
				for at, ok := firstDeadline(m.q); ok && at <= m.env.Now; at, ok = firstDeadline(m.q) {
					entry(fsm.Pulse{})
				}
				each = append(each, longest)
			}
			slices.Sort(each)
			b.ReportMetric(float64(each[len(each)/2].Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(each[0].Microseconds())/1000, "least-ms")
			b.ReportMetric(float64(most), "most-steps")
		})
	}
}
