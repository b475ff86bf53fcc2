package cluster

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// TestVotersCountAmongTheClocks: a member whose catalog is older than the other members, because it has just started, does
// not take its own clock for that of a quorum.
func TestVotersCountAmongTheClocks(t *testing.T) { inBubble(t, votersCountAmongTheClocks) }

func votersCountAmongTheClocks(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	node := c.nodes[0]
	kit.Eventually(t, "the member has a replica with three voters", func() bool {
		for _, group := range node.replicas.All() {
			if len(group.Status().Voters) == 3 {
				return true
			}
		}
		return false
	})
	kit.Eventually(t, "all clocks count with an empty catalog", func() bool {
		node.partitions.Store(new([]fsm.Partition)) // a change of the catalog may replace it
		return len(node.clockMembers()) == 3
	})
}

// TestMemberWithAWrongClockLeadsNothing: a member whose clock is set an hour ahead gives its leaderships to
// others and its entries move no time; when the clock is right again it gets them back.
func TestMemberWithAWrongClockLeadsNothing(t *testing.T) {
	inBubble(t, memberWithAWrongClockLeadsNothing)
}

func memberWithAWrongClockLeadsNothing(t *testing.T) {
	c := newBubbleCluster(t, 3, 3)
	var skew [3]atomic.Int64
	for i := range c.configs {
		c.configs[i].Now = func() time.Time { return time.Now().Add(time.Duration(skew[i].Load())) }
	}
	c.startAll()
	leads := func(i int) (n int) {
		for _, group := range c.nodes[i].replicas.All() {
			if group.Status().IsLeader {
				n++
			}
		}
		return n
	}
	kit.Eventually(t, "the clocks agree", func() bool {
		for _, node := range c.nodes {
			if !node.clocks.Last().Agreed {
				return false
			}
		}
		return true
	})
	wrong := 0
	kit.Eventually(t, "a member leads", func() bool { wrong = (wrong + 1) % 3; return leads(wrong) > 0 })
	skew[wrong].Store(int64(time.Hour))
	kit.Eventually(t, "it leads no partition", func() bool { return c.nodes[wrong].clocks.IsOff(c.nodes[wrong].self) && leads(wrong) == 0 })
	s := c.nodes[wrong].Stats(0).Clocks
	if !s.Agreed || s.Offset < time.Hour-time.Minute || s.Offset > time.Hour+time.Minute {
		t.Errorf("compared: %+v", s)
	}
	other := c.nodes[(wrong+1)%3]
	kit.Eventually(t, "the status shows it", func() bool {
		status := kit.Must(other.Status(t.Context()))(t)
		for _, m := range status.Members {
			if m.ClockOff != (m.ID == c.nodes[wrong].self) {
				return false
			}
		}
		return true
	})
	for id, group := range other.replicas.All() {
		var at fsm.Times
		group.View(func(m partition.Machine) { at = m.Times() })
		if limit := fsm.Instant(time.Now().Add(time.Minute).UnixMilli()); at.Wall > limit || at.Serving > limit {
			t.Errorf("the times of partition %d followed the wrong clock: %+v", id, at)
		}
	}
	skew[wrong].Store(0)
	kit.Eventually(t, "it leads again", func() bool { return leads(wrong) > 0 })
}

// TestClocksThatAreWrongTogetherMoveNoTime: when the clocks of all members are set three hours ahead, no message expires and
// none becomes active, whoever leads, until an operator confirms the time.
func TestClocksThatAreWrongTogetherMoveNoTime(t *testing.T) {
	inBubble(t, clocksThatAreWrongTogetherMoveNoTime)
}

func clocksThatAreWrongTogetherMoveNoTime(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	var skew atomic.Int64
	began := time.Now()
	for i := range c.configs {
		c.configs[i].Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		c.configs[i].BootTime = func() time.Duration { return time.Since(began) }
	}
	c.startAll()
	wall := func(i int) time.Time {
		var at fsm.Times
		c.nodes[i].replicas.Local(1).View(func(m partition.Machine) { at = m.Times() })
		return time.UnixMilli(int64(at.Wall))
	}
	queue := c.create("orders", func(*fsm.EntitySettings) {})
	all := func(what string, held bool) {
		t.Helper()
		kit.Eventually(t, what, func() bool {
			for _, node := range c.nodes {
				if last := node.clocks.Last(); !last.Agreed || last.Held != held {
					return false
				}
			}
			return true
		})
	}
	all("the clocks agree", false)
	if _, err := c.nodes[0].Operator().ConfirmTime(t.Context()); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("confirmed without a step: %v, want a failed precondition", err)
	}
	skew.Store(int64(3 * time.Hour))
	all("all members hold wall time", true)
	sendOne := func() {
		t.Helper()
		sendMessage(t, c.any(), queue, "x")
		for i := range c.nodes {
			kit.Eventually(t, "wall time did not follow", func() bool { return time.Since(wall(i)).Abs() < 10*time.Second })
		}
	}
	sendOne()
	status, err := c.nodes[1].Status(t.Context())
	if err != nil || !status.TimeHeld || (status.TimeStep-3*time.Hour).Abs() > time.Second {
		t.Errorf("status: held %v, step %v (%v), want held, 3h", status.TimeHeld, status.TimeStep, err)
	}
	for i := range c.nodes { // each of them leads no longer, and knows nothing of the step any more
		c.stop(i)
		c.start(i)
		all("the restarted member holds wall time, too", true)
		sendOne()
	}
	kit.Must(c.nodes[2].Operator().ConfirmTime(t.Context()))(t)
	all("no member holds wall time", false)
	sendMessage(t, c.any(), queue, "x")
	kit.Eventually(t, "wall time follows the clocks", func() bool { return (time.Until(wall(0)) - 3*time.Hour).Abs() < 10*time.Second })
}
