package fault

import (
	"context"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// drainWithin bounds the transfer of all leaderships of a member, on any machine.
const drainWithin = 3 * time.Minute

// The members are drained, stopped and started again one at a time, as in an upgrade.
// Clients at the others see no error, and afterwards settle messages that they locked before.
func TestRollingRestart(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, _, _ := start(t, harness.Settings{})
	for _, m := range c.Members {
		var rides []*failoverClient
		for _, at := range c.Others(m) {
			rides = append(rides, newFailoverClient(t, c, at, "roll-"+m.Name+"-"+at.Name))
		}
		each := func(do func(*failoverClient)) {
			for _, r := range rides {
				do(r)
			}
		}
		each(func(r *failoverClient) { r.waitConfirmed(failoverPhase, "load before") })
		each((*failoverClient).lockMessages)
		each(func(r *failoverClient) { r.takeLongestPause() })
		other := rides[0].at
		// As the command line does: the answer may be that the drain is in progress.
		harness.Eventually(t, drainWithin, "drain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/drain", nil, nil)
		})
		each(func(r *failoverClient) { r.waitConfirmed(failoverPhase, "load with the member drained") })
		m.Stop()
		each(func(r *failoverClient) { r.waitConfirmed(failoverPhase, "load without the member") })
		restart(m)
		harness.Eventually(t, drainWithin, "undrain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/undrain", nil, nil)
		})
		each(func(r *failoverClient) { r.waitConfirmed(failoverPhase, "load with the member back") })
		each((*failoverClient).settleLocked)
		each(func(r *failoverClient) {
			t.Logf("%s restarted: sends at %s paused for %v", m.Name, r.at.Name, r.takeLongestPause())
			waitCaughtUpOn(t, r.queue, m, r.at)
			r.finishWithoutErrors()
		})
		c.WaitLed(t)
	}
}
