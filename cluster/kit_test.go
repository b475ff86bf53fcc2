package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestMain checks for leaked goroutines. Raft does not answer all requests that are pending at its shutdown
// (see await in partition), and memberlist does not wait for a running probe, which ends with its timeouts.
func TestMain(m *testing.M) {
	kit.Parallel(3)
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// testLogger discards log lines unless the environment requests them.
func testLogger() *slog.Logger {
	level := slog.LevelInfo
	switch os.Getenv("PEEKLOCK_TEST_LOG") {
	case "":
		return slog.New(slog.DiscardHandler)
	case "debug":
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// testTiming is short, and long enough for a machine that runs other tests at the same time.
func testTiming() Timing {
	return Timing{
		GossipProbe: 300 * time.Millisecond, GossipInterval: 20 * time.Millisecond,
		Rejoin: 100 * time.Millisecond, Ping: 300 * time.Millisecond, Dial: time.Second,
		Bootstrap: 20 * time.Millisecond, Reconcile: 100 * time.Millisecond, Settle: 500 * time.Millisecond, Policy: 300 * time.Millisecond,
		Retry: waitMax, Suspect: 500 * time.Millisecond, Handover: 3 * time.Second, Compare: 200 * time.Millisecond,
		Raft: partition.Timing{
			// On a busy machine, members get no processor for tenths of a second. If that deposed leaders, a
			// cluster would hold elections and do nothing else.
			Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 400 * time.Millisecond,
			Commit: 20 * time.Millisecond, SnapshotEvery: time.Minute,
		},
	}
}

// testCluster runs some members in this process, each with a data folder that outlives it.
type testCluster struct {
	t       *testing.T
	configs []Config
	nodes   []*Node       // nil: down
	hosts   []*bubbleHost // of the members, in a bubble only
}

// newTestCluster creates members with real sockets and files.
func newTestCluster(t *testing.T, members, partitions int) *testCluster {
	t.Helper()
	c := newCluster(t, members, partitions)
	var gossip []string
	for range members {
		gossip = append(gossip, kit.FreeAddress(t))
	}
	for i := range c.configs {
		config := &c.configs[i]
		config.Dir, config.PeerAddr = kit.MemoryDir(t), "127.0.0.1:0"
		config.GossipAddr, config.Join = gossip[i], slices.Concat(gossip[:i], gossip[i+1:])
		config.LogStore = partition.LogKind(os.Getenv("PEEKLOCK_LOG_STORE"))
	}
	// After the folders exist: cleanups run in reverse order.
	t.Cleanup(c.stopAll)
	return c
}

// newCluster creates members that have neither addresses nor folders yet. The caller registers stopAll as a cleanup.
func newCluster(t *testing.T, members, partitions int) *testCluster {
	t.Helper()
	c := &testCluster{t: t, nodes: make([]*Node, members)}
	for i := range members {
		config := Default()
		config.Name = fmt.Sprintf("m%d", i)
		config.Expect = members
		config.Partitions = partitions
		config.Timing = testTiming()
		config.Sizes = partition.DefaultSizes()
		config.Sizes.LogSegment = 1 << 20 // a segment is written with zeros when it is created
		config.Logger = testLogger().With("name", config.Name)
		c.configs = append(c.configs, config)
	}
	return c
}

func (c *testCluster) stopAll() {
	for i := range c.nodes {
		c.stop(i)
	}
}

func (c *testCluster) start(i int) *Node {
	c.t.Helper()
	node, err := c.open(i)
	if err != nil {
		c.t.Fatalf("open member %d: %v", i, err)
	}
	c.nodes[i] = node
	return node
}

// open opens a member, which may fail.
func (c *testCluster) open(i int) (*Node, error) {
	if c.hosts != nil {
		if err := c.hosts[i].boot(&c.configs[i]); err != nil {
			return nil, err
		}
	}
	node, err := Open(c.t.Context(), c.configs[i])
	if err != nil {
		c.endHost(i)
	}
	return node, err
}

// endHost ends the host of a member whose process has ended.
func (c *testCluster) endHost(i int) {
	if c.hosts != nil {
		c.hosts[i].end()
	}
}

func (c *testCluster) startAll() {
	c.t.Helper()
	for i := range c.nodes {
		c.start(i)
	}
	c.ready()
}

func (c *testCluster) ready() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitMax)
	defer cancel()
	for i, node := range c.nodes {
		if node == nil {
			continue
		}
		if err := node.Ready(ctx); err != nil {
			c.t.Fatalf("member %d: %v", i, err)
		}
	}
}

// stacks returns the stacks of all goroutines, which show what a member that does not close waits for.
func stacks() []byte {
	all := make([]byte, 4<<20)
	return all[:runtime.Stack(all, true)]
}

func (c *testCluster) stop(i int) {
	if c.nodes[i] == nil {
		return
	}
	node := c.nodes[i]
	c.nodes[i] = nil
	if err := node.Close(context.Background()); err != nil {
		c.t.Errorf("close member %d: %v; all goroutines:\n%s", i, err, stacks())
	}
	c.endHost(i)
}

// kill ends a member like a crash, as far as one process allows: the member announces nothing and transfers no
// leadership.
func (c *testCluster) kill(i int) {
	node := c.nodes[i]
	c.nodes[i] = nil
	node.abandon()
	if err := node.Close(context.Background()); err != nil {
		c.t.Errorf("kill member %d: %v", i, err)
	}
	c.endHost(i)
}

// abandon isolates a member from the others before it is closed.
func (n *Node) abandon() {
	n.peers.Close()
	n.closeOnce.Do(func() {}) // Close then transfers nothing
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.stop()
	n.peerClient.Close()
	_ = n.replicas.Close(context.Background())
	n.router.Close()
	n.gossip.Abort()
	n.tasks.Wait()
	_ = n.raftLog.Close()
	_ = n.dataDir.Close()
}

func (c *testCluster) index(id fsm.MemberID) int {
	return slices.IndexFunc(c.nodes, func(n *Node) bool { return n != nil && n.self == id })
}

// leader returns the index of the member that leads a partition. The leader that a member reports may have died
// or been deposed since, so leader asks that member itself.
func (c *testCluster) leader(id fsm.PartitionID) (leader int) {
	c.t.Helper()
	kit.Eventually(c.t, fmt.Sprintf("partition %d has a leader", id), func() bool {
		leader = -1
		term := uint64(0)
		for i, node := range c.nodes {
			if node == nil {
				continue
			}
			if group := node.replicas.Local(id); group != nil {
				if status := group.Status(); status.IsLeader && status.Term > term {
					leader, term = i, status.Term
				}
			}
		}
		return leader >= 0
	})
	return leader
}

// waitMax bounds how long a test waits for something that must happen. Nothing takes that long; it allows for a
// busy machine, and a test that waits for all of it fails.
const waitMax = kit.WaitMax

// retryUntilLed repeats a call while it reports that there is no leader, which means that nothing was done.
// Operator commands give up after two seconds; an election on a busy machine takes longer.
func retryUntilLed(t *testing.T, ask func() error) (err error) {
	t.Helper()
	kit.Eventually(t, "somebody leads who answers", func() bool {
		err = ask()
		return !errors.Is(err, fsm.ServerBusy)
	})
	return err
}

// leaderStatus asks the leader of a partition for its status.
func leaderStatus(ctx context.Context, node *Node, id fsm.PartitionID) (raftgroup.Status, error) {
	leader, err := node.router.AwaitLeader(ctx, id)
	if err != nil {
		return raftgroup.Status{}, err
	}
	status, err := node.replicaStatus(ctx, leader, id)
	if err == nil && !status.IsLeader {
		err = fsm.ServerBusy
	}
	if err != nil {
		node.router.SuspectLeader(id, leader) // otherwise the next call asks the same member, also a dead one
	}
	return status, err
}

// testSettings has locks that outlast any test, so that none is lost because a test was slow.
var testSettings = fsm.EntitySettings{LockDuration: 300_000, MaxDeliveryCount: 5, MaxMessageBytes: 1 << 20}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// testClock is the wall clock and the monotonic clock with some time added, the same at every member.
type testClock struct {
	start time.Time
	ahead atomic.Int64
}

func (c *testClock) monotonic() time.Duration { return c.now().Sub(c.start) }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *testClock) in(d time.Duration) fsm.Instant { return fsm.Instant(c.now().Add(d).UnixMilli()) }

