package partition

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// A new group is led by the first of its voters long before raft's timers expire, also if the others open their replicas later.
// The first voter has firstElectionWithin: if the machine stalled for a good part of that, another group is formed.
func TestNewGroupIsLedByItsFirstVoterAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 10 {
			ms := newMembers(t, 3, func(c *Config) {
				c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = time.Hour, time.Hour, time.Hour
			})
			begun := time.Now()
			for _, m := range ms {
				m.start(1)
			}
			looked := time.Now()
			stalled := looked.Sub(begun) > time.Second
			led := false
			kit.Eventually(t, "the first voter leads", func() bool {
				led = ms[0].group(1).Status().IsLeader
				now := time.Now()
				stalled = stalled || now.Sub(looked) > time.Second/2
				looked = now
				return led || stalled
			})
			if led {
				return
			}
			for _, m := range ms {
				m.stop()
			}
		}
		t.Fatal("the machine stalled in every election")
	})
}
