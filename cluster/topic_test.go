package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestThreeMembersServeOneTopic sends to a topic through one member and receives from its subscriptions through
// others, by rules that were created through any of them.
func TestThreeMembersServeOneTopic(t *testing.T) { inBubble(t, threeMembersServeOneTopic) }

func threeMembersServeOneTopic(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "Events", nil)
	all := c.make(fsm.SubscriptionEntity, "events/subscriptions/All", nil)
	red := sqlRule("red", "color = 'red'")
	entity, err := c.nodes[1].Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, "EVENTS/Subscriptions/red", testSettings, &red, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all.Name != "Events/Subscriptions/All" || entity.Name != "Events/Subscriptions/red" {
		t.Errorf("named %q and %q", all.Name, entity.Name)
	}
	if all.Partition != topic.Partition || entity.Partition != topic.Partition || all.Topic != topic.ID {
		t.Errorf("topic %+v, subscriptions %+v and %+v", topic, all, entity)
	}
	mustSend(t, c.nodes[1], resolve(t, c.nodes[1], "events"), coloured("red", "1"), coloured("blue", "2"))
	if diff := cmp.Diff([]string{"1#1", "2#2"}, receive(t, c.nodes[2], resolve(t, c.nodes[2], "/EVENTS/SUBSCRIPTIONS/all"))); diff != "" {
		t.Error(diff)
	}
	at := resolve(t, c.nodes[0], "events/subscriptions/red")
	if diff := cmp.Diff([]string{"1#1"}, receive(t, c.nodes[0], at)); diff != "" {
		t.Error(diff)
	}

	router := c.nodes[2].Router()
	kit.OK(t, router.AddRule(t.Context(), at, sqlRule("Green", "color = 'green'")))
	if err := router.AddRule(t.Context(), at, sqlRule("green", "1=1")); !errors.Is(err, fsm.RuleExists) {
		t.Errorf("a rule twice: %v", err)
	}
	kit.OK(t, router.RemoveRule(t.Context(), at, "RED"))
	if err := router.RemoveRule(t.Context(), at, "red"); !errors.Is(err, fsm.RuleNotFound) {
		t.Errorf("a rule that is gone: %v", err)
	}
	if diff := cmp.Diff([]string{"Green"}, ruleNames(t, c.nodes[1], at.Name)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{fsm.DefaultRuleName}, ruleNames(t, c.nodes[1], all.Name)); diff != "" {
		t.Error(diff)
	}
	mustSend(t, c.nodes[0], topic, coloured("red", "3"), coloured("green", "4"))
	if diff := cmp.Diff([]string{"4#2"}, receive(t, c.nodes[0], at)); diff != "" {
		t.Error(diff)
	}
	if counts := countMessages(t, c.nodes[1], topic); counts.Subscriptions != 2 {
		t.Errorf("topic: %+v", counts)
	}
}

// TestRulesAreReturnedAsTheyWereCreated checks that a rule is returned as it was created: with its subscription or by itself,
// and through a member that does not lead.
func TestRulesAreReturnedAsTheyWereCreated(t *testing.T) {
	inBubble(t, rulesAreReturnedAsTheyWereCreated)
}

