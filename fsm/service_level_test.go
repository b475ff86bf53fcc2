package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// serviceSettings has every setting that needs format level 4.
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

// catalogAt is a catalog of a format level, with a topic.
func catalogAt(t *testing.T, level uint32) (c *fsm.Catalog, do func(fsm.Command) fsm.Result) {
	t.Helper()
	c = fsm.NewCatalog()
	env := fsm.Env{Now: 1_700_000_000_000}
	do = func(cmd fsm.Command) fsm.Result {
		env.Index++
		return c.Apply(env, fsm.AppendCommand(nil, fsm.Header{}, cmd))
	}
	for _, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "t", Partition: 1, Settings: fsm.DefaultSettings()},
		fsm.RaiseLevel{Level: level},
	} {
		if res := do(cmd); res.Code != fsm.OK {
			t.Fatal(res.Code)
		}
	}
	return c, do
}

// While some members know only format level 3, the catalog refuses what they cannot read, in each of its forms; from the
// entry on that raises the level it takes it.
func TestSettingsOfTheServiceWaitForTheLevel(t *testing.T) {
	t.Parallel()
	hints, deliveries := serviceSettings(), fsm.DefaultSettings()
	hints.MaxDeliveryCount = 10
	deliveries.MaxDeliveryCount = 2001
	rule := typedRule()
	for level := uint32(1); level < 4; level++ {
		c, do := catalogAt(t, level)
		for name, cmd := range map[string]fsm.Command{
			"hints":      fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: hints},
			"deliveries": fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: deliveries},
			"name":       fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "a~b", Partition: 1, Settings: fsm.DefaultSettings()},
			"rule":       fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: 1, Name: "t/Subscriptions/s", Settings: fsm.DefaultSettings(), Rule: &rule},
			"update":     fsm.UpdateEntity{Entity: 1, Settings: deliveries},
		} {
			before := c.Digest()
			if res := do(cmd); res.Code != fsm.InvalidArgument || c.Digest() != before {
				t.Errorf("%s at level %d: %v", name, level, res.Code)
			}
		}
		if plain := hints.AtLevel(level); plain.Level() > level || plain.ForwardTo != hints.ForwardTo {
			t.Errorf("at level %d: %+v", level, plain)
		}
		if plain := rule.AtLevel(level); plain.Forms != nil {
			t.Errorf("at level %d: %+v", level, plain)
		}
	}
	c, do := catalogAt(t, 3)
	do(fsm.RaiseLevel{Level: 4})
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
	golden(t, "image-v6-catalog", image.Bytes())
	restored := fsm.NewCatalog()
	if err := restored.Restore(&image); err != nil || restored.Digest() != c.Digest() {
		t.Errorf("%v, %d, %d", err, restored.Digest(), c.Digest())
	}
}

