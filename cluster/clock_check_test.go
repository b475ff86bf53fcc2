package cluster

import (
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
		status, err := other.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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
