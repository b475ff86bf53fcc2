package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/filter"
)

// serviceSettings has every setting that has no effect, and the largest MaxDeliveryCount.
func serviceSettings() fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.MaxDeliveryCount = 1<<31 - 1
	s.BatchedOperations, s.Ordering = fsm.ChosenOff, fsm.ChosenOn
	s.ForwardTo, s.ForwardToBase = "audit", "https://bus.example.com/"
	s.ForwardDeadLettersTo, s.ForwardDeadLettersToBase = "dead/ends", "sb://bus.example.com/"
	return s
}

// typedRule has forms for every value.
func typedRule() fsm.Rule {
	rule := exampleRule()
	rule.Action.Parameters = []filter.Parameter{{Name: "b", Value: filter.Time(1)}, {Name: "a", Value: filter.Text("x")}}
	rule.Forms = []fsm.ValueForm{{Type: fsm.TypeLong}, {Type: fsm.TypeDateTime, Text: "1970-01-01T00:00:00.0010001Z"}, {}}
	return rule
}

// catalogWithTopic is a catalog with a topic.
func catalogWithTopic(t *testing.T) (c *catalog.Machine, do func(fsm.Command) fsm.Result) {
	t.Helper()
	c = catalog.New()
	env := fsm.Env{Now: 1_700_000_000_000}
	do = func(cmd fsm.Command) fsm.Result {
		env.Index++
		return c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, cmd))
	}
	for _, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "t", Partition: 1, Settings: fsm.DefaultSettings()},
	} {
		if res := do(cmd); res.Code != fsm.OK {
			t.Fatal(res.Code)
		}
	}
	return c, do
}

// The catalog stores what clients of the service write: settings without effect, names with a tilde, and the forms of
// values in rules.
func TestCatalogStoresWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	rule, deliveries := typedRule(), fsm.DefaultSettings()
	deliveries.MaxDeliveryCount = 2001
	c, do := catalogWithTopic(t)
	for i, cmd := range []fsm.CreateEntity{
		{Namespace: fsm.DefaultNamespace, Name: "a~b", Partition: 1, Settings: serviceSettings()},
		{Kind: fsm.SubscriptionEntity, Topic: 1, Name: "t/Subscriptions/s", Settings: serviceSettings(), Rule: &rule},
	} {
		res := do(cmd)
		e, _ := c.ByID(res.Entity)
		if res.Code != fsm.OK || e.Settings != cmd.Settings || cmp.Diff(cmd.Rule, e.Rule, sameValue) != "" {
			t.Errorf("%d: %v, %+v", i, res.Code, e)
		}
	}
	if res := do(fsm.UpdateEntity{Entity: 2, Settings: deliveries}); res.Code != fsm.OK {
		t.Error(res.Code)
	}
	var image bytes.Buffer
	if _, err := c.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	golden(t, "image-catalog-service", image.Bytes())
	restored := catalog.New()
	if err := restored.Restore(&image); err != nil || restored.Digest() != c.Digest() {
		t.Errorf("%v, %d, %d", err, restored.Digest(), c.Digest())
	}
}

// queuesWithTopic is a state machine with a queue, a topic and a subscription, whose clock runs by a second
// with each command.
func queuesWithTopic(t *testing.T) (r *replica, now func() fsm.Instant, do func(fsm.Command) fsm.Result) {
	t.Helper()
	r = newReplica(t)
	env := fsm.Env{Now: 1_700_000_000_000, Serving: 1_700_000_000_000}
	do = func(cmd fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		env.Serving += 1000
		return r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, cmd))
	}
	for _, cmd := range []fsm.Command{
		fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()},
		fsm.PutEntity{Entity: 2, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity},
		fsm.PutEntity{Entity: 3, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 2},
	} {
		if res := do(cmd); res.Code != fsm.OK {
			t.Fatal(res.Code)
		}
	}
	return r, func() fsm.Instant { return env.Now }, do
}

// The time of the last use is that of a send, a receive or a settlement, of a topic also that of a new subscription; a
// peek, a renewal and a change of settings are none.
func TestLastUseIsASendReceiveOrSettlement(t *testing.T) {
	t.Parallel()
	r, now, do := queuesWithTopic(t)
	used := map[fsm.EntityID]fsm.Instant{2: now()} // by the new subscription
	check := func(what string) {
		t.Helper()
		for _, at := range []*replica{r, r.restored()} {
			for id := fsm.EntityID(1); id <= 3; id++ {
				want := used[id]
				if c, _ := at.q.Counts(id); c.LastUse != want {
					t.Errorf("%s: entity %d was used at %d, want %d", what, id, c.LastUse, want)
				}
			}
		}
	}
	check("fresh")
	do(fsm.Touch{Entity: 1})
	do(fsm.PutEntity{Entity: 1, Version: 2, Settings: fsm.DefaultSettings()})
	check("peek and settings")
	do(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("x")}}})
	used[1] = now()
	do(fsm.SendMessages{Entity: 2, Messages: []fsm.Message{{Payload: []byte("x")}}})
	used[2] = now()
	check("send")
	for id := fsm.EntityID(1); id <= 3; id += 2 {
		at := fsm.Address{Entity: id}
		lock := do(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 100}).Deliveries[0].Lock
		used[id] = now()
		check("receive")
		do(fsm.RenewLocks{Address: at, Locks: []fsm.LockID{lock}})
		check("renew")
		do(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: lock, Verb: fsm.Complete, Properties: []byte{}}}})
		used[id] = now()
		check("settle")
		do(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 100})
		check("receive from an empty queue")
	}
}

