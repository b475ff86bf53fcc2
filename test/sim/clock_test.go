package sim

import (
	"testing"
	"testing/synctest"
	"time"
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
