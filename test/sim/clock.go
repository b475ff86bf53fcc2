package sim

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/test/sim/simplan"
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

// clockSteps are the times at which all clocks together were wrong, as docs/guarantees.md says what follows from them: wall time follows
// a step of less than a minute at once, never goes back, and does not follow a longer one. So no step has an effect before it begins;
// a step ahead makes messages come and expire early, and wall time stands still afterwards until the clocks have passed it; a step back
// makes wall time stand still, so messages expire late, by no more than has passed since. A partition learns that the clocks are right
// when a quorum confirms them, within agreeWithin after an outage. After a longer step the judge allows what it does for one
// wrong clock: in a plan with one, the members that hold wall time must not all be restarted. The zero value has no steps.
type clockSteps struct {
	mu  sync.Mutex
	all []clockStep
}

type clockStep struct {
	amount   time.Duration
	from, to time.Time // to: zero while the clocks are wrong
}

// begin notes that all clocks are off by an amount from now on.
func (c *clockSteps) begin(amount time.Duration) {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if amount.Abs() > clocks.StepMax {
		amount = min(max(amount, -simplan.ClockErrorMax), simplan.ClockErrorMax)
	}
	c.all = append(c.all, clockStep{amount: amount, from: time.Now()})
}

// end notes that the clocks are right again.
func (c *clockSteps) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.all {
		if c.all[i].to.IsZero() {
			c.all[i].to = time.Now()
		}
	}
}

// ahead returns how far wall time may be ahead at a time because of the steps.
func (c *clockSteps) ahead(at time.Time) time.Duration {
	return c.most(at, func(s clockStep, since time.Duration) time.Duration {
		return min(s.amount, s.amount-(since-agreeWithin))
	})
}

// behind returns how far wall time may be behind at a time because of the steps.
func (c *clockSteps) behind(at time.Time) time.Duration {
	return c.most(at, func(s clockStep, since time.Duration) time.Duration {
		if since > agreeWithin {
			return 0
		}
		return min(-s.amount, at.Sub(s.from))
	})
}

// most returns the largest effect of a step at a time, 0 at least; since is how long before the clocks became right again.
func (c *clockSteps) most(at time.Time, effect func(s clockStep, since time.Duration) time.Duration) (most time.Duration) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		since := time.Duration(0)
		if !s.to.IsZero() {
			since = at.Sub(s.to)
		}
		if !at.Before(s.from) {
			most = max(most, effect(s, since))
		}
	}
	return most
}
