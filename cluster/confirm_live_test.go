package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestStartingMembersDoNotAnswerFromAnOldSnapshot checks what members answer from their first moment after all of them were killed:
// a name that was made again after the last snapshot of the catalog never resolves to its former entity, a revoked rule is never
// believed, and the host of a new namespace never selects the default one.
func TestStartingMembersDoNotAnswerFromAnOldSnapshot(t *testing.T) {
	inBubble(t, startingMembersDoNotAnswerFromAnOldSnapshot)
}

func startingMembersDoNotAnswerFromAnOldSnapshot(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	space := c.nodes[0].Router().In(fsm.DefaultNamespace)
	createQueue(t, c.nodes[0], "q")
	rules := []fsm.AccessRule{{Name: "leaver", Primary: "secret", Rights: fsm.Send}}
	kit.OK(t, space.SetAccess(t.Context(), "", 0, rules))
	for _, node := range c.nodes {
		kit.Eventually(t, "it has the rule", func() bool {
			_, shared := node.Router().Access(fsm.DefaultNamespace, "")
			return len(shared) == 1
		})
		kit.OK(t, node.replicas.Group(fsm.CatalogPartition).Snapshot(t.Context()))
	}
	kit.OK(t, space.DeleteEntity(t.Context(), fsm.QueueEntity, "q"))
	again := createQueue(t, c.nodes[0], "q")
	kit.OK(t, space.SetAccess(t.Context(), "", 0, nil))
	shop := kit.Must(c.nodes[0].Router().CreateNamespace(t.Context(), "shop", fsm.NamespaceSettings{}, nil))(t)
	for i := range c.nodes {
		c.kill(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for i := range c.nodes {
		c.start(i)
		asking.Go(func() { askAsClient(ctx, t, c.nodes[i], again.ID, shop.ID) })
	}
	c.ready()
	sleep(t.Context(), time.Second)
}

// askAsClient asks a member again and again for a name, a rule and a host.
func askAsClient(ctx context.Context, t *testing.T, node *Node, queue fsm.EntityID, shop fsm.NamespaceID) {
	for ctx.Err() == nil {
		at, err := node.Router().In(fsm.DefaultNamespace).Resolve(ctx, "q")
		if ctx.Err() == nil && (err == nil && at.ID != queue || err != nil && !errors.Is(err, fsm.ServerBusy)) {
			t.Errorf("%s resolves the name to %d, %v; it is %d", node.config.Name, at.ID, err, queue)
		}
		if node.Router().AwaitConfirmed(ctx) {
			if _, shared := node.Router().Access(fsm.DefaultNamespace, ""); len(shared) != 0 {
				t.Errorf("%s believes a rule that was revoked", node.config.Name)
			}
		}
		id, err := node.Router().NamespaceByHost(ctx, "shop.example.com")
		if ctx.Err() == nil && err == nil && id != shop {
			t.Errorf("%s selects namespace %d by the host of namespace %d", node.config.Name, id, shop)
		}
		sleep(ctx, time.Millisecond)
	}
}

// TestMemberWithoutACatalogQuorum checks a member that restarts while the catalog has no leader: after the wait at its start it
// resolves names, so that partitions which have a majority serve, and believes neither rules nor unknown hosts.
func TestMemberWithoutACatalogQuorum(t *testing.T) { inBubble(t, memberWithoutACatalogQuorum) }

func memberWithoutACatalogQuorum(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	q := createQueue(t, c.nodes[0], "q")
	for _, node := range c.nodes {
		kit.Eventually(t, "it knows the queue", func() bool {
			_, known := node.Router().KnownEntity(q.ID)
			return known
		})
		kit.OK(t, node.replicas.Group(fsm.CatalogPartition).Snapshot(t.Context()))
	}
	for i := range c.nodes {
		c.kill(i)
	}
	node := c.start(0)
	kit.Eventually(t, "its catalog is open", func() bool { return node.replicas.Group(fsm.CatalogPartition) != nil })
	if at, err := node.Router().In(fsm.DefaultNamespace).Resolve(t.Context(), "q"); err != nil || at.ID != q.ID {
		t.Errorf("the name resolves to %d, %v; it is %d", at.ID, err, q.ID)
	}
	if node.Router().AwaitConfirmed(t.Context()) {
		t.Error("rules are believed without a leader of the catalog")
	}
	if _, err := node.Router().NamespaceByHost(t.Context(), "shop.example.com"); !errors.Is(err, fsm.ServerBusy) {
		t.Errorf("an unknown host: %v, not ServerBusy", err)
	}
	if id, err := node.Router().NamespaceByHost(t.Context(), "127.0.0.1:5672"); err != nil || id != fsm.DefaultNamespace {
		t.Errorf("an address selects %d, %v", id, err)
	}
	c.start(1)
	kit.Eventually(t, "rules are believed once the catalog has a leader", func() bool { return node.Router().AwaitConfirmed(t.Context()) })
}
