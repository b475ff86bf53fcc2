package sim

import (
	"sync"
	"time"
)

// sleep waits in virtual time, which costs nothing.
func sleep(length time.Duration) { <-time.After(length) }

// clock is the wall clock of one member. It may be off, and may run faster or slower than time passes.
type clock struct {
	mu     sync.Mutex
	since  time.Time // of the last change
	offset time.Duration
	drift  float64 // seconds gained per second
}

func newClock() *clock { return &clock{since: time.Now()} }

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
