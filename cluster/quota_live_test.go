package cluster

import (
	"strings"
	"testing"
	"time"

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
		batch := make([]fsm.Message, perSecond)
		for i := range batch {
			batch[i] = fsm.Message{Payload: []byte{1}}
		}
		if refused = sendCode(c.nodes[1], attacked, batch...); refused != fsm.OK {
			break
		}
		sent += len(batch)
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
	if u := c.nodes[0].NamespaceUsage(shop.ID); u.Messages != uint64(sent) || u.Entities != 1 {
		t.Errorf("the namespace holds %+v, want %d messages", u, sent)
	}
	if _, err := c.any().Router().In(shop.ID).CreateEntity(t.Context(), fsm.QueueEntity, "more", testSettings, nil, nil); err == nil {
		t.Error("another entity was created")
	}
	if got := receive(t, c.nodes[0], attacked); len(got) != sent {
		t.Errorf("%d messages were received, want %d", len(got), sent)
	}
	kit.Eventually(t, "sends are taken again", func() bool { return sendCode(c.nodes[1], attacked, fsm.Message{Payload: []byte{1}}) == fsm.OK })
}