func rulesAreReturnedAsTheyWereCreated(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	c.make(fsm.TopicEntity, "t", nil)
	user := func(name string) filter.Property { return filter.Property{Name: name} }
	first := fsm.Rule{
		Name: "Erste-Regel", Action: fsm.SQLText{Text: "SET done = @now", Parameters: []filter.Parameter{{Name: "now", Value: filter.Time(1)}}},
		Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: filter.Text("a\x00\u2028b")},
			{Property: user("n"), Value: filter.Int(-1 << 63)},
			{Property: user("u"), Value: filter.Uint(1<<64 - 1)},
			{Property: user("d"), Value: filter.Double(0.1)},
			{Property: user("b"), Value: filter.Bool(true)},
			{Property: user("g"), Value: filter.ID(filter.GUID{1, 15: 16})},
		}},
	}
	entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, "t/Subscriptions/s", testSettings, &first, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := first
	second.Name = "second"
	third := sqlRule("third", "color LIKE 'r%' AND n < @p")
	third.Filter.SQL.Parameters = []filter.Parameter{{Name: "p", Value: filter.Double(1e300)}}
	for _, rule := range []fsm.Rule{second, third} {
		kit.OK(t, c.other(1).Router().In(fsm.DefaultNamespace).PutRule(t.Context(), entity.Name, rule, false))
	}
	got := kit.Must(c.other(1).Router().ListRules(t.Context(), fsm.EntityRef{Entity: entity}, 0, 100))(t)
	for i := range got {
		if got[i].Created == 0 {
			t.Errorf("rule %q was made never", got[i].Name)
		}
		got[i].Created = 0
	}
	same := cmp.Comparer(func(a, b filter.Value) bool { return a == b })
	if diff := cmp.Diff([]fsm.Rule{first, second, third}, got, same); diff != "" {
		t.Error(diff)
	}
	if got, err = c.other(1).Router().In(fsm.DefaultNamespace).Rules(t.Context(), entity.Name, 1, 1); err != nil || len(got) != 1 || got[0].Name != "second" {
		t.Errorf("the second: %+v, %v", got, err)
	}
}

func TestEntitiesAreListedByKind(t *testing.T) { inBubble(t, entitiesAreListedByKind) }

func entitiesAreListedByKind(t *testing.T) {
	c := newBubbleCluster(t, 1, 2)
	c.startAll()
	c.make(fsm.QueueEntity, "b", nil)
	for _, topic := range []string{"a", "c"} {
		c.make(fsm.TopicEntity, topic, nil)
		for i := range 3 {
			c.make(fsm.SubscriptionEntity, fsm.SubscriptionPath(topic, fmt.Sprint("s", i)), nil)
		}
	}
	list := func(kind fsm.EntityKind, under, after string, max int) (names []string) {
		t.Helper()
		entities := kit.Must(c.nodes[0].Router().In(fsm.DefaultNamespace).Entities(t.Context(), kind, under, after, max))(t)
		for _, entity := range entities {
			if entity.Kind != kind {
				t.Errorf("%s is a %s", entity.Name, entity.Kind)
			}
			names = append(names, entity.Name)
		}
		return names
	}
	for name, step := range map[string]struct {
		got, want []string
	}{
		"queues":         {list(fsm.QueueEntity, "", "", 10), []string{"b"}},
		"topics":         {list(fsm.TopicEntity, "", "", 10), []string{"a", "c"}},
		"later topics":   {list(fsm.TopicEntity, "", "A", 10), []string{"c"}},
		"subscriptions":  {list(fsm.SubscriptionEntity, "A", "", 2), []string{"a/Subscriptions/s0", "a/Subscriptions/s1"}},
		"later by name":  {list(fsm.SubscriptionEntity, "a", "S1", 10), []string{"a/Subscriptions/s2"}},
		"later by path":  {list(fsm.SubscriptionEntity, "a", "a/subscriptions/s0", 10), []string{"a/Subscriptions/s1", "a/Subscriptions/s2"}},
		"of the other":   {list(fsm.SubscriptionEntity, "c", "", 1), []string{"c/Subscriptions/s0"}},
		"behind the end": {list(fsm.SubscriptionEntity, "a", "s2", 10), nil},
	} {
		if diff := cmp.Diff(step.want, step.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	router := c.nodes[0].Router()
	if _, err := router.In(fsm.DefaultNamespace).Entities(t.Context(), fsm.SubscriptionEntity, "b", "", 10); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("subscriptions of a queue: %v", err)
	}
	if _, err := router.In(fsm.DefaultNamespace).Entities(t.Context(), fsm.SubscriptionEntity, "", "", 10); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("subscriptions of nothing: %v", err)
	}
}

