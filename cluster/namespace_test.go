package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func (c *testCluster) makeNamespace(name string, settings fsm.NamespaceSettings, rules ...fsm.AccessRule) fsm.Namespace {
	c.t.Helper()
	namespace, err := c.any().Router().CreateNamespace(c.t.Context(), name, settings, rules)
	if err != nil {
		c.t.Fatal(err)
	}
	return namespace
}

func (c *testCluster) makeIn(namespace fsm.NamespaceID, kind fsm.EntityKind, name string, change func(*fsm.EntitySettings)) fsm.EntityRef {
	c.t.Helper()
	settings := testSettings
	if change != nil {
		change(&settings)
	}
	entity, err := c.any().Router().In(namespace).CreateEntity(c.t.Context(), kind, name, settings, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return fsm.EntityRef{Entity: entity}
}

func testRule(name, secret string, rights fsm.Rights) fsm.AccessRule {
	return fsm.AccessRule{Name: name, Primary: secret, Rights: rights}
}

// ruleSecrets formats rules without what the state machine adds.
func ruleSecrets(rules []fsm.AccessRule) string {
	var all []string
	for _, rule := range rules {
		all = append(all, fmt.Sprintf("%s=%s/%d", rule.Name, rule.Primary, rule.Rights))
	}
	return strings.Join(all, " ")
}

// TestNamespacesDoNotSeeEachOther checks that one name in two namespaces is two queues, at every member, and that
// look-ups by name and forwarding stay within the namespace.
func TestNamespacesDoNotSeeEachOther(t *testing.T) {
	kit.Long(t)
	inBubble(t, namespacesDoNotSeeEachOther)
}

func namespacesDoNotSeeEachOther(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	shop := c.makeNamespace("Shop", fsm.NamespaceSettings{Hosts: []string{"queues.shop.example"}})
	if shop.ID == fsm.DefaultNamespace || shop.Name != "Shop" {
		t.Fatalf("made %+v", shop)
	}
	ours, theirs := c.makeIn(fsm.DefaultNamespace, fsm.QueueEntity, "orders", nil), c.makeIn(shop.ID, fsm.QueueEntity, "Orders", nil)
	if ours.ID == theirs.ID || theirs.Namespace != shop.ID {
		t.Fatalf("%+v and %+v", ours, theirs)
	}
	// The names and settings are the same: each queue forwards to the sink of its own namespace.
	for _, namespace := range []fsm.NamespaceID{fsm.DefaultNamespace, shop.ID} {
		c.makeIn(namespace, fsm.QueueEntity, "sink", nil)
		c.makeIn(namespace, fsm.QueueEntity, "source", forwards("sink"))
	}
	for i, node := range c.nodes {
		for host, want := range map[string]fsm.NamespaceID{
			"shop.example.com:5671": shop.ID, "QUEUES.shop.example.": shop.ID, "localhost": fsm.DefaultNamespace, "other.example.com": fsm.DefaultNamespace,
		} {
			kit.Eventually(t, "member knows the host "+host, func() bool {
				got, err := node.Router().NamespaceByHost(t.Context(), host)
				return err == nil && got == want
			})
		}
		for namespace, want := range map[fsm.NamespaceID]fsm.EntityID{fsm.DefaultNamespace: ours.ID, shop.ID: theirs.ID} {
			at, err := node.Router().In(namespace).Resolve(t.Context(), "ORDERS")
			if err != nil || at.ID != want {
				t.Fatalf("member %d, namespace %d: %d, %v", i, namespace, at.ID, err)
			}
			source, err := node.Router().In(namespace).Resolve(t.Context(), "source")
			if err == nil || source.Settings.ForwardTo == "" {
				mustSend(t, node, source, fsm.Message{ID: fmt.Sprint(i), Payload: fmt.Appendf(nil, "of %d", namespace)})
			}
		}
	}
	for _, namespace := range []fsm.NamespaceID{fsm.DefaultNamespace, shop.ID} {
		sink := kit.Must(c.any().Router().In(namespace).Resolve(t.Context(), "sink"))(t)
		for _, m := range c.take(sink, 3) {
			if want := fmt.Sprintf("of %d", namespace); m.Payload != want {
				t.Errorf("namespace %d: %q", namespace, m.Payload)
			}
		}
		list, err := c.any().Router().In(namespace).Entities(t.Context(), fsm.QueueEntity, "", "", 100)
		if err != nil || len(list) != 3 {
			t.Errorf("namespace %d lists %d: %v", namespace, len(list), err)
		}
	}
	// A name of the other namespace is unknown in this one.
	c.makeIn(shop.ID, fsm.QueueEntity, "only", nil)
	settings := testSettings
	settings.ForwardTo = "only"
	_, err := c.any().Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "leak", settings, nil, nil)
	if !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("forwarding to another namespace: %v", err)
	}
}

