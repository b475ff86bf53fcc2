package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestDeletedEntitiesAreKnownAtEveryMember checks that each member learns within a second that an entity was deleted, although
// another one has its name, and considers none deleted that it does not know yet.
func TestDeletedEntitiesAreKnownAtEveryMember(t *testing.T) {
	inBubble(t, deletedEntitiesAreKnownAtEveryMember)
}

func deletedEntitiesAreKnownAtEveryMember(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	old := c.make(fsm.QueueEntity, "orders", nil)
	deleted := func(node *Node) []fsm.EntityID {
		return node.Router().Deleted([]fsm.EntityID{old.ID, old.ID + 1, old.ID + 2})
	}
	for i, node := range c.nodes {
		if got := deleted(node); len(got) != 0 {
			t.Fatalf("member %d: %v are deleted, want none", i, got)
		}
	}
	c.remove(old)
	recreated := c.make(fsm.QueueEntity, "orders", nil)
	start := time.Now()
	for i, node := range c.nodes {
		for changed := node.Router().Changes(); len(deleted(node)) == 0; changed = node.Router().Changes() {
			<-changed
		}
		if got, took := deleted(node), time.Since(start); !slices.Equal(got, []fsm.EntityID{old.ID}) || recreated.ID == old.ID || took > time.Second {
			t.Errorf("member %d: %v are deleted after %v, want %d", i, got, took, old.ID)
		}
	}
}

// TestResolveRefusesByTheNewestSettings checks that once a change was answered, no member considers an entity
// forwarding or disabled that no longer is: a receiver that is refused for such a reason does not retry.
func TestResolveRefusesByTheNewestSettings(t *testing.T) {
	inBubble(t, resolveRefusesByTheNewestSettings)
}

func resolveRefusesByTheNewestSettings(t *testing.T) {
	const rounds = 30
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	c.make(fsm.QueueEntity, "to", nil)
	c.make(fsm.QueueEntity, "from", nil)
	set := func(member int, change func(*fsm.EntitySettings)) {
		t.Helper()
		settings := testSettings
		change(&settings)
		kit.Must(c.nodes[member].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, "from", settings))(t)
	}
	for round := range rounds {
		set(round%3, func(s *fsm.EntitySettings) {
			if s.ForwardTo = "to"; round%2 == 1 {
				s.ForwardTo, s.Status = "", fsm.Disabled
			}
		})
		set(round%3, func(*fsm.EntitySettings) {})
		for i, node := range c.nodes {
			place := kit.Must(node.Router().In(fsm.DefaultNamespace).Resolve(t.Context(), "from"))(t)
			if to := place.Settings.ForwardTo; to != "" || place.Settings.Status != fsm.Active {
				t.Fatalf("round %d: member %d resolves from with ForwardTo %q and status %v, want none and active", round, i, to, place.Settings.Status)
			}
		}
	}
}

// TestDisabledEntitiesAreRefusedAtEveryMember checks that once a status without receiving was answered, every member knows it,
// and no receiver hears that there are no messages: a client that is attached, and detached at its first request, reports an
// empty receive.
func TestDisabledEntitiesAreRefusedAtEveryMember(t *testing.T) {
	inBubble(t, disabledEntitiesAreRefusedAtEveryMember)
}

func disabledEntitiesAreRefusedAtEveryMember(t *testing.T) {
	const rounds = 10
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	for name, change := range map[string]func(*fsm.EntitySettings){"plain": nil, "sharded": partitioned} {
		at := c.make(fsm.QueueEntity, name, change)
		set := func(member int, status fsm.EntityStatus) {
			t.Helper()
			settings := at.Settings
			settings.Status = status
			kit.Must(c.nodes[member].Router().In(fsm.DefaultNamespace).UpdateEntity(t.Context(), fsm.QueueEntity, name, settings))(t)
		}
		var receivers []*router.Receiver
		for _, node := range c.nodes {
			receiver := node.Router().Receiver(at, false)
			t.Cleanup(receiver.Close)
			receivers = append(receivers, receiver)
		}
		for round := range rounds {
			for i, receiver := range receivers {
				for range 3 { // the last ones are answered without a command
					if got := lockMessages(receiver, 1, 0); got.code != fsm.OK {
						t.Fatalf("%s, round %d: receive at member %d: %v", name, round, i, got.code)
					}
				}
			}
			set(round%3, []fsm.EntityStatus{fsm.Disabled, fsm.ReceiveDisabled}[round%2])
			for i, node := range c.nodes {
				place := kit.Must(node.Router().In(fsm.DefaultNamespace).Resolve(t.Context(), name))(t)
				if place.Settings.Status.AllowsReceive() {
					t.Errorf("%s, round %d: member %d takes it for %v", name, round, i, place.Settings.Status)
				}
				if got := lockMessages(receivers[i], 1, 0); got.code != fsm.EntityDisabled {
					t.Errorf("%s, round %d: receive at member %d: %v", name, round, i, got.code)
				}
			}
			set(round%3, fsm.Active)
		}
	}
}