func TestPathsOfSubQueuesAreResolved(t *testing.T) { inBubble(t, pathsOfSubQueuesAreResolved) }

func pathsOfSubQueuesAreResolved(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	queue, topic := c.make(fsm.QueueEntity, "q", nil), c.make(fsm.TopicEntity, "a/b", nil)
	sub := c.make(fsm.SubscriptionEntity, "a/b/Subscriptions/s", nil)
	for path, want := range map[string]fsm.Address{
		"q":                                    {Entity: queue.ID},
		"Q/$deadletterqueue":                   {Entity: queue.ID, Sub: fsm.DeadLetterQueue},
		"q/$Transfer/$DeadLetterQueue":         {Entity: queue.ID, Sub: fsm.TransferDeadLetterQueue},
		"/a/B/":                                {Entity: topic.ID},
		"a/b/$Transfer/$DeadLetterQueue":       {Entity: topic.ID, Sub: fsm.TransferDeadLetterQueue},
		"a/b/subscriptions/S":                  {Entity: sub.ID},
		"a/b/Subscriptions/s/$DeadLetterQueue": {Entity: sub.ID, Sub: fsm.DeadLetterQueue},
		"a/b/Subscriptions/s/$TRANSFER/$deadletterqueue": {Entity: sub.ID, Sub: fsm.TransferDeadLetterQueue},
	} {
		if at := resolve(t, c.nodes[0], path); at.Address() != want {
			t.Errorf("%s: %+v, want %+v", path, at.Address(), want)
		}
	}
	for _, path := range []string{
		"", "q/$Transfer", "a", "a/b/$DeadLetterQueue", "a/b/Subscriptions",
		"a/b/Subscriptions/none", "q/Subscriptions/s", "$DeadLetterQueue",
	} {
		if at, err := c.nodes[0].Router().In(fsm.DefaultNamespace).Resolve(t.Context(), path); !errors.Is(err, fsm.EntityNotFound) {
			t.Errorf("%s: %+v, %v", path, at, err)
		}
	}
}

// TestRefusalsOfTopicsHaveHelpfulTexts checks that refusals have helpful texts.
func TestRefusalsOfTopicsHaveHelpfulTexts(t *testing.T) {
	inBubble(t, refusalsOfTopicsHaveHelpfulTexts)
}