// TestNamespaceIsDeletedWhenEmpty checks that a namespace with entities cannot be deleted, and that nothing is
// created in a deleted one.
func TestNamespaceIsDeletedWhenEmpty(t *testing.T) { inBubble(t, namespaceIsDeletedWhenEmpty) }

func namespaceIsDeletedWhenEmpty(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	router := c.any().Router()
	shop := c.makeNamespace("shop", fsm.NamespaceSettings{})
	c.makeIn(shop.ID, fsm.TopicEntity, "t", nil)
	if err := router.DeleteNamespace(t.Context(), "shop"); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("with a topic: %v", err)
	}
	if err := router.DeleteNamespace(t.Context(), "default"); !errors.Is(err, fsm.NotAllowed) {
		t.Errorf("the default one: %v", err)
	}
	kit.OK(t, router.In(shop.ID).DeleteEntity(t.Context(), fsm.TopicEntity, "t"))
	kit.OK(t, router.DeleteNamespace(t.Context(), "SHOP"))
	if got, err := router.NamespaceByHost(t.Context(), "shop.example.com"); err != nil || got != fsm.DefaultNamespace {
		t.Errorf("its host selects %d, %v", got, err)
	}
	_, err := router.In(shop.ID).CreateEntity(t.Context(), fsm.QueueEntity, "q", testSettings, nil, nil)
	if !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("a queue in it: %v", err)
	}
	if again := c.makeNamespace("shop", fsm.NamespaceSettings{}); again.ID <= shop.ID {
		t.Errorf("id %d after %d", again.ID, shop.ID)
	}
}

// TestRequestsBeyondANamespaceLimitAreRefused checks that a request beyond a limit is refused with the limit in the text.
func TestRequestsBeyondANamespaceLimitAreRefused(t *testing.T) {
	inBubble(t, requestsBeyondANamespaceLimitAreRefused)
}

func requestsBeyondANamespaceLimitAreRefused(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	router := c.any().Router()
	shop := c.makeNamespace("shop", fsm.NamespaceSettings{MessageBytesMax: 256 << 10, LockDurationMax: 60_000, EntitiesMax: 2, Hosts: []string{"a.example"}})
	space := router.In(shop.ID)
	for name, test := range map[string]struct {
		change func(*fsm.EntitySettings)
		says   string
	}{
		"size": {func(s *fsm.EntitySettings) { s.MaxMessageBytes = 256<<10 + 1 }, "262144"},
		"lock": {func(s *fsm.EntitySettings) { s.MaxMessageBytes, s.LockDuration = 0, 60_001 }, "1m0s"},
	} {
		settings := testSettings
		settings.LockDuration = 30_000
		test.change(&settings)
		_, err := space.CreateEntity(t.Context(), fsm.QueueEntity, "q", settings, nil, nil)
		if !errors.Is(err, fsm.InvalidArgument) || !strings.Contains(fmt.Sprint(err), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	open := testSettings
	open.LockDuration, open.MaxMessageBytes = 30_000, 0
	made, err := space.CreateEntity(t.Context(), fsm.QueueEntity, "q", open, nil, nil)
	if err != nil || made.Settings.MaxMessageBytes != 256<<10 {
		t.Fatalf("open size: %d, %v", made.Settings.MaxMessageBytes, err)
	}
	if made, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "q", open, nil, nil); err != nil || made.Settings.MaxMessageBytes != fsm.DefaultSettings().MaxMessageBytes {
		t.Fatalf("open size, no tier: %d, %v", made.Settings.MaxMessageBytes, err)
	}
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "long", func() fsm.EntitySettings { s := open; s.LockDuration = 300_001; return s }(), nil, nil); !errors.Is(err, fsm.InvalidArgument) || !strings.Contains(fmt.Sprint(err), "5m0s") {
		t.Errorf("a lock over five minutes: %v", err)
	}
	kit.Must(space.CreateEntity(t.Context(), fsm.TopicEntity, "t", open, nil, nil))(t)
	if _, err := space.CreateEntity(t.Context(), fsm.QueueEntity, "r", open, nil, nil); !errors.Is(err, fsm.QuotaExceeded) || !strings.Contains(fmt.Sprint(err), "2 queues and topics") {
		t.Errorf("a third: %v", err)
	}
	// Existing entities stay under smaller limits, but cannot grow.
	smaller, err := router.UpdateNamespace(t.Context(), "shop", fsm.NamespaceSettings{MessageBytesMax: 64 << 10, LockDurationMax: 10_000})
	if err != nil || smaller.Version <= shop.Version {
		t.Fatalf("%+v, %v", smaller, err)
	}
	settings := made.Settings
	settings.MaxDeliveryCount = 7
	if _, err := space.UpdateEntity(t.Context(), fsm.QueueEntity, "q", settings); err != nil {
		t.Errorf("over a new limit: %v", err)
	}
	settings.LockDuration++
	if _, err := space.UpdateEntity(t.Context(), fsm.QueueEntity, "q", settings); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("further over it: %v", err)
	}
	kit.Must(router.CreateNamespace(t.Context(), "tools", fsm.NamespaceSettings{}, nil))(t)
	if _, err := router.CreateNamespace(t.Context(), "SHOP", fsm.NamespaceSettings{}, nil); !errors.Is(err, fsm.EntityExists) {
		t.Errorf("a taken name: %v", err)
	}
	kit.Must(router.UpdateNamespace(t.Context(), "shop", fsm.NamespaceSettings{Hosts: []string{"b.example"}}))(t)
	if _, err := router.UpdateNamespace(t.Context(), "tools", fsm.NamespaceSettings{Hosts: []string{"b.example"}}); !errors.Is(err, fsm.EntityExists) || !strings.Contains(fmt.Sprint(err), `"shop"`) {
		t.Errorf("a taken host: %v", err)
	}
}