// newTimedCluster starts a cluster whose queues use a clock that the test can advance.
func newTimedCluster(t *testing.T, members, partitions int) (*testCluster, *testClock) {
	t.Helper()
	c, clock := newBubbleCluster(t, members, partitions), &testClock{start: time.Now()}
	for i := range c.configs {
		c.configs[i].Now, c.configs[i].Monotonic = clock.now, clock.monotonic
	}
	return c, clock
}

// pass advances the clock, and waits until the members have compared their clocks again. Each leader gets a command
// before, because serving time passes only while a partition has a leader, and one afterwards, because it sleeps until
// its next deadline by the system clock. If the leader of the only partition changes meanwhile, what passed counts as an
// outage, and is repeated; with several, more would pass in the others.
func (c *testCluster) pass(clock *testClock, d time.Duration) {
	c.t.Helper()
	c.passWhile(clock, d, func() {})
}

// passWhile is pass and does something before the clock advances for the first time.
func (c *testCluster) passWhile(clock *testClock, d time.Duration, do func()) {
	c.t.Helper()
	c.touchPartitions()
	begun := c.servingTimes()
	do()
	for missing := d; missing > 0; {
		clock.ahead.Add(int64(missing))
		for _, node := range c.nodes {
			kit.Eventually(c.t, "the clocks agree", func() bool {
				if node == nil {
					return true
				}
				_, ok := node.clocks.AgreedTime()
				return ok
			})
		}
		c.touchPartitions()
		missing = 0
		if now := c.servingTimes(); len(now) == 1 {
			for id := range now {
				missing = d - time.Duration(now[id]-begun[id])*time.Millisecond
			}
		}
	}
}