func refusalsOfTopicsHaveHelpfulTexts(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	c.make(fsm.QueueEntity, "q", nil)
	topic := c.make(fsm.TopicEntity, "t", nil)
	sub := c.make(fsm.SubscriptionEntity, "t/Subscriptions/s", nil)
	router, ctx := c.nodes[0].Router(), t.Context()
	with := func(change func(*fsm.EntitySettings)) fsm.EntitySettings {
		settings := testSettings
		change(&settings)
		return settings
	}
	create := func(kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) error {
		return second(router.In(fsm.DefaultNamespace).CreateEntity(ctx, kind, name, settings, rule, nil))
	}
	forward := func(to string) fsm.EntitySettings {
		return with(func(s *fsm.EntitySettings) { s.ForwardTo = to })
	}
	rule, broken := sqlRule("r", "1=1"), sqlRule("r", "color = ")
	for name, step := range map[string]struct {
		err  error
		code fsm.Code
		text string
	}{
		"no topic":             {create(fsm.SubscriptionEntity, "none/Subscriptions/s", testSettings, nil), fsm.EntityNotFound, `topic "none" does not exist`},
		"a queue for topic":    {create(fsm.SubscriptionEntity, "q/Subscriptions/s", testSettings, nil), fsm.EntityNotFound, `topic "q" does not exist`},
		"no path":              {create(fsm.SubscriptionEntity, "s", testSettings, nil), fsm.InvalidArgument, "topic/Subscriptions/subscription"},
		"path of a queue":      {create(fsm.QueueEntity, "t/subscriptions/x", testSettings, nil), fsm.InvalidArgument, "reserved for the paths of subscriptions"},
		"path of a topic":      {create(fsm.TopicEntity, "Subscriptions", testSettings, nil), fsm.InvalidArgument, "reserved for the paths of subscriptions"},
		"subscription twice":   {create(fsm.SubscriptionEntity, "T/subscriptions/S", testSettings, nil), fsm.EntityExists, "already exists"},
		"topic for a queue":    {create(fsm.TopicEntity, "Q", testSettings, nil), fsm.EntityExists, "must be unique, ignoring case"},
		"rule of a queue":      {create(fsm.QueueEntity, "x", testSettings, &rule), fsm.InvalidArgument, "only a subscription has rules"},
		"broken rule":          {create(fsm.SubscriptionEntity, "t/Subscriptions/x", testSettings, &broken), fsm.InvalidArgument, `rule "r"`},
		"unknown kind":         {create(9, "x", testSettings, nil), fsm.InvalidArgument, "queues, topics and subscriptions"},
		"forwards to nothing":  {create(fsm.QueueEntity, "x", forward("nowhere"), nil), fsm.InvalidArgument, `"nowhere"`},
		"forwards to a sub":    {create(fsm.QueueEntity, "x", forward("t/subscriptions/s"), nil), fsm.InvalidArgument, "is a subscription"},
		"topic that forwards":  {create(fsm.TopicEntity, "x", forward("q"), nil), fsm.InvalidArgument, "a topic cannot forward"},
		"dead letters forward": {create(fsm.QueueEntity, "x", with(func(s *fsm.EntitySettings) { s.ForwardDeadLettersTo = "nowhere" }), nil), fsm.InvalidArgument, `dead letters are to be forwarded to "nowhere"`},
		"sessions and forward": {create(fsm.QueueEntity, "x", with(func(s *fsm.EntitySettings) { s.ForwardTo, s.RequiresSession = "q", true }), nil), fsm.InvalidArgument, "requires sessions"},
		"update forwards":      {second(router.In(fsm.DefaultNamespace).UpdateEntity(ctx, fsm.SubscriptionEntity, "t/Subscriptions/s", forward("nowhere"))), fsm.InvalidArgument, `"nowhere"`},
		"update sessions":      {second(router.In(fsm.DefaultNamespace).UpdateEntity(ctx, fsm.QueueEntity, "q", with(func(s *fsm.EntitySettings) { s.RequiresSession = true }))), fsm.InvalidArgument, "cannot be changed"},
		"update another kind":  {second(router.In(fsm.DefaultNamespace).UpdateEntity(ctx, fsm.TopicEntity, "q", testSettings)), fsm.EntityNotFound, `update topic "q"`},
		"delete another kind":  {router.In(fsm.DefaultNamespace).DeleteEntity(ctx, fsm.QueueEntity, "t"), fsm.EntityNotFound, `delete queue "t"`},
		"rules of a queue":     {router.AddRule(ctx, resolve(t, c.nodes[0], "q"), rule), fsm.NotAllowed, "only a subscription"},
		"list rules of none":   {second(router.ListRules(ctx, topic, 0, 1)), fsm.NotAllowed, "only a subscription"},
		"rules of no one":      {router.In(fsm.DefaultNamespace).PutRule(ctx, "t/Subscriptions/none", rule, false), fsm.EntityNotFound, "none"},
		"replace no rule":      {router.In(fsm.DefaultNamespace).PutRule(ctx, "t/Subscriptions/s", rule, true), fsm.RuleNotFound, `"r"`},
		"purge a topic":        {second(router.In(fsm.DefaultNamespace).PurgeEntity(ctx, "t", 0, time.Time{}, 1)), fsm.NotAllowed, "its subscriptions do"},
		"redrive a topic":      {second(router.In(fsm.DefaultNamespace).RedriveEntity(ctx, "t", []fsm.SequenceNumber{1})), fsm.NotAllowed, "its subscriptions do"},
		"peek at a topic":      {second(router.Peek(ctx, topic, 1, 1, 1)), fsm.NotAllowed, "peek"},
	} {
		if !errors.Is(step.err, step.code) || !strings.Contains(step.err.Error(), step.text) {
			t.Errorf("%s: %v, want %v with %s", name, step.err, step.code, step.text)
		}
	}
	if code := sendCode(c.nodes[0], sub, fsm.Message{Payload: []byte("x")}); code != fsm.NotAllowed {
		t.Errorf("send to a subscription: %v", code)
	}
	receiver := router.Receiver(topic, false)
	defer receiver.Close()
	if got := lockMessages(receiver, 1, time.Minute); got.code != fsm.NotAllowed {
		t.Errorf("receive from a topic: %v", got.code)
	}
	// Destinations that exist are accepted, and may be deleted later.
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		c.make(kind, "to-"+kind.String(), nil)
		c.make(fsm.QueueEntity, "from-"+kind.String(), func(s *fsm.EntitySettings) { s.ForwardTo = "TO-" + kind.String() })
	}
	if err := router.In(fsm.DefaultNamespace).DeleteEntity(ctx, fsm.QueueEntity, "to-queue"); err != nil {
		t.Error(err)
	}
	// All other settings of an entity that forwards can still be changed.
	settings := forward("TO-queue")
	settings.Status = fsm.Disabled
	if _, err := router.In(fsm.DefaultNamespace).UpdateEntity(ctx, fsm.QueueEntity, "from-queue", settings); err != nil {
		t.Error(err)
	}
	settings.ForwardTo = "to-queue-2"
	if _, err := router.In(fsm.DefaultNamespace).UpdateEntity(ctx, fsm.QueueEntity, "from-queue", settings); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("another destination that is not there: %v", err)
	}
}

