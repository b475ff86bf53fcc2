package judge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/sim/simplan"
)

// TestStepsOfAllClocks checks what the judge allows for steps of all clocks together, in one direction each.
func TestStepsOfAllClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Clocks{StepMax: time.Minute}
		wait := func(length time.Duration) { <-time.After(length) }
		check := func(when string, ahead, behind time.Duration) {
			t.Helper()
			if a, b := c.Ahead(time.Now()), c.behind(time.Now()); a != ahead || b != behind {
				t.Errorf("%s: ahead %v and behind %v, want %v and %v", when, a, b, ahead, behind)
			}
		}
		check("before", 0, 0)
		c.BeginStep(20 * time.Second)
		check("ahead", 20*time.Second, 0)
		wait(time.Minute)
		c.EndStep()
		wait(agreeWithin + 5*time.Second)
		check("while wall time stands still", 15*time.Second, 0)
		wait(15 * time.Second)
		check("when the clocks have passed it", 0, 0)
		c.BeginStep(-20 * time.Second)
		wait(5 * time.Second)
		check("back", 0, 5*time.Second)
		wait(time.Minute)
		check("back for longer", 0, 20*time.Second)
		c.EndStep()
		wait(agreeWithin + time.Second)
		check("afterwards", 0, 0)
		c.BeginStep(2 * c.StepMax)
		check("a long step", simplan.ClockErrorMax, 0)
	})
}
