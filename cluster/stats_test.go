package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// stats returns the statistics of all members.
func (c *testCluster) stats(entities int) (all []Stats) {
	for _, node := range c.nodes {
		if node != nil {
			all = append(all, node.Stats(entities))
		}
	}
	return all
}

// find sums the statistics of an entity over the members; who is the number of members that report it.
func find(all []Stats, name string) (sum EntityStats, reporting int) {
	for _, s := range all {
		for _, e := range s.Entities {
			if e.Name == name {
				reporting++
				sum.Namespace, sum.Name, sum.Kind, sum.Oldest = e.Namespace, e.Name, e.Kind, max(sum.Oldest, e.Oldest)
				sum.Counts = entities.AddCounts(sum.Counts, e.Counts)
			}
		}
	}
	return sum, reporting
}

// TestStatsCountEntitiesAndMessages checks that the statistics of all members add up, each entity once.
func TestStatsCountEntitiesAndMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 3, 4)
		c.startAll()
		var at []fsm.EntityRef
		for i := range 6 {
			at = append(at, createQueue(t, c.nodes[i%3], fmt.Sprintf("q%d", i)))
		}
		for i := range 6 {
			for range i {
				sendMessage(t, c.nodes[0], at[i], "x")
			}
		}
		space := c.nodes[0].Router().In(fsm.DefaultNamespace)
		settings := testSettings
		settings.EnablePartitioning = true
		wide := kit.Must(space.CreateEntity(t.Context(), fsm.QueueEntity, "wide", settings, nil, nil))(t)
		for i := range 20 {
			sendMessage(t, c.nodes[i%3], fsm.EntityRef{Entity: wide}, "x")
		}
		kit.Eventually(t, "every entity is shown by who leads it, with what it holds", func() bool {
			all := c.stats(100)
			for i := range 6 {
				e, who := find(all, fmt.Sprintf("q%d", i))
				if who != 1 || e.Active != uint64(i) || e.Namespace != "default" || (e.Oldest > 0) != (i > 0) {
					return false
				}
			}
			e, _ := find(all, "wide")
			return e.Active == 20
		})

		var all []Stats
		led, shown, want := 0, 0, 0
		kit.Eventually(t, "five partitions are led, and what is led is shown or counted", func() bool {
			all, led, shown, want = c.stats(2), 0, 0, 6+shardsSeen(c, &wide)
			for _, s := range all {
				led += s.Led
				shown += len(s.Entities) + s.Omitted
			}
			return led == 5 && shown == want
		})
		requests := uint64(0)
		for i, s := range all {
			requests += s.Requests.Requests
			if s.Alive != 3 || s.Dead != 0 || s.Cluster == "" || s.Member != c.nodes[i].ID() || len(s.Partitions) != 5 || len(s.Entities) > 2 {
				t.Errorf("member %d says %d alive, %d dead, %d replicas, %d entities", i, s.Alive, s.Dead, len(s.Partitions), len(s.Entities))
			}
			if s.Streams.Dialled == 0 || s.Streams.Accepted == 0 || s.Streams.Forward == 0 || s.Streams.Untrusted != 0 {
				t.Errorf("member %d: %+v", i, s.Streams)
			}
			if s.Store.Commits == 0 || s.Store.FileBytes == 0 || s.Store.FreeBytes == 0 || s.Store.DiskBytes < s.Store.FreeBytes {
				t.Errorf("member %d: store %+v", i, s.Store)
			}
			if len(s.Entities) == 2 && s.Entities[0].messages() < s.Entities[1].messages() {
				t.Errorf("member %d shows %d before %d", i, s.Entities[0].messages(), s.Entities[1].messages())
			}
		}
		if requests < 35 {
			t.Errorf("%d requests, want 35 or more", requests)
		}
		if none := c.nodes[0].Stats(0); len(none.Entities) != 0 {
			t.Errorf("asked for no entities and got %d", len(none.Entities))
		}
	})
}

// shardsSeen returns how many members lead a shard.
func shardsSeen(c *testCluster, e *fsm.Entity) int {
	members := map[int]bool{}
	for _, shard := range e.Shards {
		members[c.leader(shard.Partition)] = true
	}
	return len(members)
}

// TestRequestStatsCountRetries checks that requests that end busy or late are counted as such, and that retries
// are counted too.
func TestRequestStatsCountRetries(t *testing.T) {
	kit.Long(t)
	inBubble(t, requestStatsCountRetries)
}

func requestStatsCountRetries(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	for i := range c.configs {
		c.configs[i].Timing.Retry = 5 * time.Second // the duration of the send below
	}
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	leader := c.leader(at.Partition)
	client := c.nodes[(leader+1)%3]
	sendMessage(t, client, at, "one")
	before := client.Stats(0).Requests
	if before.Requests == 0 || before.Took.Count == 0 || before.Busy != 0 || before.Timeouts != 0 {
		t.Fatalf("before: %+v", before)
	}
	c.kill(leader)
	c.kill((leader + 2) % 3)
	done := make(chan fsm.Code, 1)
	client.Router().Send(at, []fsm.Message{{Payload: []byte("two")}}, func(code fsm.Code) { done <- code })
	if code := <-done; code != fsm.ServerBusy && code != fsm.Timeout {
		t.Fatalf("without a quorum: %v", code)
	}
	f := client.Stats(0).Requests
	if f.Busy+f.Timeouts == 0 || f.Took.Sum < before.Took.Sum+time.Second {
		t.Errorf("after: %+v", f)
	}
	if s := client.Stats(0).Streams; s.Failed == 0 {
		t.Errorf("nobody is there and %d dials failed", s.Failed)
	}
}

// BenchmarkStats shows that scanning many entities is cheap; no state machine is locked for long.
func BenchmarkStats(b *testing.B) {
	config := Default()
	config.Dir, config.Logger, config.Expect, config.Partitions = b.TempDir(), testLogger(), 1, 4
	config.PeerAddr, config.GossipAddr = "127.0.0.1:0", "127.0.0.1:0"
	node, err := Open(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close(context.Background())
	if err := node.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	space := node.Router().In(fsm.DefaultNamespace)
	for i := range 1000 {
		if _, err := space.CreateEntity(b.Context(), fsm.QueueEntity, fmt.Sprintf("q%04d", i), testSettings, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if s := node.Stats(1000); len(s.Entities) != 1000 {
			b.Fatalf("%d entities", len(s.Entities))
		}
	}
}

// TestStatsCountMovingPartitions checks that a partition counts as moving while it has a target and is not
// paused.
func TestStatsCountMovingPartitions(t *testing.T) {
	t.Parallel()
	n := &Node{}
	if got := n.movingPartitions(); len(got) != 0 {
		t.Errorf("before the catalog is loaded: %v", got)
	}
	target := []fsm.Replica{{Member: "m"}}
	n.partitions.Store(&[]fsm.Partition{{ID: 1}, {ID: 2, Target: target}, {ID: 3, Target: target, Paused: true}})
	if d := cmp.Diff(map[fsm.PartitionID]bool{2: true}, n.movingPartitions()); d != "" {
		t.Error(d)
	}
}