// TestWaitingReceiversHearThatTheTopicIsDeleted checks that the deletion of a topic ends the requests of
// receivers that wait at its subscriptions.
func TestWaitingReceiversHearThatTheTopicIsDeleted(t *testing.T) {
	inBubble(t, waitingReceiversHearThatTheTopicIsDeleted)
}

func waitingReceiversHearThatTheTopicIsDeleted(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	c.make(fsm.TopicEntity, "t", nil)
	sub := c.make(fsm.SubscriptionEntity, "t/Subscriptions/s", nil)
	var waiting []chan lockedMessages
	for _, node := range c.nodes {
		receiver := node.Router().Receiver(sub, false)
		defer receiver.Close()
		lockMessages(receiver, 1, 0) // the first lock request of a receiver never waits in a queue
		answer := make(chan lockedMessages, 1)
		receiver.Lock(1, 1000, time.Minute, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
		waiting = append(waiting, answer)
	}
	kit.Eventually(t, "they stand in line", func() bool {
		return c.nodes[c.leader(1)].replicas.Local(1).Status().Waiting == len(waiting)
	})
	kit.OK(t, c.nodes[1].Router().In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.TopicEntity, "t"))
	for i, answer := range waiting {
		if got := await(t, answer); got.code != fsm.EntityNotFound {
			t.Errorf("at member %d: %v", i, got.code)
		}
	}
}

// TestChangedSettingsReachTopicAndSubscription checks that changed settings of a subscription and of its topic reach their
// users, and that each has its own: messages that are sent while a subscription is disabled wait there.
func TestChangedSettingsReachTopicAndSubscription(t *testing.T) {
	inBubble(t, changedSettingsReachTopicAndSubscription)
}

