package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// TestSubscriptionsOfATopicAreLimited: 2,000 work, one more is refused, and another topic accepts some.
func TestSubscriptionsOfATopicAreLimited(t *testing.T) {
	t.Parallel()
	c := catalog.New()
	index := uint64(0)
	apply := func(cmd fsm.Command) fsm.Code {
		index++
		return c.Apply(oneTime(fsm.Env{Index: index}), fsm.AppendCommand(nil, fsm.Header{}, cmd)).Code
	}
	for _, cmd := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "a", Partition: 1, Settings: fsm.DefaultSettings()},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Kind: fsm.TopicEntity, Name: "b", Partition: 1, Settings: fsm.DefaultSettings()},
	} {
		if code := apply(cmd); code != fsm.OK {
			t.Fatalf("%T: %v", cmd, code)
		}
	}
	subscribe := func(topic fsm.EntityID, name string) fsm.Code {
		return apply(fsm.CreateEntity{Kind: fsm.SubscriptionEntity, Topic: topic, Name: name, Settings: fsm.DefaultSettings()})
	}
	for i := range 2000 {
		if code := subscribe(1, fsm.SubscriptionPath("a", fmt.Sprintf("s%d", i))); code != fsm.OK {
			t.Fatalf("subscription %d: %v", i, code)
		}
	}
	if code := subscribe(1, "a/Subscriptions/more"); code != fsm.QuotaExceeded {
		t.Errorf("subscription 2001: %v", code)
	}
	if code := subscribe(2, "b/Subscriptions/more"); code != fsm.OK {
		t.Errorf("of another topic: %v", code)
	}
	if n := len(c.List(fsm.DefaultNamespace, fsm.SubscriptionEntity, 1, "", 5000)); n != 2000 {
		t.Errorf("%d are listed", n)
	}
}

// TestRulesOfATopicAreLimited: the limits apply to all subscriptions of a topic together, by kind,
// and a rule that replaces another counts instead of it.
func TestRulesOfATopicAreLimited(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	m := newTopicBench([]fsm.Rule{{Name: "first"}, {Name: "first"}})
	put := func(subscription fsm.EntityID, name string, f fsm.RuleFilter, replace bool) fsm.Code {
		return m.apply(fsm.PutRule{Subscription: subscription, Rule: fsm.Rule{Name: name, Filter: f}, Replace: replace}).Code
	}
	want := func(what string, got, want fsm.Code) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for i := range 1998 {
		if code := put(2, fmt.Sprintf("r%d", i), fsm.RuleFilter{Kind: fsm.FalseFilter}, false); code != fsm.OK {
			t.Fatal(i, code)
		}
	}
	want("rule 2,001", put(3, "more", sqlFilter("a = 1"), false), fsm.QuotaExceeded)
	want("rule in the place of another", put(3, "first", sqlFilter("a = 1"), true), fsm.OK)
	for i := range 100_000 {
		if code := put(3, fmt.Sprintf("c%d", i), customerFilter(i), false); code != fsm.OK {
			t.Fatal(i, code)
		}
	}
	want("correlation filter 100,001", put(2, "more", customerFilter(1), false), fsm.QuotaExceeded)
	want("correlation filter in the place of one", put(3, "c5", customerFilter(1), true), fsm.OK)
	want("SQL filter in the place of a correlation filter", put(3, "c5", sqlFilter("a = 1"), true), fsm.QuotaExceeded)
	want("correlation filter in the place of an SQL filter", put(3, "first", customerFilter(1), true), fsm.QuotaExceeded)
	sub := fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 1}
	want("subscription with one more", m.apply(sub).Code, fsm.QuotaExceeded)
	rules, _ := m.q.Rules(3, 100_000, 10)
	if len(rules) != 1 || rules[0].Name != "first" { // by name
		t.Errorf("the last rules are %v", rules)
	}
	want("drop", m.apply(fsm.DropRule{Subscription: 2, Name: "R7"}).Code, fsm.OK)
	want("subscription in its place", m.apply(sub).Code, fsm.OK)

	var image bytes.Buffer
	if _, err := m.q.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	again := queue.New(&discardBodies{})
	if err := again.Restore(&image); err != nil || again.Digest() != m.q.Digest() {
		t.Errorf("the restored machine is another: %v", err)
	}
	want("drop of a subscription with 100,000 rules", m.apply(fsm.DropEntity{Entity: 3}).Code, fsm.OK)
	want("one in place of it", put(2, "more", customerFilter(1), false), fsm.OK)
}