// servingTimes returns the serving times of the message partitions, as the members with the newest have it.
func (c *testCluster) servingTimes() map[fsm.PartitionID]fsm.Instant {
	times := make(map[fsm.PartitionID]fsm.Instant)
	for _, node := range c.nodes {
		if node == nil || node.partitions.Load() == nil {
			continue
		}
		for _, part := range *node.partitions.Load() {
			if group := node.replicas.Local(part.ID); group != nil {
				group.View(func(m partition.Machine) { times[part.ID] = max(times[part.ID], m.Times().Serving) })
			}
		}
	}
	return times
}

// touchPartitions has the leader of each partition apply a command that changes nothing.
func (c *testCluster) touchPartitions() {
	c.t.Helper()
	for _, node := range c.nodes {
		if node == nil || node.partitions.Load() == nil {
			continue
		}
		for _, part := range *node.partitions.Load() {
			_, err := node.router.Command(c.t.Context(), part.ID, fsm.Touch{Entity: 1 << 40})
			if !errors.Is(err, fsm.EntityNotFound) {
				c.t.Fatalf("wake partition %d: %v", part.ID, err)
			}
		}
		return
	}
}

// other returns a living member that does not lead the partition.
func (c *testCluster) other(id fsm.PartitionID) *Node {
	c.t.Helper()
	leader := c.leader(id)
	for i, node := range c.nodes {
		if node != nil && i != leader {
			return node
		}
	}
	c.t.Fatal("no other member is alive")
	return nil
}

// settled waits until everything that a node has submitted to a partition has been answered.
func settled(t *testing.T, node *Node, id fsm.PartitionID) {
	t.Helper()
	kit.Eventually(t, "nothing is outstanding", func() bool { return node.router.Outstanding(id) == 0 })
}

func second[T any](_ T, err error) error { return err }
