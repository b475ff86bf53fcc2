package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestBootstrapSpreadsOverZones checks that the first placement uses the zones, and that the catalog then has
// them.
func TestBootstrapSpreadsOverZones(t *testing.T) { inBubble(t, bootstrapSpreadsOverZones) }

func bootstrapSpreadsOverZones(t *testing.T) {
	c := newBubbleCluster(t, 4, 6)
	for i := range c.configs {
		c.configs[i].Zone = []string{"east", "east", "east", "west"}[i]
		c.configs[i].Replication = 2
	}
	c.startAll()
	west := c.nodes[3].self
	for _, part := range *c.nodes[0].partitions.Load() {
		if !placement.HoldsReplica(&part, west) || part.Last != 2 {
			t.Errorf("partition %d lies in one zone: %v", part.ID, part.Replicas)
		}
	}
	kit.Eventually(t, "the catalog knows the zones", func() bool {
		for i, node := range c.nodes {
			if c.nodes[0].memberRecord(node.self).Zone != c.configs[i].Zone {
				return false
			}
		}
		return true
	})
	// A zone that an operator sets holds until the member starts again.
	moved := c.nodes[0].memberRecord(west)
	moved.Zone = "north"
	kit.OK(t, retryUntilLed(t, func() error { return c.nodes[1].Operator().SetMember(t.Context(), moved) }))
	c.awaitReconciles(5)
	if zone := c.nodes[1].memberRecord(west).Zone; zone != "north" {
		t.Fatalf("the zone is %q", zone)
	}
	c.stop(3)
	c.start(3)
	c.ready()
	kit.Eventually(t, "the catalog knows the zone of the configuration", func() bool { return c.nodes[0].memberRecord(west).Zone == "west" })
}

// TestRebalanceFillsNewMembers adds a fourth and a fifth member under load; the cluster gives them replicas
// without an operator.
func TestRebalanceFillsNewMembers(t *testing.T) {
	kit.Long(t)
	inBubble(t, rebalanceFillsNewMembers)
}

func rebalanceFillsNewMembers(t *testing.T) {
	c := newGrowingClusterOf(t, 3, 5, 8, func(config *Config) { config.Rebalance = true })
	at := createQueue(t, c.nodes[0], "orders")
	x := c.traffic(c.nodes[:2], at)
	for i := 3; i < 5; i++ {
		fresh := c.startMore(i)
		share := 8*3/(i+1) - 1 // one replica less is no reason for a move
		kit.Eventually(t, "the new member has its share", func() bool {
			placed := *c.nodes[0].partitions.Load()
			return placement.ReplicaCounts(placed)[fresh] >= share && !slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.Target != nil })
		})
	}
	x.stop()
	c.clean(c.settled())
}

// setDeadSince makes every dead member appear to have been dead for longer. Tests then do not wait for what
// depends on that time, nor does it happen too early because a busy member was considered dead.
func (c *testCluster) setDeadSince(longer time.Duration) {
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		node.gossip.Backdate(longer)
	}
}

// newGrowingClusterOf is newGrowingCluster with changed configurations.
func newGrowingClusterOf(t *testing.T, founders, members, partitions int, change func(*Config)) *testCluster {
	t.Helper()
	c := newBubbleCluster(t, members, partitions)
	for i := range c.configs {
		c.configs[i].Expect = founders
		c.configs[i].Timing.Rejoin = 50 * time.Millisecond
		change(&c.configs[i])
	}
	for i := range founders {
		c.start(i)
	}
	c.ready()
	return c
}

// TestDeadMemberIsReplaced checks that other members get the replicas of a dead member. When it comes back, it
// removes its former replicas and gets its share again.
func TestDeadMemberIsReplaced(t *testing.T) {
	kit.Long(t)
	inBubble(t, deadMemberIsReplaced)
}

