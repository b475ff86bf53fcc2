package cluster

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// newDiskCluster starts three members with the usual timing, and returns the leader of a queue.
func newDiskCluster(t *testing.T, partitions int) (c *testCluster, at fsm.EntityRef, leader int) {
	t.Helper()
	c = newBubbleCluster(t, 3, partitions)
	for i := range c.configs {
		c.configs[i].Timing = Default().Timing
	}
	c.startAll()
	at = createQueue(t, c.nodes[0], "q")
	sendMessage(t, c.nodes[0], at, "before")
	return c, at, c.leader(at.Partition)
}

// timeSends sends messages through all members for some time, and returns the longest time that one took.
func (c *testCluster) timeSends(at fsm.EntityRef, length time.Duration) (longest time.Duration) {
	for begun, i := time.Now(), 0; time.Since(begun) < length; i++ {
		sent := time.Now()
		sendMessage(c.t, c.nodes[i%len(c.nodes)], at, "during")
		longest = max(longest, time.Since(sent))
		sleep(c.t.Context(), 50*time.Millisecond)
	}
	return longest
}

// TestLeadershipsLeaveAHungDisk: when the disk of a leader does not answer for 45 s, another member leads and sends pause less than
// 2 s, through every member.
func TestLeadershipsLeaveAHungDisk(t *testing.T) { inBubble(t, leadershipsLeaveAHungDisk) }

func leadershipsLeaveAHungDisk(t *testing.T) {
	c, at, hung := newDiskCluster(t, 3)
	c.hosts[hung].disk.SetHung(true)
	if longest := c.timeSends(at, 45*time.Second); longest > 2*time.Second {
		t.Errorf("a send took %v, want 2 s at most", longest)
	}
	if got := c.leader(at.Partition); got == hung {
		t.Errorf("member %d still leads", got)
	}
	s := c.nodes[hung].Stats(0)
	if s.Led != 0 || !s.Store.SlowDisk.Slow || s.Store.SlowDisk.Stuck != 0 || s.Store.SlowDisk.HandOvers == 0 {
		t.Errorf("the member leads %d partitions, with %+v", s.Led, s.Store.SlowDisk)
	}
	c.hosts[hung].disk.SetHung(false)
	kit.Eventually(t, "the disk is well again", func() bool { return !c.nodes[hung].Stats(0).Store.SlowDisk.Slow })
	sendMessage(t, c.nodes[hung], at, "after")
}

// TestLeadershipsLeaveASlowDisk: a leader whose disk takes 500 ms for a sync, while those of the others take nothing.
func TestLeadershipsLeaveASlowDisk(t *testing.T) { inBubble(t, leadershipsLeaveASlowDisk) }

func leadershipsLeaveASlowDisk(t *testing.T) {
	c, at, slow := newDiskCluster(t, 3)
	c.hosts[slow].disk.SetDelay(500 * time.Millisecond)
	if longest := c.timeSends(at, 30*time.Second); longest > 3*time.Second {
		t.Errorf("a send took %v, want 3 s at most", longest)
	}
	if got := c.leader(at.Partition); got == slow {
		t.Errorf("member %d still leads", got)
	}
	if longest := c.timeSends(at, 30*time.Second); longest > time.Second {
		t.Errorf("after the leadership moved, a send took %v", longest)
	}
}

// TestNoHandOverBetweenEvenlySlowDisks: if the disks of all members are slow, no leadership is handed over, and a metric says so.
func TestNoHandOverBetweenEvenlySlowDisks(t *testing.T) {
	inBubble(t, noHandOverBetweenEvenlySlowDisks)
}

func noHandOverBetweenEvenlySlowDisks(t *testing.T) {
	c, at, _ := newDiskCluster(t, 1)
	for _, h := range c.hosts {
		h.disk.SetDelay(200 * time.Millisecond)
	}
	reported := false // at some moment: whether a disk is slow changes while its delays do
	for range 60 {
		c.timeSends(at, time.Second)
		for _, n := range c.nodes {
			reported = reported || n.Stats(0).Store.SlowDisk.Stuck > 0
		}
	}
	if !reported {
		t.Error("no member reports the leaderships that stay on slow disks")
	}
	for i, n := range c.nodes {
		if n := n.Stats(0).Store.SlowDisk.HandOvers; n != 0 {
			t.Errorf("member %d has handed over %d leaderships to members that are as slow", i, n)
		}
	}
}
