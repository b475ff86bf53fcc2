package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/quota"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestNamespacesShareMemory: one namespace sends messages of one byte, in batches of 4,000, until it is refused, at half of the
// memory and what it sent within the delay. Another one, which sends all the time, is never refused, and the first one is
// accepted again once its messages are gone.
func TestNamespacesShareMemory(t *testing.T) {
	inBubble(t, namespacesShareMemory)
}

// TestNamespaceLimits: a namespace that has reached maxMessages, maxBytes or maxRules is refused what adds to that, with the name
// of the limit, and takes everything else; other namespaces are not affected. It is accepted again once it holds less, or the
// limit is higher.
func TestNamespaceLimits(t *testing.T) {
	inBubble(t, namespaceLimits)
}

func namespaceLimits(t *testing.T) {
	c := newForwardingCluster(t, 1)
	c.startAll()
	shop := c.makeNamespace("shop", fsm.NamespaceSettings{MessagesMax: 10})
	other := c.makeIn(fsm.DefaultNamespace, fsm.QueueEntity, "q", nil)
	queue := c.makeIn(shop.ID, fsm.QueueEntity, "q", nil)
	c.makeIn(shop.ID, fsm.QueueEntity, "target", nil)
	topic := c.makeIn(shop.ID, fsm.TopicEntity, "t", nil)
	in := func() entities.NamespaceView { return c.any().Router().In(shop.ID) }
	subscribe := func(name string) error {
		_, err := in().CreateEntity(t.Context(), fsm.SubscriptionEntity, "t/Subscriptions/"+name, testSettings, nil, nil)
		return err
	}
	kit.OK(t, subscribe("s"))
	putRule := func(name string, replace bool) error {
		return in().PutRule(t.Context(), "t/Subscriptions/s", fsm.Rule{Name: name, Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}}, replace)
	}
	pause := func() { <-time.After(2 * quota.Delay) }
	limit := func(s fsm.NamespaceSettings) {
		t.Helper()
		kit.Must(c.any().Router().UpdateNamespace(t.Context(), "shop", s))(t)
		pause()
	}
	send := func(to fsm.EntityRef, n int) error {
		batch := make([]fsm.Message, n)
		for i := range batch {
			batch[i] = fsm.Message{Payload: []byte("0123456789")}
		}
		if code := sendCode(c.nodes[1], to, batch...); code != fsm.OK {
			return code
		}
		return nil
	}
	expect := func(what string, err error, refused bool, reason string) {
		t.Helper()
		if refused != (err != nil) || refused && !errors.Is(err, fsm.NamespaceFull) {
			t.Errorf("%s: %v, refused must be %t", what, err, refused)
		}
		for _, n := range c.nodes {
			if r := n.QuotaReason(shop.ID); (r == "") != (reason == "") || !strings.Contains(r, reason) {
				t.Errorf("%s: the reason is %q, want one with %q", what, r, reason)
			}
		}
		if code := trySend(c.nodes[2], other, "small"); code != fsm.OK {
			t.Errorf("%s: the other namespace was refused: %v", what, code)
		}
	}
	expect("below the limits", send(queue, 10), false, "")
	pause()
	const messages = "shop holds 10 messages, and its limit maxMessages is 10."
	expect("a message", send(queue, 1), true, messages)
	expect("a message for a topic", send(topic, 1), true, "namespace update shop --max-messages N")
	expect("a rule at maxMessages", putRule("r", false), false, messages)

	settings := testSettings
	settings.ForwardTo = "target"
	_, err := in().UpdateEntity(t.Context(), fsm.QueueEntity, "q", settings)
	expect("forwarding at maxMessages", err, false, messages)
	target := kit.Must(in().Resolve(t.Context(), "target"))(t)
	kit.Eventually(t, "messages move on though the namespace is full", func() bool { return ready(t, c.nodes[0], target) == 10 })
	if got := receive(t, c.nodes[0], target); len(got) != 10 {
		t.Errorf("%d messages were received, want 10", len(got))
	}
	pause()
	expect("a message after the others were received", send(target, 1), false, "")

	limit(fsm.NamespaceSettings{RulesMax: 2})
	expect("a rule", putRule("more", false), true, "2 rules, and its limit maxRules is 2.")
	expect("a subscription, which has a rule", subscribe("more"), true, "--max-rules")
	expect("another rule in the place of one", putRule("r", true), false, "maxRules")
	expect("a message at maxRules", send(target, 1), false, "maxRules")
	limit(fsm.NamespaceSettings{RulesMax: 3})
	expect("a rule below the new limit", putRule("more", false), false, "")

	limit(fsm.NamespaceSettings{BytesMax: 100})
	expect("bytes", send(target, 1), true, "its limit maxBytes is 100.")
	expect("bytes of a rule", putRule("r", true), true, "bytes on disk")
	limit(fsm.NamespaceSettings{})
	expect("without limits", send(target, 1), false, "")
}

func namespacesShareMemory(t *testing.T) {
	const most, messageMin, perSecond = 4 << 20, 64, 4000
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	for _, n := range c.nodes {
		n.SetMemory(most, 0)
	}
	shop := c.makeNamespace("shop", fsm.NamespaceSettings{})
	victim, attacked := c.makeIn(fsm.DefaultNamespace, fsm.QueueEntity, "q", nil), c.makeIn(shop.ID, fsm.QueueEntity, "q", nil)
	sent := 0
	refused := fsm.OK
	for range 40 {
		<-time.After(time.Second)
		batch := make([]fsm.Message, perSecond/len(c.nodes))
		for i := range batch {
			batch[i] = fsm.Message{Payload: []byte{1}}
		}
		for _, gateway := range c.nodes {
			if refused = sendCode(gateway, attacked, batch...); refused != fsm.OK {
				break
			}
			sent += len(batch)
		}
		if refused != fsm.OK {
			break
		}
		if code := trySend(c.nodes[2], victim, "small"); code != fsm.OK {
			t.Fatalf("the other namespace was refused: %v", code)
		}
	}
	overshoot := perSecond * (int(quota.Delay/time.Second) + 1)
	if refused != fsm.NamespaceFull || sent < most/2/messageMin-2*perSecond || sent > most/2/messageMin+overshoot {
		t.Errorf("%d messages were stored, then %v; want %d and at most %d more, then %v", sent, refused, most/2/messageMin, overshoot, fsm.NamespaceFull)
	}
	for _, n := range c.nodes {
		kit.Eventually(t, "every member knows why", func() bool { return strings.Contains(n.QuotaReason(shop.ID), "memory") })
		if reason := n.QuotaReason(fsm.DefaultNamespace); reason != "" {
			t.Errorf("the other namespace: %q", reason)
		}
	}
	kit.Eventually(t, "the sums count all messages", func() bool {
		u, queues := c.nodes[0].NamespaceUsage(shop.ID)
		return queues == 1 && u.Messages == uint64(sent) && u.Entities == 1
	})
	if _, err := c.any().Router().In(shop.ID).CreateEntity(t.Context(), fsm.QueueEntity, "more", testSettings, nil, nil); err == nil {
		t.Error("another entity was created")
	}
	if got := receive(t, c.nodes[0], attacked); len(got) != sent {
		t.Errorf("%d messages were received, want %d", len(got), sent)
	}
	kit.Eventually(t, "sends are taken again", func() bool { return sendCode(c.nodes[1], attacked, fsm.Message{Payload: []byte{1}}) == fsm.OK })
}