func changedSettingsReachTopicAndSubscription(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	topic := c.make(fsm.TopicEntity, "t", nil)
	sub := c.make(fsm.SubscriptionEntity, "t/Subscriptions/s", nil)
	node := c.other(1)
	set := func(kind fsm.EntityKind, name string, status fsm.EntityStatus) {
		t.Helper()
		settings := testSettings
		settings.Status = status
		entity, err := c.nodes[0].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), kind, name, settings)
		if err != nil || entity.Settings != settings.WithDefaults() || entity.Kind != kind {
			t.Fatalf("update: %+v, %v", entity, err)
		}
	}
	receiver := node.Router().Receiver(sub, true)
	defer receiver.Close()
	lockMessages(receiver, 1, 0) // the first lock request of a receiver never waits in a queue
	answer := make(chan lockedMessages, 1)
	receiver.Lock(1, 1000, time.Minute, func(code fsm.Code, d []fsm.Delivery) { answer <- lockedMessages{code, d} })
	set(fsm.SubscriptionEntity, "T/subscriptions/S", fsm.Disabled)
	if got := await(t, answer); got.code != fsm.EntityDisabled {
		t.Errorf("who waited heard %v", got.code)
	}
	mustSend(t, node, topic, fsm.Message{Payload: []byte("x")})
	set(fsm.TopicEntity, "t", fsm.SendDisabled)
	if code := sendCode(node, topic, fsm.Message{Payload: []byte("y")}); code != fsm.EntityDisabled {
		t.Errorf("send to a disabled topic: %v", code)
	}
	set(fsm.SubscriptionEntity, "t/Subscriptions/s", fsm.Active)
	if diff := cmp.Diff([]string{"x#1"}, receive(t, node, sub)); diff != "" {
		t.Error(diff)
	}
}

// TestConcurrentlyRecreatedTopicsLeaveNothingBehind creates, uses and deletes topics concurrently under one name: in the end no entity is
// left that has no name.
func TestConcurrentlyRecreatedTopicsLeaveNothingBehind(t *testing.T) {
	inBubble(t, concurrentlyRecreatedTopicsLeaveNothingBehind)
}

func concurrentlyRecreatedTopicsLeaveNothingBehind(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	expected := func(err error) bool {
		return err == nil || errors.Is(err, fsm.EntityExists) || errors.Is(err, fsm.EntityNotFound)
	}
	var working sync.WaitGroup
	for w := range 6 {
		router := c.nodes[w%3].Router()
		working.Go(func() {
			for i := range 12 {
				path := fsm.SubscriptionPath("t", fmt.Sprint(w, "-", i%3))
				steps := []error{
					second(router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.TopicEntity, "t", testSettings, nil, nil)),
					second(router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, path, testSettings, nil, nil)),
					router.In(fsm.DefaultNamespace).PutRule(t.Context(), path, sqlRule("r", "1=1"), false),
				}
				if at, err := router.In(fsm.DefaultNamespace).Resolve(t.Context(), "t"); err == nil {
					if code := sendCode(c.nodes[w%3], at, fsm.Message{Payload: []byte("x")}); code != fsm.OK {
						steps = append(steps, code)
					}
				}
				if i%2 == w%2 {
					steps = append(steps, router.In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.TopicEntity, "t"))
				} else {
					steps = append(steps, router.In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.SubscriptionEntity, path))
				}
				for j, err := range steps {
					if !expected(err) && !errors.Is(err, fsm.RuleExists) {
						t.Errorf("worker %d, round %d, step %d: %v", w, i, j, err)
					}
				}
			}
		})
	}
	working.Wait()
	if err := c.nodes[0].Router().In(fsm.DefaultNamespace).DeleteEntity(t.Context(), fsm.TopicEntity, "t"); !expected(err) {
		t.Fatal(err)
	}
	kit.Eventually(t, "nothing is left", func() bool {
		left := 0
		c.nodes[0].replicas.Local(fsm.CatalogPartition).View(func(m partition.Machine) {
			left = raftgroup.Catalog(m).Entities() + len(raftgroup.Catalog(m).Dropping())
		})
		return left == 0 && c.holds(1)
	})
}
