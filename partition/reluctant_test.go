package partition

import (
	"sync/atomic"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestReluctantReplicaLeavesElectionsToOthers: a replica whose member should not lead does not become the
// leader while another one can, and does when it is the only one that the others can elect.
func TestReluctantReplicaLeavesElectionsToOthers(t *testing.T) {
	t.Parallel()
	var reluctant atomic.Bool
	ms := form(t, func(c *Config) {
		if c.Member == "m2" {
			c.IsReluctant = reluctant.Load
		}
	})
	a := &asker{origin: 7}
	mustEventually(t, ms, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	transferTo(t, ms, ms[1])
	waitCaughtUp(t, ms, ms[0])
	waitCaughtUp(t, ms, ms[2])
	reluctant.Store(true)
	ms[1].stop()
	kit.Eventually(t, "the third replica leads", func() bool {
		if ms[2].group(1).Status().IsLeader {
			t.Fatal("the replica leads although its member should not")
		}
		return ms[0].group(1).Status().IsLeader
	})
	ms[1].start(1)
	kit.Eventually(t, "the restarted one follows", func() bool { return ms[1].group(1).Status().Leader == "m0" })
	ms[1].net.isolate("m1", true) // it misses the next entry, so only m2 can follow m0
	mustEventually(t, []*member{ms[0], ms[2]}, a.next(), send(1, body(1)))
	waitCaughtUp(t, []*member{ms[0], ms[2]}, ms[2])
	ms[0].stop()
	ms[1].net.isolate("m1", false)
	kit.Eventually(t, "the only replica with all entries leads", func() bool { return ms[2].group(1).Status().IsLeader })
}