// queuesAt is a state machine of a format level with a queue, a topic and a subscription, whose clock runs by a second
// with each command.
func queuesAt(t *testing.T, level uint32) (r *replica, now func() fsm.Instant, do func(fsm.Command) fsm.Result) {
	t.Helper()
	r = newReplica(t)
	env := fsm.Env{Now: 1_700_000_000_000, Serving: 1_700_000_000_000}
	do = func(cmd fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		env.Serving += 1000
		return r.q.Apply(env, fsm.AppendCommand(nil, fsm.Header{}, cmd))
	}
	for _, cmd := range []fsm.Command{
		fsm.RaiseLevel{Level: level},
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
// peek, a renewal and a change of settings are none. Below format level 4 it is not recorded.
func TestLastUseIsASendReceiveOrSettlement(t *testing.T) {
	t.Parallel()
	for _, level := range []uint32{3, 4} {
		r, now, do := queuesAt(t, level)
		used := map[fsm.EntityID]fsm.Instant{2: now()} // by the new subscription
		check := func(what string) {
			t.Helper()
			for _, at := range []*replica{r, r.restored()} {
				for id := fsm.EntityID(1); id <= 3; id++ {
					want := used[id]
					if level < 4 {
						want = 0
					}
					if c, _ := at.q.Counts(id); c.LastUse != want {
						t.Errorf("level %d: %s: entity %d was used at %d, want %d", level, what, id, c.LastUse, want)
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
}

// The counts of filters of a topic are those of all subscriptions; a filter that matches everything counts as SQL.
func TestFiltersOfATopicAreCounted(t *testing.T) {
	t.Parallel()
	r, _, do := queuesAt(t, 4)
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

// Rules keep the forms of their values from format level 4 on, and are listed by name.
func TestRulesKeepTheFormsOfTheirValues(t *testing.T) {
	t.Parallel()
	for _, level := range []uint32{3, 4} {
		r, _, do := queuesAt(t, level)
		want := typedRule()
		for _, name := range []string{"z", "M", "a"} {
			want.Name = name
			if res := do(fsm.PutRule{Subscription: 3, Rule: want}); res.Code != fsm.OK {
				t.Fatal(res.Code)
			}
		}
		if level == 4 {
			golden(t, "image-v6-queues", r.image())
		}
		do(fsm.DropRule{Subscription: 3, Name: "Z"})
		for _, at := range []*replica{r, r.restored()} {
			rules, _ := at.q.Rules(3, 0, 10)
			names := make([]string, len(rules))
			for i := range rules {
				names[i] = rules[i].Name
			}
			if diff := cmp.Diff([]string{"$Default", "a", "M"}, names); diff != "" {
				t.Fatalf("level %d: %s", level, diff)
			}
			if got := rules[1].Forms; level == 4 && cmp.Diff(want.Forms, got) != "" || level < 4 && got != nil {
				t.Errorf("level %d: %+v", level, got)
			}
			if page, _ := at.q.Rules(3, 1, 1); len(page) != 1 || page[0].Name != "a" {
				t.Errorf("level %d: %+v", level, page)
			}
		}
	}
}

// The formats of level 4.
func TestServiceFormatsNeverChange(t *testing.T) {
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
		golden(t, strings.ReplaceAll(fmt.Sprintf("command-v4-%T-service", c), "fsm.", ""), b)
		_, got, err := fsm.DecodeCommand(b)
		if diff := cmp.Diff(c, got, sameValue); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
}

// Express is stored from format level 6 on, by queues, topics, and what they become in their partitions; its encoding
// never changes, and settings without it have another one.
func TestExpressWaitsForItsLevel(t *testing.T) {
	t.Parallel()
	express := fsm.DefaultSettings()
	express.Express = true
	create := fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: express}
	for level := uint32(4); level < 6; level++ {
		c, do := catalogAt(t, level)
		before := c.Digest()
		for _, cmd := range []fsm.Command{create, fsm.UpdateEntity{Entity: 1, Settings: express}} {
			if res := do(cmd); res.Code != fsm.InvalidArgument || c.Digest() != before {
				t.Errorf("%T at level %d: %v", cmd, level, res.Code)
			}
		}
		if express.AtLevel(level) != fsm.DefaultSettings() {
			t.Errorf("at level %d: %+v", level, express.AtLevel(level))
		}
	}
	c, do := catalogAt(t, 6)
	res := do(create)
	if e, _ := c.ByID(res.Entity); res.Code != fsm.OK || !e.Settings.Express || express.AtLevel(6) != express {
		t.Errorf("%v, %+v", res.Code, e.Settings)
	}
	var image bytes.Buffer
	if _, err := c.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	golden(t, "image-v6-catalog-express", image.Bytes())
	restored := fsm.NewCatalog()
	if err := restored.Restore(&image); err != nil || restored.Digest() != c.Digest() {
		t.Errorf("%v, %d, %d", err, restored.Digest(), c.Digest())
	}
	for _, c := range []fsm.Command{create, fsm.UpdateEntity{Entity: 300, Settings: express}, fsm.PutEntity{Entity: 300, Version: 7, Settings: express}} {
		b := fsm.AppendCommand(nil, header, c)
		golden(t, strings.ReplaceAll(fmt.Sprintf("command-v4-%T-express", c), "fsm.", ""), b)
		if _, got, err := fsm.DecodeCommand(b); err != nil || cmp.Diff(c, got) != "" {
			t.Errorf("%v %s", err, cmp.Diff(c, got))
		}
	}
	b := fsm.AppendCommand(nil, header, fsm.UpdateEntity{Entity: 300, Settings: express})
	b[len(b)-1] = 0
	if _, _, err := fsm.DecodeCommand(b); err == nil {
		t.Error("settings without Express have a second encoding")
	}
}

// Settings and rules have one encoding: what could be written in the older form is refused in the newer one.
func TestLevel4FormsWithoutContentAreRefused(t *testing.T) {
	t.Parallel()
	plain := fsm.AppendCommand(nil, header, fsm.UpdateEntity{Entity: 300, Settings: fsm.DefaultSettings()})
	settings := fsm.DefaultSettings()
	settings.Ordering = fsm.ChosenOn
	given := fsm.AppendCommand(nil, header, fsm.UpdateEntity{Entity: 300, Settings: settings})
	given[len(given)-3] = 0 // two texts follow
	if _, _, err := fsm.DecodeCommand(given); err == nil || len(given) != len(plain)+4 {
		t.Errorf("%v, %d bytes, %d", err, len(given), len(plain))
	}
	rule := exampleRule()
	bare := fsm.AppendCommand(nil, header, fsm.PutRule{Subscription: 300, Rule: rule})
	rule.Forms = []fsm.ValueForm{{Type: fsm.TypeLong}}
	typed := fsm.AppendCommand(nil, header, fsm.PutRule{Subscription: 300, Rule: rule})
	if len(typed) != len(bare)+3 {
		t.Fatal(len(typed), len(bare))
	}
	if _, _, err := fsm.DecodeCommand(append(typed[:len(bare):len(bare)], 0)); err == nil {
		t.Error("a rule without forms has a second encoding")
	}
}

// A MaxDeliveryCount above what the record of a message counts is stored and never reached.
func TestDeliveryCountsAboveTheRecordMeanNever(t *testing.T) {
	t.Parallel()
	for most, deadLettered := range map[uint32]uint64{65_535: 1, 65_536: 0, 1<<31 - 1: 0} {
		r, _, do := queuesAt(t, 4)
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
