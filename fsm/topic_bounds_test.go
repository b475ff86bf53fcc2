package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// wide is a correlation filter of about so many bytes.
func wide(value string, size int) fsm.RuleFilter {
	return fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
		{Property: filter.Property{Name: "x"}, Value: filter.Text(value)},
		{Property: filter.Property{Name: strings.Repeat("n", 1000)}, Value: filter.Text(strings.Repeat("v", size))},
	}}
}

// longest is a rule of as many bytes as a rule may have, and not one more.
func longest(t *testing.T) fsm.Rule {
	t.Helper()
	r := fsm.Rule{Name: "l", Filter: sqlFilter("1 = 1")}
	for i := range 17 {
		r.Filter.SQL.Parameters = append(r.Filter.SQL.Parameters, filter.Parameter{Name: fmt.Sprintf("p%d", i), Value: filter.Text(strings.Repeat("v", 3900))})
	}
	last := &r.Filter.SQL.Parameters[16]
	for n := 4000; n > 0; n-- {
		last.Value = filter.Text(strings.Repeat("v", n))
		if r.Validate() == nil {
			return r
		}
	}
	t.Fatal("no rule is short enough")
	return r
}

// TestLongestRuleIsRestored: a rule that was accepted is accepted from an image too, where it has a
// time of creation. It used to be too long there, and no replica could be restored from the image.
func TestLongestRuleIsRestored(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.env.Now = 1_700_000_000_000
	b.subscribe(nil)
	b.must(fsm.PutRule{Subscription: 2, Rule: longest(t)})
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("the restored machine is another")
	}
	rules, _ := b.q.Rules(2, 1, 1)
	first := rules[0]
	c := catalog.New()
	for i, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "a", Partition: 1, Settings: fsm.DefaultSettings()},
		fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 1, Name: "a/Subscriptions/s", Settings: fsm.DefaultSettings(), Rule: &first},
	} {
		if res := c.Apply(oneTime(fsm.Env{Index: uint64(i + 1)}), fsm.AppendCommand(nil, fsm.Header{}, cmd)); res.Code != fsm.OK {
			t.Fatalf("%T: %v", cmd, res.Code)
		}
	}
	var image bytes.Buffer
	if _, err := c.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	if err := catalog.New().Restore(&image); err != nil {
		t.Error(err)
	}
}

// TestRulesOfATopicAreBoundedInBytes: the rules of a topic have 125 MiB together, correlation filters
// too: 100,000 of the longest would be 1.6 GiB.
func TestRulesOfATopicAreBoundedInBytes(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	m := newTopicBench([]fsm.Rule{{Name: "first"}, {Name: "first"}})
	put := func(i int) fsm.Code {
		return m.apply(fsm.PutRule{Subscription: 2 + fsm.EntityID(i%2), Rule: fsm.Rule{Name: fmt.Sprintf("r%06d", i), Filter: wide("1", 15_000)}}).Code
	}
	taken := 0
	for put(taken) == fsm.OK {
		taken++
	}
	if held := taken * 16_020; held < 120<<20 || held > 125<<20 {
		t.Errorf("%d rules were taken, about %d bytes", taken, held)
	}
	replaced := fsm.PutRule{Subscription: 2, Rule: fsm.Rule{Name: "r000000", Filter: wide("2", 15_000)}, Replace: true}
	if code := m.apply(replaced).Code; code != fsm.OK {
		t.Errorf("in the place of another: %v", code)
	}
	rule := fsm.Rule{Name: "big", Filter: wide("1", 15_000)}
	sub := fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 1, Rule: &rule}
	if code := m.apply(sub).Code; code != fsm.QuotaExceeded {
		t.Errorf("subscription with one more: %v", code)
	}
	var image bytes.Buffer
	if _, err := m.q.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	again := &bench{q: queue.New(&discardBodies{}), header: m.header, env: m.env}
	if err := again.q.Restore(&image); err != nil {
		t.Fatal(err)
	}
	for _, one := range []*bench{m, again} {
		if code := one.apply(sub).Code; code != fsm.QuotaExceeded {
			t.Errorf("as much as before: %v", code)
		}
		one.apply(fsm.DropEntity{Entity: 3}) // by an index made anew, having over 1,000
		if code := one.apply(sub).Code; code != fsm.OK {
			t.Errorf("in the room of a subscription: %v", code)
		}
	}
}

// TestPatchesOfOneMessageAreBounded: the patches of one message have 64 MiB. A small rule can make a
// copy of 40 KiB, so 2,000 would make 80 MiB of one message. What is behind fails as a filter does.
func TestPatchesOfOneMessageAreBounded(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.subscribe(nil, nil)
	for i := range 1999 {
		b.do(fsm.PutRule{Subscription: 2, Rule: fsm.Rule{Name: fmt.Sprint(i), Filter: sqlFilter("1 = 1"), Action: fsm.SQLText{Text: "SET a = b"}}})
	}
	properties := fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "b"}, Value: filter.Text(strings.Repeat("v", 40_000))}})
	b.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: properties}}})
	if got := b.counts(2).Active; got < 1650 || got > 1700 {
		t.Errorf("%d copies, want those that fit into 64 MiB", got)
	}
	if got := b.counts(3).Active; got != 1 {
		t.Errorf("the other subscription has %d", got)
	}
}
