package queue

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// total returns what all entities of a machine take, read in pages of two.
func total(q *Machine) (sum fsm.Usage) {
	for after, done := fsm.EntityID(0), false; !done; {
		after, done = q.EachUsage(after, 2, func(_ fsm.EntityID, u fsm.Usage) { sum.Add(u) })
	}
	return sum
}

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// wideRule is a rule with as many conditions as a filter can have.
func wideRule(i int) fsm.Rule {
	r := fsm.Rule{Name: fmt.Sprint("rule ", i), Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter}}
	for c := range filter.ConditionsMax {
		r.Filter.Conditions = append(r.Filter.Conditions, filter.Condition{Property: filter.Property{Name: fmt.Sprint("p", c)}, Value: filter.Text(fmt.Sprint(i, c))})
	}
	return r
}

// TestUsageIsWhatTheStateTakes: quotas of namespaces rest on this estimate. Whatever clients can store, the estimate is at
// least what the heap grows by, and not more than some times that.
//
//nolint:paralleltest // it measures the heap of the process
func TestUsageIsWhatTheStateTakes(t *testing.T) {
	const leastPercent, mostPercent = 90, 400
	const base = 192 << 10 // of a machine, with the chunks that it keeps for later
	entity := func(apply func(fsm.Instant, fsm.Command) fsm.Result, change func(*fsm.EntitySettings)) {
		s := fsm.DefaultSettings()
		s.MaxBytes = 80 << 30
		if change != nil {
			change(&s)
		}
		apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	}
	topic := func(apply func(fsm.Instant, fsm.Command) fsm.Result, rules int, rule func(i int) fsm.Rule) {
		apply(1, fsm.PutEntity{Entity: 1, Version: 1, Kind: fsm.TopicEntity, Settings: fsm.DefaultSettings()})
		apply(1, fsm.PutEntity{Entity: 2, Version: 1, Kind: fsm.SubscriptionEntity, Topic: 1, Settings: fsm.DefaultSettings()})
		for i := range rules {
			apply(1, fsm.PutRule{Subscription: 2, Rule: rule(i)})
		}
	}
	send := func(apply func(fsm.Instant, fsm.Command) fsm.Result, n int, message func(i int) fsm.Message) {
		for sent := 0; sent < n; sent += 4000 {
			list := make([]fsm.Message, min(4000, n-sent))
			for i := range list {
				list[i] = message(sent + i)
			}
			apply(1, fsm.SendMessages{Entity: 1, Messages: list})
		}
	}
	short := func(int) fsm.Message { return fsm.Message{Payload: []byte{1}} }
	for name, fill := range map[string]func(apply func(fsm.Instant, fsm.Command) fsm.Result){
		"messages of one byte": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			entity(apply, nil)
			send(apply, 100_000, short)
		},
		"remembered ids": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			entity(apply, func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true })
			send(apply, 70_000, func(i int) fsm.Message { return fsm.Message{ID: fmt.Sprint(i), Payload: []byte{1}} })
		},
		"sessions": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			entity(apply, func(s *fsm.EntitySettings) { s.RequiresSession = true })
			send(apply, 20_000, func(i int) fsm.Message {
				return fsm.Message{HasSession: true, Session: fmt.Sprint("session ", i), Payload: []byte{1}}
			})
		},
		"locks and patches": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			entity(apply, nil)
			send(apply, 40_000, short)
			at := fsm.Address{Entity: 1}
			lock := func() []fsm.Delivery {
				return apply(1, fsm.LockMessages{Address: at, Max: 4000, MaxBytes: 1 << 20}).Deliveries
			}
			for i, d := range slices.Concat(lock(), lock(), lock(), lock()) {
				verb := fsm.Defer
				if i%2 == 0 {
					verb = fsm.DeadLetter
				}
				apply(1, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: verb, Properties: []byte{1, 2, 3}}}})
			}
			_ = slices.Concat(lock(), lock(), lock(), lock())
		},
		"what is left of many messages": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			entity(apply, nil)
			at := fsm.Address{Entity: 1}
			for range 300 {
				send(apply, 1024, short)
				c := fsm.SettleMessages{Address: at}
				for _, d := range apply(1, fsm.LockMessages{Address: at, Max: 1023, MaxBytes: 1 << 20}).Deliveries {
					c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
				}
				apply(1, c)
				for _, d := range apply(1, fsm.LockMessages{Address: at, Max: 1, MaxBytes: 1 << 20}).Deliveries {
					apply(1, fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Defer}}})
				}
			}
		},
		"wide rules": func(apply func(fsm.Instant, fsm.Command) fsm.Result) { topic(apply, 400, wideRule) },
		"small rules": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			topic(apply, 5000, func(i int) fsm.Rule {
				return fsm.Rule{Name: fmt.Sprint(i), Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
					{Property: filter.Property{Name: "a"}, Value: filter.Text(fmt.Sprint(i))},
				}}}
			})
		},
		"SQL rules": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			topic(apply, 1000, func(i int) fsm.Rule {
				text := strings.TrimSuffix(strings.Repeat("a=1 OR ", 100), " OR ")
				return fsm.Rule{Name: fmt.Sprint(i), Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text}}}
			})
		},
		"entities": func(apply func(fsm.Instant, fsm.Command) fsm.Result) {
			for i := range 2000 {
				apply(1, fsm.PutEntity{Entity: fsm.EntityID(i + 1), Version: 1, Settings: fsm.DefaultSettings()})
			}
		},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			before := heapInUse()
			q := New(noBodies{})
			fill(testApply(q))
			grown := heapInUse() - before - base
			estimate := total(q)
			runtime.KeepAlive(q)
			t.Logf("%d bytes, estimated %d (%d %%) %+v", grown, estimate.MemoryBytes, estimate.MemoryBytes*100/grown, estimate)
			if want := (fsm.Usage{Sessions: map[string]uint64{"sessions": 20_000}[name], RememberedIDs: map[string]uint64{"remembered ids": 70_000}[name]}); estimate.RememberedIDs != want.RememberedIDs ||
				want.Sessions != 0 && estimate.Sessions != want.Sessions {
				t.Errorf("counted are %d sessions and %d remembered ids, want %d and %d", estimate.Sessions, estimate.RememberedIDs, want.Sessions, want.RememberedIDs)
			}
			if percent := estimate.MemoryBytes * 100 / grown; percent < leastPercent || percent > mostPercent {
				t.Errorf("the heap grew by %d bytes, estimated %d, want %d to %d %%", grown, estimate.MemoryBytes, leastPercent, mostPercent)
			}
		})
	}
}
