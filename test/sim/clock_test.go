package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
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
	kill := Fault{Kind: Kill, Length: time.Second}
	hour := Fault{Kind: Clock, At: 28 * time.Second, Length: 14 * time.Second, Member: 2, Amount: time.Hour}
	behind := Fault{Kind: Clock, At: 28 * time.Second, Length: 14 * time.Second, Member: 2, Amount: -time.Hour}
	later := Fault{Kind: Clock, At: 2 * time.Minute, Length: 14 * time.Second, Member: 2, Amount: time.Hour}
	drift := func(member int, perSecond time.Duration) Fault {
		return Fault{Kind: Drift, At: 22 * time.Second, Length: 20 * time.Second, Member: member, Amount: perSecond}
	}
	const ms = time.Millisecond
	for _, row := range []struct {
		name   string
		faults []Fault
		want   time.Duration
	}{
		{"no clock is wrong", []Fault{kill}, 0},
		{"one clock", []Fault{kill, hour}, clockErrorMax},
		{"two, one of which is nearly right", []Fault{drift(0, 10*ms), hour}, clockErrorMax + 200*ms},
		{"two, one of which a right one must confirm", []Fault{drift(0, 100*ms), hour}, clockErrorMax + agreedErrorMax},
		{"two that may confirm each other", []Fault{drift(0, 100*ms), drift(1, 150*ms)}, clockErrorMax + 2*time.Second},
		{"two, one of which is behind", []Fault{drift(0, 100*ms), behind}, clockErrorMax},
		{"two of one member", []Fault{drift(2, 100*ms), hour}, clockErrorMax},
		{"two, one after the other", []Fault{drift(0, 100*ms), later}, clockErrorMax},
	} {
		plan := Plan{Faults: row.faults}
		if got := plan.clockError(); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestStepsOfAllClocks checks what the judge allows for steps of all clocks together, in one direction each.
func TestStepsOfAllClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c clockSteps
		check := func(when string, ahead, behind time.Duration) {
			t.Helper()
			if a, b := c.ahead(time.Now()), c.behind(time.Now()); a != ahead || b != behind {
				t.Errorf("%s: ahead %v and behind %v, want %v and %v", when, a, b, ahead, behind)
			}
		}
		check("before", 0, 0)
		c.begin(20 * time.Second)
		check("ahead", 20*time.Second, 0)
		sleep(time.Minute)
		c.end()
		sleep(agreeWithin + 5*time.Second)
		check("while wall time stands still", 15*time.Second, 0)
		sleep(15 * time.Second)
		check("when the clocks have passed it", 0, 0)
		c.begin(-20 * time.Second)
		sleep(5 * time.Second)
		check("back", 0, 5*time.Second)
		sleep(time.Minute)
		check("back for longer", 0, 20*time.Second)
		c.end()
		sleep(agreeWithin + time.Second)
		check("afterwards", 0, 0)
		c.begin(2 * clocks.StepMax)
		check("a long step", clockErrorMax, 0)
	})
}
