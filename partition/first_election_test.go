package partition

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// A new group is led by the first of its voters long before raft's timers expire, also if the others open their replicas later.
func TestNewGroupIsLedByItsFirstVoterAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 3, func(c *Config) {
			c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = time.Hour, time.Hour, time.Hour
		})
		for _, m := range ms {
			m.start(1)
			<-time.After(100 * time.Millisecond)
		}
		kit.Eventually(t, "the first voter leads", func() bool { return ms[0].group(1).Status().IsLeader })
	})
}
