package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/topology"
)

const (
	diskBytes = 100 << 30 // of the disks of these tests
	diskFree  = 50 << 30
	diskLow   = 1 << 30 // less than the reserve, which is 5 GiB
)

// fakeDisks gives each member a disk whose free space the test sets.
func fakeDisks(c *testCluster) []*atomic.Uint64 {
	free := make([]*atomic.Uint64, len(c.configs))
	for i := range free {
		free[i] = new(atomic.Uint64)
		free[i].Store(diskFree)
		c.configs[i].Sizes = partition.DefaultSizes()
		c.configs[i].Sizes.Ballast = -1
		c.configs[i].Free = func(string) (uint64, uint64, error) { return free[i].Load(), diskBytes, nil }
	}
	return free
}

func trySend(node *Node, at fsm.EntityRef, payload string) fsm.Code {
	done := make(chan fsm.Code, 1)
	node.Router().Send(at, []fsm.Message{{ID: payload, Payload: []byte(payload)}}, func(c fsm.Code) { done <- c })
	return <-done
}

// sendSteadily sends one message after the other at each member until stop, which returns how many.
func sendSteadily(t *testing.T, nodes []*Node, path string) (stop func() int) {
	t.Helper()
	var sending sync.WaitGroup
	var sent atomic.Int64
	ended := make(chan struct{})
	for _, node := range nodes {
		at := resolve(t, node, path)
		sending.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if code := trySend(node, at, "x"); code != fsm.OK {
					t.Errorf("send at %s: %v", node.config.Name, code)
					return
				}
				sent.Add(1)
				sleep(t.Context(), trafficPause)
			}
		})
	}
	return sync.OnceValue(func() int {
		close(ended)
		sending.Wait()
		return int(sent.Load())
	})
}

func (c *testCluster) ledBy(i int) (led []fsm.PartitionID) {
	for id, group := range c.nodes[i].replicas.All() {
		if group.Status().IsLeader {
			led = append(led, id)
		}
	}
	return led
}

// TestFullDiskMovesLeaderships checks that a leader whose disk is nearly full transfers its leaderships to
// members that have space, that of the catalog too, without an effect on clients. It gets nothing new, and gets
// its leaderships back when it has space again.
func TestFullDiskMovesLeaderships(t *testing.T) { inBubble(t, fullDiskMovesLeaderships) }

func fullDiskMovesLeaderships(t *testing.T) {
	c := newBubbleCluster(t, 3, 3)
	free := fakeDisks(c)
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	stop := sendSteadily(t, c.nodes, "q")
	defer stop()
	home := at.Partition
	preferred := (*c.nodes[0].partitions.Load())[home-1].Replicas[0].Member
	kit.Eventually(t, "the preferred member leads", func() bool {
		return slices.Contains(c.ledBy(c.index(preferred)), home)
	})
	full := c.index(preferred)
	free[full].Store(diskLow)
	kit.Eventually(t, "it leads no partition", func() bool { return len(c.ledBy(full)) == 0 })
	for i, node := range c.nodes {
		kit.Eventually(t, "the others know it", func() bool {
			status, err := node.Status(t.Context())
			return err == nil && slices.ContainsFunc(status.Members, func(m topology.Member) bool { return m.ID == preferred && m.ReadOnly })
		})
		if node.mover.AcceptsLeaders(preferred) || !node.mover.IsStaying(preferred) {
			t.Errorf("member %d does not know that its disk is full", i)
		}
		var all placement.Record
		kit.OK(t, retryUntilLed(t, func() (err error) {
			all, err = node.placementFromLeader(t.Context(), fsm.CatalogPartition)
			return err
		}))
		for _, s := range node.operator.Candidates(all, "") {
			if short := s.ID == preferred; s.AcceptsReplicas == short || s.AcceptsLeaders == short {
				t.Errorf("member %d gives a placement.Candidate %+v", i, s)
			}
		}
	}
	createQueue(t, c.nodes[full], "another")
	sendMessage(t, c.nodes[full], resolve(t, c.nodes[full], "another"), "y")
	if n := c.nodes[full].Stats(0); !n.Store.DiskSpace.ReadOnly || n.Requests.Busy != 0 {
		t.Errorf("%+v", n.Requests)
	}
	free[full].Store(diskFree)
	kit.Eventually(t, "it leads again", func() bool { return slices.Contains(c.ledBy(full), home) })
	if n := stop(); uint64(n) != countMessages(t, c.nodes[0], at).Active {
		t.Errorf("%d sends and %+v", n, countMessages(t, c.nodes[0], at))
	}
}

// TestAllDisksFullRefusesGrowth checks that without space on any member, sends and new entities are refused at
// once at every member, and that consuming continues. With space on two of three disks nothing is refused.
func TestAllDisksFullRefusesGrowth(t *testing.T) { inBubble(t, allDisksFullRefusesGrowth) }

