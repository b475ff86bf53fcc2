package fault

import (
	"context"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// drainWithin is for a member to lose its leaderships, on any machine.
const drainWithin = 3 * time.Minute

// The members are drained, stopped and started again, one after the other, as in an upgrade.
// Clients at the others see no error, and settle afterwards what they had locked before.
func TestRollingRestart(t *testing.T) {
	c, _, _ := start(t, harness.Settings{})
	for _, m := range c.Members {
		var rides []*ride
		for _, at := range c.Others(m) {
			rides = append(rides, newRide(t, c, at, "roll-"+m.Name+"-"+at.Name))
		}
		each := func(do func(*ride)) {
			for _, r := range rides {
				do(r)
			}
		}
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load before") })
		each((*ride).hold)
		each(func(r *ride) { r.pause() })
		other := rides[0].at
		// As the command line does it: the answer may be that it goes on.
		harness.Eventually(t, drainWithin, "drain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/drain", nil, nil)
		})
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load with the member drained") })
		m.Stop()
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load without the member") })
		back(m)
		harness.Eventually(t, drainWithin, "undrain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/undrain", nil, nil)
		})
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load with the member back") })
		each((*ride).goesOn)
		each(func(r *ride) {
			t.Logf("%s restarted: sends at %s paused for %v", m.Name, r.at.Name, r.pause())
			caughtUpOn(t, r.queue, m, r.at)
			r.ends()
		})
		c.WaitLed(t)
	}
}