func deadMemberIsReplaced(t *testing.T) {
	c := newGrowingClusterOf(t, 4, 4, 4, func(config *Config) { config.Rebalance, config.ReplaceAfter = true, time.Hour })
	at := createQueue(t, c.nodes[0], "orders")
	for i := range 50 {
		sendMessage(t, c.nodes[i%4], at, time.Duration(i).String())
	}
	dead := c.leader(at.Partition)
	id := c.nodes[dead].self
	c.kill(dead)
	node := c.any()
	kit.Eventually(t, "others hold what it held", func() bool {
		c.setDeadSince(time.Hour)
		placed := *node.partitions.Load()
		return placement.ReplicaCounts(placed)[id] == 0 && !slices.ContainsFunc(placed, func(p fsm.Partition) bool { return len(p.Replicas) != 3 || p.Target != nil })
	})
	if node.memberRecord(id).Removed {
		t.Fatal("it was removed for good")
	}
	if counts := countMessages(t, node, at); counts.Active != 50 {
		t.Fatalf("%+v", counts)
	}
	c.settled()
	c.start(dead)
	c.ready()
	kit.Eventually(t, "it has its share again", func() bool {
		return placement.ReplicaCounts(*node.partitions.Load())[id] >= 2 // of 3: one replica less is no reason for a move
	})
	c.clean(c.settled())
	if counts := countMessages(t, c.nodes[dead], at); counts.Active != 50 {
		t.Fatalf("%+v", counts)
	}
}

// TestOutageStartsNoMoves checks that nothing is copied when two of five members are away, nor when one of
// three is, which no member can replace.
func TestOutageStartsNoMoves(t *testing.T) {
	kit.Long(t)
	inBubble(t, outageStartsNoMoves)
}

func outageStartsNoMoves(t *testing.T) {
	for _, x := range []struct{ members, down int }{{5, 2}, {3, 1}} {
		c := newGrowingClusterOf(t, x.members, x.members, 4, func(config *Config) { config.Rebalance, config.ReplaceAfter = true, time.Hour })
		before := slices.Clone(*c.nodes[x.members-1].partitions.Load())
		for i := range x.down {
			c.nodes[i].gossip.Abort() // both become silent at the same time
		}
		for i := range x.down {
			c.kill(i)
		}
		node := c.nodes[x.members-1]
		for _, node := range c.nodes[x.down:] {
			kit.Eventually(t, "they are gone", func() bool { return len(node.gossip.Alive()) == x.members-x.down })
		}
		c.setDeadSince(2 * time.Hour)
		c.awaitReconciles(20)
		if !slices.EqualFunc(before, *node.partitions.Load(), samePlacement) {
			t.Errorf("%d of %d away: %v became %v", x.down, x.members, before, *node.partitions.Load())
		}
	}
}

// TestLostCatalogVoteIsReplaced checks that two more members get a vote while one of three voters of the
// catalog is away for long, so that the catalog survives the loss of another.
func TestLostCatalogVoteIsReplaced(t *testing.T) {
	kit.Long(t)
	inBubble(t, lostCatalogVoteIsReplaced)
}

func lostCatalogVoteIsReplaced(t *testing.T) {
	c := newGrowingClusterOf(t, 3, 5, 1, func(config *Config) { config.ReplaceAfter = time.Hour })
	c.startMore(3)
	c.startMore(4)
	voters := func() int {
		status, err := leaderStatus(t.Context(), c.any(), fsm.CatalogPartition)
		if err != nil {
			return 0
		}
		return len(status.Voters)
	}
	c.awaitReconciles(20)
	kit.Eventually(t, "three vote while all are here", func() bool { return voters() == 3 })
	c.kill(0)
	kit.Eventually(t, "five vote", func() bool {
		c.setDeadSince(time.Hour)
		return voters() == 5
	})
	c.kill(1)
	if _, err := c.nodes[4].Router().Command(t.Context(), fsm.CatalogPartition, fsm.CreateNamespace{Name: "team"}); err != nil {
		t.Fatalf("with two of five away: %v", err)
	}
	c.start(0)
	c.start(1)
	c.ready()
	c.awaitReconciles(10)
	kit.Eventually(t, "five vote when all are back", func() bool { return voters() == 5 })
}
