package cluster

import (
	"maps"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// TestStatusShowsNewestPlacement checks that partitions are listed where the catalog's leader has them, also at
// a member that does not have the last change yet.
func TestStatusShowsNewestPlacement(t *testing.T) { inBubble(t, statusShowsNewestPlacement) }

func statusShowsNewestPlacement(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	n := c.nodes[(c.leader(fsm.CatalogPartition)+1)%3]
	kit.Eventually(t, "the status has the placement of the catalog's leader", func() bool { // there may be none for a moment
		n.partitions.Store(&[]fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: n.self}}}})
		status := kit.Must(n.Status(t.Context()))(t)
		return len(status.Partitions) == 3 && len(status.Partitions[1].Replicas) == 3
	})
}

// TestDeadMemberIsListedAfterTheOthersRestart: gossip forgets a dead member when the others restart. The catalog does not:
// status, member list and metrics show the member by its name until it returns or is removed.
func TestDeadMemberIsListedAfterTheOthersRestart(t *testing.T) {
	inBubble(t, deadMemberIsListedAfterTheOthersRestart)
}

func deadMemberIsListedAfterTheOthersRestart(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	for _, node := range c.nodes {
		kit.Eventually(t, "each member records its name", func() bool { return c.nodes[0].memberRecord(node.self).Name == node.config.Name })
	}
	gone := c.nodes[2].self
	c.kill(2)
	for i := range 2 {
		c.stop(i)
	}
	for i := range 2 {
		c.start(i)
	}
	c.ready()
	n := c.nodes[0]
	list := func() map[string]string {
		status := kit.Must(n.Status(t.Context()))(t)
		states := make(map[string]string)
		for _, m := range status.Members {
			states[m.Name] = m.State
		}
		return states
	}
	kit.Eventually(t, "the other member is alive", func() bool { return list()["m1"] == topology.Alive })
	if got, want := list(), (map[string]string{"m0": "alive", "m1": "alive", "m2": "dead"}); !maps.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	stats := n.Stats(0)
	if stats.Alive != 2 || stats.Dead != 1 {
		t.Errorf("%d members are alive and %d dead, want 2 and 1", stats.Alive, stats.Dead)
	}
	for _, p := range stats.Partitions {
		if p.Missing != 1 {
			t.Errorf("partition %d: %d replicas are missing, want 1", p.ID, p.Missing)
		}
	}
	kit.OK(t, retryUntilLed(t, func() error { return n.Operator().RemoveMember(t.Context(), gone) }))
	kit.Eventually(t, "no replica is missing", func() bool {
		stats = n.Stats(0)
		return !slices.ContainsFunc(stats.Partitions, func(p PartitionStats) bool { return p.Missing > 0 })
	})
	if got, want := list(), (map[string]string{"m0": "alive", "m1": "alive"}); !maps.Equal(got, want) || stats.Dead != 0 {
		t.Errorf("after the removal: members %v, %d dead, want %v and none dead", got, stats.Dead, want)
	}
}