// TestInvalidRulesAreExplained: what is wrong is said, with the place.
func TestInvalidRulesAreExplained(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("n", n) }
	condition := func(name, value string) filter.Condition {
		return filter.Condition{Property: filter.Property{Name: name}, Value: filter.Text(value)}
	}
	correlation := func(list ...filter.Condition) fsm.RuleFilter {
		return fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: list}
	}
	parameters := func(n, size int) (list []filter.Parameter) {
		for i := range n {
			list = append(list, filter.Parameter{Name: fmt.Sprintf("p%d", i), Value: filter.Text(text(size))})
		}
		return list
	}
	for _, c := range []struct {
		rule fsm.Rule
		want string // "" for valid
	}{
		{fsm.Rule{Name: text(50)}, ""},
		{fsm.Rule{Name: strings.Repeat("ü", 50)}, ""},
		{fsm.Rule{Name: text(51)}, "name of 51 characters"},
		{fsm.Rule{}, "name of 0 characters"},
		{fsm.Rule{Name: "a\n"}, "control character"},
		{fsm.Rule{Name: "a\xff"}, "UTF-8"},
		{fsm.Rule{Name: "a", Filter: sqlFilter("a = ")}, "filter: character 5: expected"},
		{fsm.Rule{Name: "a", Filter: sqlFilter("")}, "filter: character 1"},
		{fsm.Rule{Name: "a", Filter: sqlFilter("a = '" + text(1019) + "'")}, "character 1025"},
		{fsm.Rule{Name: "a", Filter: sqlFilter("a = @b")}, "@b"},
		{fsm.Rule{Name: "a", Filter: sqlFilter("a = '\xff'")}, "UTF-8"},
		{fsm.Rule{Name: "a", Action: fsm.SQLText{Text: "SET a"}}, "action: character"},
		{fsm.Rule{Name: "a", Action: fsm.SQLText{Text: "REMOVE a"}}, ""},
		{fsm.Rule{Name: "a", Action: fsm.SQLText{Parameters: parameters(1, 1)}}, "no action"},
		{fsm.Rule{Name: "a", Filter: fsm.RuleFilter{SQL: fsm.SQLText{Text: "1 = 1"}}}, "SQL filter only"},
		{fsm.Rule{Name: "a", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "1 = 1"}, Conditions: []filter.Condition{{}}}}, "correlation filter only"},
		{fsm.Rule{Name: "a", Filter: fsm.RuleFilter{Kind: 4}}, "unknown kind 4"},
		{fsm.Rule{Name: "a", Filter: correlation()}, ""},
		{fsm.Rule{Name: "a", Filter: correlation(condition("x", "1"))}, ""},
		{fsm.Rule{Name: "a", Filter: correlation(condition("x", "1"), condition("X", "2"))}, "twice"},
		{fsm.Rule{Name: "a", Filter: correlation(condition("x\xff", "1"))}, "UTF-8"},
		{fsm.Rule{Name: "a", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "1 = 1", Parameters: parameters(15, 4000)}}}, ""},
		{fsm.Rule{Name: "a", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "1 = 1", Parameters: parameters(17, 4000)}}}, "at most 65536 allowed"},
	} {
		err := c.rule.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.rule, err)
		case c.want == "":
		case err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, fsm.InvalidArgument):
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
		want := fsm.OK
		if c.want != "" {
			want = fsm.InvalidArgument
		}
		if got := fsm.Check(fsm.PutRule{Subscription: 1, Rule: c.rule}); got != want {
			t.Errorf("%+v: %v", c.rule, got)
		}
	}
}

