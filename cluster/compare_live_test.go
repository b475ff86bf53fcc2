package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// checkpointAt is the index at which replicas are first compared (partition.checkpointEntries).
const checkpointAt = 4096

// diverge makes a replica differ from the others as a memory fault would: it loses messages. Apply runs
// concurrently only if the test sends something.
func diverge(t *testing.T, node *Node, id fsm.PartitionID, purge fsm.PurgeMessages) {
	t.Helper()
	group := node.replicas.Group(id)
	group.View(func(m partition.Machine) {
		queues := raftgroup.Queues(m)
		result := queues.Apply(fsm.Env{Index: group.Status().Applied, Now: 1}, fsm.AppendCommand(nil, fsm.Header{}, purge))
		if result.Code != fsm.OK || result.Count != uint64(purge.Max) {
			t.Errorf("plant: %+v", result)
		}
	})
}

// advanceTo extends a partition's log beyond an index, whichever member leads it.
func advanceTo(t *testing.T, c *testCluster, id fsm.PartitionID, index uint64) {
	t.Helper()
	var pushing sync.WaitGroup
	for range 4 {
		pushing.Go(func() {
			at := 0
			for t.Context().Err() == nil {
				group := c.nodes[at].replicas.Group(id)
				done := make(chan partition.Answer, 1)
				group.Submit(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}), func(a partition.Answer) { done <- a })
				if a := <-done; a.Outcome != partition.Done {
					at = (at + 1) % len(c.nodes)
					sleep(t.Context(), time.Millisecond) // there may be no leader now
				} else if group.Status().Applied > index {
					return
				}
			}
		})
	}
	pushing.Wait()
}

// awaitSameApplied waits until all replicas have applied the same entries.
func awaitSameApplied(t *testing.T, c *testCluster, id fsm.PartitionID) {
	t.Helper()
	kit.Eventually(t, "all have applied the same", func() bool {
		var at []uint64
		for _, node := range c.nodes {
			at = append(at, node.replicas.Group(id).Status().Applied)
		}
		return slices.Min(at) == slices.Max(at)
	})
}

// divergence is a partition of a cluster whose replicas will differ.
type divergence struct {
	*testCluster
	id     fsm.PartitionID
	at     fsm.EntityRef
	leader int
}

func halted(node *Node, id fsm.PartitionID) error {
	if group := node.replicas.Group(id); group != nil {
		return group.Status().Halted
	}
	return nil
}

func lockSome(t *testing.T, node *Node, at fsm.EntityRef, n int) {
	t.Helper()
	r := node.Router().Receiver(at, false)
	defer r.Close()
	if got := lockMessages(r, n, waitMax); got.code != fsm.OK || len(got.deliveries) != n {
		t.Fatalf("%v, %d deliveries", got.code, len(got.deliveries))
	}
}

// TestDivergedReplicasAreHalted makes replicas diverge in three partitions, in each in another way. Before
// replicas are compared, they must have applied some thousand entries, one disk write after the other: the
// three partitions do that at the same time.
func TestDivergedReplicasAreHalted(t *testing.T) {
	kit.Long(t)
	inBubble(t, divergedReplicasAreHalted)
}

func divergedReplicasAreHalted(t *testing.T) {
	c := newBubbleCluster(t, 3, 3)
	for i := range c.configs { // leaders that keep their leadership on a busy machine
		raft := &c.configs[i].Timing.Raft
		raft.Heartbeat, raft.Election, raft.Lease = 2*time.Second, 2*time.Second, time.Second
	}
	c.startAll()
	plants := []func(divergence) (after func()){divergence.aReplica, divergence.theLeader, divergence.all}
	var pushing sync.WaitGroup
	after := make([]func(), len(plants))
	for i, plant := range plants {
		at := createQueue(t, c.nodes[0], fmt.Sprint("q", i))
		for range 3 {
			sendMessage(t, c.nodes[0], at, "x")
		}
		awaitSameApplied(t, c, at.Partition)
		after[i] = plant(divergence{c, at.Partition, at, c.leader(at.Partition)})
		pushing.Go(func() { advanceTo(t, c, at.Partition, checkpointAt) })
	}
	pushing.Wait()
	for _, check := range after {
		check()
	}
}

