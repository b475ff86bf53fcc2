package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/sim/simplan"
)

// TestSuspendedHostDoesNotCount: the monotonic clock stands still until the last of the suspensions that overlap has
// ended, and the wall clock goes on.
func TestSuspendedHostDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		begun := time.Now()
		sleep(time.Second)
		c.suspend()
		sleep(time.Second)
		c.suspend()
		sleep(time.Second)
		c.resume()
		sleep(time.Second)
		if got := c.monotonic(); got != time.Second {
			t.Errorf("while the host is suspended: %v", got)
		}
		c.resume()
		sleep(time.Second)
		if got := c.monotonic(); got != 2*time.Second {
			t.Errorf("afterwards: %v", got)
		}
		if got := c.now().Sub(begun); got != 5*time.Second {
			t.Errorf("the wall clock counted %v", got)
		}
	})
}

// TestMessagesComeEarlyAsFarAsClocksAreWrong: two members' clocks that are ahead at once can make one of them the median.
func TestMessagesComeEarlyAsFarAsClocksAreWrong(t *testing.T) {
	t.Parallel()
	kill := simplan.Fault{Kind: simplan.Kill, Length: time.Second}
	hour := simplan.Fault{Kind: simplan.Clock, At: 28 * time.Second, Length: 14 * time.Second, Member: 2, Amount: time.Hour}
	behind := simplan.Fault{Kind: simplan.Clock, At: 28 * time.Second, Length: 14 * time.Second, Member: 2, Amount: -time.Hour}
	later := simplan.Fault{Kind: simplan.Clock, At: 2 * time.Minute, Length: 14 * time.Second, Member: 2, Amount: time.Hour}
	drift := func(member int, perSecond time.Duration) simplan.Fault {
		return simplan.Fault{Kind: simplan.Drift, At: 22 * time.Second, Length: 20 * time.Second, Member: member, Amount: perSecond}
	}
	const ms = time.Millisecond
	for _, row := range []struct {
		name   string
		faults []simplan.Fault
		want   time.Duration
	}{
		{"no clock is wrong", []simplan.Fault{kill}, 0},
		{"one clock", []simplan.Fault{kill, hour}, simplan.ClockErrorMax},
		{"two, one of which is nearly right", []simplan.Fault{drift(0, 10*ms), hour}, simplan.ClockErrorMax + 200*ms},
		{"two, one of which a right one must confirm", []simplan.Fault{drift(0, 100*ms), hour}, simplan.ClockErrorMax + simplan.AgreedErrorMax},
		{"two that may confirm each other", []simplan.Fault{drift(0, 100*ms), drift(1, 150*ms)}, simplan.ClockErrorMax + 2*time.Second},
		{"two, one of which is behind", []simplan.Fault{drift(0, 100*ms), behind}, simplan.ClockErrorMax},
		{"two of one member", []simplan.Fault{drift(2, 100*ms), hour}, simplan.ClockErrorMax},
		{"two, one after the other", []simplan.Fault{drift(0, 100*ms), later}, simplan.ClockErrorMax},
	} {
		plan := simplan.Plan{Faults: row.faults}
		if got := plan.ClockError(); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
