package sim

import (
	"sync"
	"time"
)

// sleep waits in virtual time, which costs nothing.
func sleep(length time.Duration) { <-time.After(length) }

// clock is the clock of one host: the wall clock, which may be off, and may run faster or slower than time passes, and
// the monotonic clock, which stands still while the host is suspended.
type clock struct {
	mu     sync.Mutex
	since  time.Time // of the last change
	offset time.Duration
	drift  float64 // seconds gained per second

	begun       time.Time
	stood       time.Duration // for which the host was suspended
	suspensions int           // that last
	suspendedAt time.Time     // the first of them
}

func newClock() *clock { return &clock{since: time.Now(), begun: time.Now()} }

// monotonic reads the monotonic clock.
func (c *clock) monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.suspensions > 0 {
		now = c.suspendedAt
	}
	return now.Sub(c.begun) - c.stood
}

// suspend stops the monotonic clock, until resume was called as often.
func (c *clock) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspensions++; c.suspensions == 1 {
		c.suspendedAt = time.Now()
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspensions--; c.suspensions == 0 {
		c.stood += time.Since(c.suspendedAt)
	}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Add(c.offset + time.Duration(c.drift*float64(now.Sub(c.since))))
}

// set makes the clock be off by offset now, and by drift seconds more with every second.
func (c *clock) set(offset time.Duration, drift float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.offset, c.drift = time.Now(), offset, drift
}
