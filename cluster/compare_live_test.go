package cluster

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// checkpointAt is where replicas are first compared (partition.checkpointEntries).
const checkpointAt = 4096

// plant makes a replica differ from the others, as a fault in memory would: it loses
// messages. Apply goes on beside it only when the test sends something.
func plant(t *testing.T, node *Node, id fsm.PartitionID, purge fsm.PurgeMessages) {
	t.Helper()
	group := (*node.groups.Load())[id]
	group.View(func(m partition.Machine) {
		queues := queuesOf(m)
		result := queues.Apply(fsm.Env{Index: group.Status().Applied, Now: 1}, fsm.AppendCommand(nil, fsm.Header{}, purge))
		if result.Code != fsm.OK || result.Count != uint64(purge.Max) {
			t.Errorf("plant: %+v", result)
		}
	})
}

// pushOn fills a partition's log beyond an index, whoever leads it.
func pushOn(t *testing.T, c *testCluster, id fsm.PartitionID, index uint64) {
	t.Helper()
	var pushing sync.WaitGroup
	for range 4 {
		pushing.Go(func() {
			at := 0
			for t.Context().Err() == nil {
				group := (*c.nodes[at].groups.Load())[id]
				done := make(chan partition.Answer, 1)
				group.Submit(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}), func(a partition.Answer) { done <- a })
				if a := <-done; a.Outcome != partition.Done {
					at = (at + 1) % len(c.nodes)
					wait(t.Context(), time.Millisecond) // nobody may lead just now
				} else if group.Status().Applied > index {
					return
				}
			}
		})
	}
	pushing.Wait()
}

// sameApplied waits until all replicas have applied the same.
func sameApplied(t *testing.T, c *testCluster, id fsm.PartitionID) {
	t.Helper()
	eventually(t, "all have applied the same", func() bool {
		var at []uint64
		for _, node := range c.nodes {
			at = append(at, (*node.groups.Load())[id].Status().Applied)
		}
		return slices.Min(at) == slices.Max(at)
	})
}

// aPartition makes three members with one partition, a queue and messages in it.
func aPartition(t *testing.T, messages int) (*testCluster, fsm.Place, int) {
	t.Helper()
	c := newTestCluster(t, 3, 1)
	for i := range c.configs { // a leader that stays, on a busy machine too
		raft := &c.configs[i].Timing.Raft
		raft.Heartbeat, raft.Election, raft.Lease = 2*time.Second, 2*time.Second, time.Second
	}
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	for range messages {
		sendMessage(t, c.nodes[0], at, "x")
	}
	sameApplied(t, c, 1)
	return c, at, c.leader(1)
}

func halted(node *Node, id fsm.PartitionID) error {
	if group := (*node.groups.Load())[id]; group != nil {
		return group.Status().Halted
	}
	return nil
}

func lockSome(t *testing.T, node *Node, at fsm.Place, n int) {
	t.Helper()
	r := node.Router().Receiver(at, false)
	defer r.Close()
	if got := lockMessages(r, n, waitMax); got.code != fsm.OK || len(got.deliveries) != n {
		t.Fatalf("%v, %d deliveries", got.code, len(got.deliveries))
	}
}

// A replica that has become different stops, it alone, and clients go on at every member.
// Moving the partition off its member and back gives a new replica, equal to the others.
func TestReplicaThatDiffersStops(t *testing.T) {
	t.Parallel()
	c, at, leader := aPartition(t, 2)
	odd := (leader + 1) % 3
	plant(t, c.nodes[odd], 1, fsm.PurgeMessages{Address: at.Address(), Max: 1})
	lockSome(t, c.nodes[leader], at, 2)
	pushOn(t, c, 1, checkpointAt)
	eventually(t, "it stops", func() bool { return errors.Is(halted(c.nodes[odd], 1), partition.ErrDiverged) })
	for i, node := range c.nodes {
		sendMessage(t, node, at, "y")
		if err := halted(node, 1); i != odd && err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}

	ids := []fsm.MemberID{c.nodes[leader].self, c.nodes[(leader+2)%3].self, c.nodes[odd].self}
	for _, members := range [][]fsm.MemberID{ids[:2], ids} {
		if err := c.nodes[odd].Router().Move(t.Context(), 1, members); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is moved", func() bool {
			part, err := c.nodes[odd].Router().record(t.Context(), 1)
			if err != nil || part.Target != nil || len(part.Replicas) != len(members) {
				return false
			}
			left, err := c.nodes[odd].Router().Moves(t.Context())
			return err == nil && len(left) == 0
		})
	}
	if err := halted(c.nodes[odd], 1); err != nil {
		t.Errorf("the new replica: %v", err)
	}
	v, err := c.nodes[odd].Router().Verify(t.Context(), 1)
	if err != nil || !v.Equal() || len(v.Replicas) != 3 {
		t.Errorf("%+v %v", v, err)
	}
	if n := countMessages(t, c.nodes[odd], at); n.Active != 5 {
		t.Errorf("%+v", n)
	}
}

// A leader can be the one that is wrong: it stops, and another leads.
func TestLeaderThatDiffersStops(t *testing.T) {
	t.Parallel()
	c, at, leader := aPartition(t, 2)
	plant(t, c.nodes[leader], 1, fsm.PurgeMessages{Address: at.Address(), Max: 1})
	lockSome(t, c.nodes[leader], at, 1)
	pushOn(t, c, 1, checkpointAt)
	eventually(t, "it stops", func() bool { return errors.Is(halted(c.nodes[leader], 1), partition.ErrDiverged) })
	for i, node := range c.nodes {
		sendMessage(t, node, at, "y")
		if err := halted(node, 1); i != leader && err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
}

// Where every replica has something else nobody can be told to be wrong: all go on, and a
// figure says so.
func TestAllReplicasDiffer(t *testing.T) {
	t.Parallel()
	c, at, leader := aPartition(t, 3)
	plant(t, c.nodes[(leader+1)%3], 1, fsm.PurgeMessages{Address: at.Address(), Max: 1})
	plant(t, c.nodes[(leader+2)%3], 1, fsm.PurgeMessages{Address: at.Address(), Max: 2})
	lockSome(t, c.nodes[leader], at, 3)
	pushOn(t, c, 1, checkpointAt)
	told := func(node *Node) bool {
		return slices.ContainsFunc(node.Stats(0).Partitions, func(p PartitionFigures) bool { return p.ID == 1 && p.Undecided })
	}
	eventually(t, "the leader tells", func() bool { return told(c.nodes[c.leader(1)]) })
	sendMessage(t, c.nodes[0], at, "y")
	for i, node := range c.nodes {
		if err := halted(node, 1); err != nil {
			t.Errorf("member %d: %v", i, err)
		}
		if i != c.leader(1) && told(node) {
			t.Errorf("member %d tells too", i)
		}
	}
}