// TestSubscriptionPathsAreChecked: what is one, and how long names may be.
func TestSubscriptionPathsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, topic, subscription string
		ok                        bool
	}{
		{"a/Subscriptions/b", "a", "b", true},
		{"a/b/SUBSCRIPTIONS/c", "a/b", "c", true},
		{"a/subscriptions/b/subscriptions/c", "a", "b/subscriptions/c", true},
		{"a/subscriptions/", "", "", false},
		{"a/subscriptions", "", "", false},
		{"/subscriptions/b", "", "", false},
		{"subscriptions/b", "", "", false},
		{"a/subscriptionsx/b", "", "", false},
		{"", "", "", false},
	} {
		topic, subscription, ok := fsm.SplitSubscriptionPath(c.path)
		if ok != c.ok || ok && (topic != c.topic || subscription != c.subscription) {
			t.Errorf("%q is %q, %q, %v", c.path, topic, subscription, ok)
		}
	}
	name := func(n int) string { return strings.Repeat("n", n) }
	for _, c := range []struct {
		topic, subscription int
		valid               bool
	}{{260, 50, true}, {261, 50, false}, {260, 51, false}} {
		code := fsm.Check(fsm.CreateEntity{
			Kind: fsm.SubscriptionEntity, Topic: 1, Name: fsm.SubscriptionPath(name(c.topic), name(c.subscription)), Settings: fsm.DefaultSettings(),
		})
		if (code == fsm.OK) != c.valid {
			t.Errorf("%d and %d characters: %v", c.topic, c.subscription, code)
		}
	}
}

// exampleProperties is one property of every kind.
func exampleProperties() []fsm.Property {
	values := []filter.Value{
		{}, filter.Bool(true), filter.Int(-5), filter.Double(0.5), filter.Text("t"), filter.Time(9), filter.ID(filter.GUID{1}), filter.Binary([]byte{0}),
	}
	var list []fsm.Property
	for i, v := range values {
		list = append(list, fsm.Property{Name: filter.Property{Name: fmt.Sprint("p", i), Scope: filter.Scope(i % 2)}, Value: v})
	}
	return list
}

// TestPropertiesRoundTrip: they come back as they were, no byte may be missing, and more than 64 KiB
// are refused, by commands too.
func TestPropertiesRoundTrip(t *testing.T) {
	t.Parallel()
	b := fsm.AppendProperties(nil, exampleProperties())
	got, err := fsm.DecodeProperties(b)
	if diff := cmp.Diff(exampleProperties(), got, cmp.Comparer(func(a, b filter.Value) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := fsm.DecodeProperties(nil); len(got) != 0 || err != nil {
		t.Errorf("no bytes are %v, %v", got, err)
	}
	sends := func(b []byte) fsm.Code {
		c := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: b}}}
		code := fsm.Check(c)
		if err := verify(fsm.AppendCommand(nil, header, c)); (err == nil) != (code == fsm.OK) {
			t.Errorf("%v, but verifies with %v", code, err)
		}
		return code
	}
	text := func(n int) []byte {
		return fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "n"}, Value: filter.Text(strings.Repeat("x", n))}})
	}
	free := 64*1024 - (len(text(40_000)) - 40_000)
	for _, c := range []struct {
		b     []byte
		valid bool
	}{{b, true}, {nil, true}, {text(free), true}, {text(free + 1), false}, {[]byte{1}, false}, {[]byte{2, 0, 0, 0}, false}, {[]byte{1, 2, 0, 0}, false}} {
		_, err := fsm.DecodeProperties(c.b)
		if (err == nil) != c.valid || (sends(c.b) == fsm.OK) != c.valid {
			t.Errorf("%d bytes: %v, %v", len(c.b), err, sends(c.b))
		}
	}
	for n := 1; n < len(b); n++ {
		if list, err := fsm.DecodeProperties(b[:n]); err == nil && !bytes.Equal(fsm.AppendProperties(nil, list), b[:n]) {
			t.Errorf("decodes from %d of %d bytes", n, len(b))
		}
	}
}

// FuzzDecodeProperties: no panic, one encoding, and what is checked without decoding is
// what decodes.
func FuzzDecodeProperties(f *testing.F) {
	f.Add(fsm.AppendProperties(nil, exampleProperties()))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := fsm.DecodeProperties(b)
		if err == nil && !bytes.Equal(fsm.AppendProperties(nil, list), b) {
			t.Errorf("a second encoding: %x", b)
		}
		c := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: b}}}
		if checked := fsm.Check(c) == fsm.OK; checked != (err == nil) {
			t.Errorf("decodes with %v, checked %v", err, checked)
		}
	})
}