func allDisksFullRefusesGrowth(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	free := fakeDisks(c)
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	for _, payload := range []string{"a", "b", "c"} {
		sendMessage(t, c.nodes[0], at, payload)
	}
	for _, f := range free {
		f.Store(diskLow)
	}
	kit.Eventually(t, "sends are refused everywhere", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *Node) bool { return trySend(n, at, "d") != fsm.ServerBusy })
	})
	tries := 0
	kit.Eventually(t, "new entities are refused everywhere", func() bool { // the leader of the catalog learns of the disks later
		return !slices.ContainsFunc(c.nodes, func(n *Node) bool {
			tries++
			_, err := n.Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, fmt.Sprint("try", tries), testSettings, nil, nil)
			return !errors.Is(err, fsm.ServerBusy)
		})
	})
	for _, node := range c.nodes {
		begun := time.Now() // a refusal that is not final takes Timing.Retry
		if code := trySend(node, at, "e"); code != fsm.ServerBusy || time.Since(begun) > testTiming().Retry/2 {
			t.Errorf("send: %v after %s", code, time.Since(begun))
		}
		_, err := node.Router().In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.QueueEntity, "new", testSettings, nil, nil)
		if !errors.Is(err, fsm.ServerBusy) {
			t.Errorf("create: %v", err)
		}
		r := node.Router().Receiver(at, false)
		got := lockMessages(r, 1, waitMax)
		if got.code != fsm.OK || len(got.deliveries) != 1 {
			t.Fatalf("%+v", got)
		}
		if code := settleMessage(t, node, at, got.deliveries[0].Lock, fsm.Complete); code != fsm.OK {
			t.Errorf("complete: %v", code)
		}
		r.Close()
	}
	leader := c.leader(at.Partition)
	free[leader].Store(diskFree)
	free[(leader+1)%3].Store(diskFree)
	kit.Eventually(t, "sends are taken", func() bool { return trySend(c.nodes[(leader+2)%3], at, "f") == fsm.OK })
	free[(leader+2)%3].Store(diskFree)
	kit.Eventually(t, "nobody is short", func() bool { return !slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.space.IsLow() }) })
	sendMessage(t, c.nodes[0], at, "g")
}

// TestAllMembersLowOnMemoryRefuseGrowth checks that all members refuse new messages and report why while
// SetLowMemory is set, because queued messages take memory on every member, and accept them again afterwards.
func TestAllMembersLowOnMemoryRefuseGrowth(t *testing.T) {
	inBubble(t, allMembersLowOnMemoryRefuseGrowth)
}

func allMembersLowOnMemoryRefuseGrowth(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	sendMessage(t, c.nodes[0], at, "a")
	for _, n := range c.nodes {
		n.SetLowMemory(true)
	}
	for _, n := range c.nodes {
		kit.Eventually(t, "sends are refused", func() bool { return trySend(n, at, "b") == fsm.ServerBusy })
		if reason := n.BusyReason(); !strings.Contains(reason, "memory") {
			t.Errorf("reason %q", reason)
		}
	}
	if got := countMessages(t, c.nodes[0], at).Active; got != 1 {
		t.Errorf("%d messages", got)
	}
	for _, n := range c.nodes {
		n.SetLowMemory(false)
	}
	for _, n := range c.nodes {
		kit.Eventually(t, "sends are taken", func() bool { return trySend(n, at, "c") == fsm.OK })
		if reason := n.BusyReason(); reason != "" {
			t.Errorf("reason %q", reason)
		}
	}
}

// TestSingleMemberWithAFullDiskKeepsItsLeaderships checks that a member alone keeps its leaderships, with and without space.
func TestSingleMemberWithAFullDiskKeepsItsLeaderships(t *testing.T) {
	inBubble(t, singleMemberWithAFullDiskKeepsItsLeaderships)
}

func singleMemberWithAFullDiskKeepsItsLeaderships(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	free := fakeDisks(c)
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	free[0].Store(diskLow)
	kit.Eventually(t, "sends are refused", func() bool { return trySend(c.nodes[0], at, "a") == fsm.ServerBusy })
	free[0].Store(diskFree)
	kit.Eventually(t, "sends are taken", func() bool { return trySend(c.nodes[0], at, "b") == fsm.OK })
}

// TestClientsLeaveALeaderThatCannotStoreATerm: a leader refuses messages because no other member has space. When they have, one of
// them leads, and raft's main goroutine of the former leader waits for space for the new term.
func TestClientsLeaveALeaderThatCannotStoreATerm(t *testing.T) {
	inBubble(t, clientsLeaveALeaderThatCannotStoreATerm)
}

func clientsLeaveALeaderThatCannotStoreATerm(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	free := fakeDisks(c)
	c.startAll()
	at := createQueue(t, c.nodes[0], "q")
	former := c.leader(at.Partition)
	next := (former + 1) % 3
	free[next].Store(diskLow)
	free[(former+2)%3].Store(diskLow)
	kit.Eventually(t, "the partition is read-only", func() bool { return trySend(c.nodes[former], at, "x") == fsm.ServerBusy })
	c.hosts[former].disk.Intercept(func(call, path string) (f simfs.Failure) {
		if call == simfs.CallLogSet {
			f.Err = simfs.PathError(call, path, syscall.ENOSPC)
		}
		return f
	})
	if err := c.nodes[former].replicas.Group(at.Partition).HandOver(t.Context(), c.nodes[next].self); err != nil {
		t.Fatal(err)
	}
	free[next].Store(diskFree)
	free[(former+2)%3].Store(diskFree)
	kit.Eventually(t, "the next leader takes messages", func() bool { return trySend(c.nodes[next], at, "x") == fsm.OK })
	if code := trySend(c.nodes[former], at, "x"); code != fsm.OK {
		t.Errorf("send at the former leader: got %v, want %v", code, fsm.OK)
	}
	c.hosts[former].disk.Intercept(nil)
}
