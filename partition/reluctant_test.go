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
	inBubble(t, func(t *testing.T) {
		var reluctant atomic.Bool
		ms := form(t, func(c *Config) {
			patient(c)
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
	})
}

// TestReluctantReplicaAgreesWhenLogsAreEqual: a replica whose member should not lead claims to be the better successor only
// for a better log, which nobody else has, and not by lot.
func TestReluctantReplicaAgreesWhenLogsAreEqual(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := form(t, func(c *Config) {
			patient(c)
			if c.Member == "m2" {
				c.IsReluctant = func() bool { return true }
			}
		})
		must(t, ms[1].group(1), (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
		waitCaughtUp(t, ms, ms[0])
		waitCaughtUp(t, ms, ms[2]) // it has heard the leader a moment ago
		ended := gone(t.Context(), "m1")
		for _, c := range []struct {
			member *member
			want   Verdict
		}{{ms[2], verdictAgree}, {ms[0], verdictBetter}} {
			g := c.member.group(1)
			term, index, err := lastEntry(g.instance.Load().raft)
			if err != nil {
				t.Fatal(err)
			}
			answer := func(rank Rank) Verdict {
				return askInTime(t, func() Verdict { return g.Answer(ended, Question{Gone: true, Rank: rank}) })
			}
			if got := answer(Rank{term, index, 1}); got != c.want {
				t.Errorf("%s, equal logs: %d, want %d", c.member.id, got, c.want)
			}
			if got := answer(Rank{term, index - 1, 1}); got != verdictBetter {
				t.Errorf("%s, a log that is behind: %d, want %d", c.member.id, got, verdictBetter)
			}
		}
	})
}