// TestChangedAccessRulesTakeEffectAtAllMembers checks that changed rules take effect at once at the member that changed them and soon at the
// others, and that a change based on an outdated version is refused.
func TestChangedAccessRulesTakeEffectAtAllMembers(t *testing.T) {
	inBubble(t, changedAccessRulesTakeEffectAtAllMembers)
}

func changedAccessRulesTakeEffectAtAllMembers(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	router := c.nodes[1].Router()
	shop := kit.Must(router.CreateNamespace(t.Context(), "shop", fsm.NamespaceSettings{}, []fsm.AccessRule{testRule("root", "s1", fsm.Manage)}))(t)
	space := router.In(shop.ID)
	topic := kit.Must(space.CreateEntity(t.Context(), fsm.TopicEntity, "t", testSettings, nil, []fsm.AccessRule{testRule("in", "s2", fsm.Send)}))(t)
	kit.Must(space.CreateEntity(t.Context(), fsm.SubscriptionEntity, fsm.SubscriptionPath("t", "s"), testSettings, nil, nil))(t)
	if own, shared := router.Access(shop.ID, "T"); ruleSecrets(own) != "in=s2/1" || !strings.HasPrefix(ruleSecrets(shared), "root=s1") {
		t.Errorf("of the new topic %d: own %s, shared %s", topic.AccessVersion, ruleSecrets(own), ruleSecrets(shared))
	}
	for _, set := range []struct{ name, own, shared string }{{"t", "in=s3/1", "root=s1"}, {"", "in=s3/1", "root=s4"}} {
		rules := []fsm.AccessRule{testRule("in", "s3", fsm.Send)}
		if set.name == "" {
			rules = []fsm.AccessRule{testRule("root", "s4", fsm.Manage)}
		}
		kit.OK(t, space.SetAccess(t.Context(), set.name, 0, rules))
		own, shared := router.Access(shop.ID, "t") // without waiting
		if !strings.Contains(ruleSecrets(own), set.own) || !strings.Contains(ruleSecrets(shared), set.shared) {
			t.Errorf("after %q: own %s, shared %s", set.name, ruleSecrets(own), ruleSecrets(shared))
		}
	}
	for _, node := range c.nodes {
		kit.Eventually(t, "every member has the rules", func() bool {
			own, shared := node.Router().Access(shop.ID, "t/subscriptions/s")
			return strings.HasPrefix(ruleSecrets(own), "in=s3") && strings.HasPrefix(ruleSecrets(shared), "root=s4")
		})
		if own, shared := node.Router().Access(fsm.DefaultNamespace, "t"); len(own)+len(shared) != 0 {
			t.Errorf("the default namespace has them too: %d, %d", len(own), len(shared))
		}
	}
	// Two clients read the same version: the first change wins.
	now := kit.Must(space.Describe(t.Context()))(t)
	more := append(now.Access, testRule("two", "s5", fsm.Listen))
	kit.OK(t, space.SetAccess(t.Context(), "", now.Version, more))
	if err := space.SetAccess(t.Context(), "", now.Version, nil); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("an old version: %v", err)
	}
	entity, _, err := space.Entity(t.Context(), fsm.TopicEntity, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := space.SetAccess(t.Context(), "t", entity.AccessVersion+1, nil); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("a wrong version of an entity: %v", err)
	}
	if err := space.SetAccess(t.Context(), fsm.SubscriptionPath("t", "s"), 0, nil); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("rules of a subscription: %v", err)
	}
	if err := space.SetAccess(t.Context(), "none", 0, nil); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("rules of nothing: %v", err)
	}
	list, err := router.Namespaces(t.Context(), "default", 10)
	if err != nil || len(list) != 1 || cmp.Diff(list[0].Access, more, cmpopts.IgnoreFields(fsm.AccessRule{}, "Created", "Updated")) != "" {
		t.Errorf("list: %+v, %v", list, err)
	}
}