// The counts of filters of a topic are those of all subscriptions; a filter that matches everything counts as SQL.
func TestFiltersOfATopicAreCounted(t *testing.T) {
	t.Parallel()
	r, _, do := queuesWithTopic(t)
	for i, f := range []fsm.RuleFilter{
		{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a = 1"}},
		{Kind: fsm.FalseFilter},
		{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{{Property: filter.Property{Name: "a"}, Value: filter.Int(1)}}},
	} {
		do(fsm.PutRule{Subscription: 3, Rule: fsm.Rule{Name: fmt.Sprint(i), Filter: f}})
	}
	if c, _ := r.q.Counts(2); c.SQLFilters != 3 || c.CorrelationFilters != 1 {
		t.Errorf("%+v", c)
	}
	if c, _ := r.q.Counts(3); c.SQLFilters != 0 || c.CorrelationFilters != 0 {
		t.Errorf("of a subscription: %+v", c)
	}
}

// Rules keep the forms of their values, and are listed by name.
func TestRulesKeepTheFormsOfTheirValues(t *testing.T) {
	t.Parallel()
	r, _, do := queuesWithTopic(t)
	want := typedRule()
	for _, name := range []string{"z", "M", "a"} {
		want.Name = name
		if res := do(fsm.PutRule{Subscription: 3, Rule: want}); res.Code != fsm.OK {
			t.Fatal(res.Code)
		}
	}
	golden(t, "image-queues-rules", r.image())
	do(fsm.DropRule{Subscription: 3, Name: "Z"})
	for _, at := range []*replica{r, r.restored()} {
		rules, _ := at.q.Rules(3, 0, 10)
		names := make([]string, len(rules))
		for i := range rules {
			names[i] = rules[i].Name
		}
		if diff := cmp.Diff([]string{"$Default", "a", "M"}, names); diff != "" {
			t.Fatal(diff)
		}
		if got := rules[1].Forms; cmp.Diff(want.Forms, got) != "" {
			t.Errorf("got the forms %+v, want %+v", got, want.Forms)
		}
		if page, _ := at.q.Rules(3, 1, 1); len(page) != 1 || page[0].Name != "a" {
			t.Errorf("got %+v, want the rule a", page)
		}
	}
}

// The formats of commands with settings without effect.
func TestFormatsOfSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	settings, rule := serviceSettings(), typedRule()
	topic := fsm.DefaultSettings()
	topic.Ordering = fsm.ChosenOn
	for _, c := range []fsm.Command{
		fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 299, Name: "orders/Subscriptions/a~b", Settings: settings, Rule: &rule},
		fsm.UpdateEntity{Entity: 300, Settings: topic},
		fsm.PutEntity{Entity: 300, Version: 7, Settings: settings, Kind: fsm.SubscriptionEntity, Topic: 299, Rule: &rule},
		fsm.PutRule{Subscription: 300, Rule: rule, Replace: true},
	} {
		b := fsm.AppendCommand(nil, header, c)
		golden(t, strings.ReplaceAll(fmt.Sprintf("command-%T-service", c), "fsm.", ""), b)
		_, got, err := fsm.DecodeCommand(b)
		if diff := cmp.Diff(c, got, sameValue); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
}

// Express is stored by queues, topics, and what they become in their partitions.
func TestExpressIsStored(t *testing.T) {
	t.Parallel()
	express := fsm.DefaultSettings()
	express.Express = true
	c, do := catalogWithTopic(t)
	res := do(fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: express})
	if e, _ := c.ByID(res.Entity); res.Code != fsm.OK || e.Settings != express {
		t.Errorf("created with %v: %+v, want %+v", res.Code, e.Settings, express)
	}
	if code := do(fsm.UpdateEntity{Entity: 1, Settings: express}).Code; code != fsm.OK {
		t.Errorf("the update is answered %v, want %v", code, fsm.OK)
	}
	if e, _ := c.ByID(1); e.Settings != express {
		t.Errorf("updated to %+v, want %+v", e.Settings, express)
	}
	b := fsm.AppendCommand(nil, header, fsm.PutEntity{Entity: 300, Version: 7, Settings: express})
	golden(t, "command-PutEntity-express", b)
}

// A MaxDeliveryCount above what the record of a message counts is stored and never reached.
func TestDeliveryCountsAboveTheRecordMeanNever(t *testing.T) {
	t.Parallel()
	for most, deadLettered := range map[uint32]uint64{65_535: 1, 65_536: 0, 1<<31 - 1: 0} {
		r, _, do := queuesWithTopic(t)
		settings := fsm.DefaultSettings()
		settings.MaxDeliveryCount = most
		do(fsm.PutEntity{Entity: 1, Version: 2, Settings: settings})
		do(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("x")}}})
		at := fsm.Address{Entity: 1}
		for range 65_540 {
			res := do(fsm.LockMessages{Address: at, Max: 1, MaxBytes: 100})
			if len(res.Deliveries) == 0 {
				break
			}
			do(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: res.Deliveries[0].Lock, Verb: fsm.Abandon, Properties: []byte{}}}})
		}
		if c, _ := r.q.Counts(1); c.DeadLetter != deadLettered || c.Active != 1-deadLettered {
			t.Errorf("%d deliveries: %+v", most, c)
		}
	}
}