// exampleTopics is a state machine with a topic, three subscriptions that share messages in every
// way, rules of every kind, and a tombstone.
func exampleTopics(t testing.TB) *replica {
	r := newReplica(t)
	env := fsm.Env{Now: 1_700_000_000_000}
	apply := func(c fsm.Command) fsm.Result {
		env.Index++
		env.Now += 1000
		res := r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 7, Serial: env.Index, Low: 1}, c))
		if res.Code != fsm.OK {
			t.Fatalf("%T: %v", c, res.Code)
		}
		return res
	}
	s := fsm.DefaultSettings()
	s.DeadLetterOnFilterErrors = true
	apply(fsm.PutEntity{Entity: 6, Version: 1, Settings: s, Kind: fsm.TopicEntity})
	rules := []fsm.Rule{{Name: "all"}, {Name: "fails", Filter: sqlFilter("1 / n = 1")}, {Name: "some", Filter: customerFilter(1)}}
	for i := range rules {
		apply(fsm.PutEntity{
			Entity: fsm.EntityID(7 - i*2), Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 6, Rule: &rules[i],
		})
	}
	apply(fsm.PutRule{Subscription: 3, Rule: fsm.Rule{Name: "never", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}}})
	apply(fsm.PutRule{Subscription: 3, Rule: fsm.Rule{Name: "changed", Action: fsm.SQLText{Text: "SET seen = TRUE"}}})
	s.AutoDeleteOnIdle = 300_000
	apply(fsm.PutEntity{Entity: 8, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 6})
	env.Now += 300_000
	apply(fsm.Pulse{})
	apply(fsm.SendMessages{Entity: 6, Messages: []fsm.Message{
		{Payload: []byte("a"), Properties: order(1)},
		{Payload: []byte("bb"), Properties: propertiesOf(t, "n=0")},
		{Payload: []byte("later"), Properties: order(1), EnqueueAt: env.Now + 60_000},
		{Payload: []byte("later"), EnqueueAt: env.Now + 90_000},
	}})
	locked := apply(fsm.LockMessages{Address: fsm.Address{Entity: 7}, Max: 2, MaxBytes: 100}).Deliveries
	apply(fsm.SettleMessages{Address: fsm.Address{Entity: 7}, Settlements: []fsm.Settlement{{Lock: locked[0].Lock, Verb: fsm.Complete}}})
	apply(fsm.LockMessages{Address: fsm.Address{Entity: 3}, Max: 1, Delete: true})
	return r
}

// topicCommands have an effect on exampleTopics.
func topicCommands() []fsm.Command {
	rule := fsm.Rule{Name: "some", Filter: customerFilter(5), Action: fsm.SQLText{Text: "SET a = newid(); REMOVE sys.Label"}}
	return []fsm.Command{
		fsm.PutRule{Subscription: 3, Rule: rule, Replace: true},
		fsm.PutRule{Subscription: 5, Rule: fsm.Rule{Name: "other", Filter: sqlFilter("n LIKE '%a' OR sys.Size > 3")}},
		fsm.DropRule{Subscription: 7, Name: "ALL"},
		fsm.SendMessages{Entity: 6, Messages: []fsm.Message{{Payload: []byte("x"), Properties: order(1)}}},
		fsm.DropEntity{Entity: 3},
		fsm.DropEntity{Entity: 6},
		fsm.CancelScheduled{Entity: 6, Sequences: []fsm.SequenceNumber{3}},
		fsm.PutEntity{Entity: 9, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 6, Rule: &rule},
		fsm.RedriveMessages{Entity: 5, Sequences: []fsm.SequenceNumber{1, 2}},
		fsm.SettleUnlocked{Address: fsm.Address{Entity: 5}, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready), Sequences: []fsm.SequenceNumber{1, 2}},
	}
}

// TestTamperedTopicImageIsRefused: an image of topics with one byte changed and the right checksum
// is refused or makes a working state machine.
func TestTamperedTopicImageIsRefused(t *testing.T) {
	t.Parallel()
	image := exampleTopics(t).image()
	whole := queue.New(&discardBodies{})
	if err := whole.Restore(bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range len(image) - 4 {
		for _, change := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(image)
			b[i] ^= change
			q := queue.New(&discardBodies{})
			if err := q.Restore(bytes.NewReader(sealed(b))); err != nil {
				refused++
				continue
			}
			exercise(t, q)
			for id := fsm.EntityID(1); id < 10; id++ {
				q.Apply(oneTime(fsm.Env{Index: 2, Now: 1 << 50}), fsm.AppendCommand(nil, fsm.Header{}, fsm.DropEntity{Entity: id}))
			}
		}
	}
	if refused == 0 {
		t.Error("every image is taken")
	}
}