// aReplica checks that one replica that has diverged stops, and no other, and that clients continue at every
// member. Moving the partition off its member and back gives a new replica, equal to the others.
func (d divergence) aReplica() (after func()) {
	t, odd := d.t, (d.leader+1)%3
	diverge(t, d.nodes[odd], d.id, fsm.PurgeMessages{Address: d.at.Address(), Max: 1})
	lockSome(t, d.nodes[d.leader], d.at, 3)
	return func() {
		kit.Eventually(t, "it stops", func() bool { return errors.Is(halted(d.nodes[odd], d.id), partition.ErrDiverged) })
		for i, node := range d.nodes {
			sendMessage(t, node, d.at, "y")
			if err := halted(node, d.id); i != odd && err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		}
		operator := d.nodes[odd].Operator()
		ids := []fsm.MemberID{d.nodes[d.leader].self, d.nodes[(d.leader+2)%3].self, d.nodes[odd].self}
		for _, members := range [][]fsm.MemberID{ids[:2], ids} {
			kit.OK(t, retryUntilLed(t, func() error { return operator.Move(t.Context(), d.id, members) }))
			kit.Eventually(t, "it is moved", func() bool {
				all, err := operator.node.placementFromLeader(t.Context(), d.id)
				if err != nil || all.Partitions[0].Target != nil || len(all.Partitions[0].Replicas) != len(members) {
					return false
				}
				left, err := operator.Moves(t.Context())
				return err == nil && len(left) == 0
			})
		}
		if err := halted(d.nodes[odd], d.id); err != nil {
			t.Errorf("the new replica: %v", err)
		}
		kit.Eventually(t, "all three are equal", func() bool {
			v, err := operator.Verify(t.Context(), d.id)
			return err == nil && v.Equal && len(v.Replicas) == 3
		})
		if n := countMessages(t, d.nodes[odd], d.at); n.Active != 6 {
			t.Errorf("%+v", n)
		}
	}
}

// theLeader checks that a leader that has diverged stops, and that another replica leads.
func (d divergence) theLeader() (after func()) {
	t := d.t
	diverge(t, d.nodes[d.leader], d.id, fsm.PurgeMessages{Address: d.at.Address(), Max: 1})
	lockSome(t, d.nodes[d.leader], d.at, 2)
	return func() {
		kit.Eventually(t, "it stops", func() bool { return errors.Is(halted(d.nodes[d.leader], d.id), partition.ErrDiverged) })
		for i, node := range d.nodes {
			sendMessage(t, node, d.at, "y")
			if err := halted(node, d.id); i != d.leader && err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		}
	}
}

// all checks that all replicas continue if each has another state, because none can be shown to be wrong; a
// statistic reports it.
func (d divergence) all() (after func()) {
	t := d.t
	diverge(t, d.nodes[(d.leader+1)%3], d.id, fsm.PurgeMessages{Address: d.at.Address(), Max: 1})
	diverge(t, d.nodes[(d.leader+2)%3], d.id, fsm.PurgeMessages{Address: d.at.Address(), Max: 2})
	lockSome(t, d.nodes[d.leader], d.at, 3)
	told := func(node *Node) bool {
		return slices.ContainsFunc(node.Stats(0).Partitions, func(p PartitionStats) bool { return p.ID == d.id && p.Undecided })
	}
	return func() {
		kit.Eventually(t, "the leader tells, and nobody else", func() bool {
			leader := d.testCluster.leader(d.id)
			for i, node := range d.nodes {
				if told(node) != (i == leader) {
					return false
				}
			}
			return true
		})
		sendMessage(t, d.nodes[0], d.at, "y")
		for i, node := range d.nodes {
			if err := halted(node, d.id); err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		}
	}
}
