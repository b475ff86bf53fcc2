package judge

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/test/sim/simplan"
)

// ClockSlack is how far the wall time of a partition may be from the time of the simulation, because of the clocks
// of its members.
const ClockSlack = 2 * time.Second

// agreeWithin is how long the wall time of a partition may lag behind after an outage: until its leader knows
// the clocks of a quorum, which another fault may delay.
const agreeWithin = simplan.FaultLengthMax + 5*time.Second

// Clocks is what is known of the clocks of the members.
//
// Its steps are the times at which all clocks together were wrong, as docs/guarantees.md says what follows from them: wall time follows
// a step of less than a minute at once, never goes back, and does not follow a longer one. So no step has an effect before it begins;
// a step ahead makes messages come and expire early, and wall time stands still afterwards until the clocks have passed it; a step back
// makes wall time stand still, so messages expire late, by no more than has passed since. A partition learns that the clocks are right
// when a quorum confirms them, within agreeWithin after an outage. After a longer step the judge allows what it does for one
// wrong clock: in a plan with one, the members that hold wall time must not all be restarted.
type Clocks struct {
	Error   time.Duration // by which messages may come too early because of single clocks: 0 if the plan changes none
	StepMax time.Duration // the longest step that wall time follows
	Agree   func() bool   // while it is false, messages may be received after their time to live

	mu    sync.Mutex
	steps []clockStep
}

type clockStep struct {
	amount   time.Duration
	from, to time.Time // to: zero while the clocks are wrong
}

// BeginStep notes that all clocks are off by an amount from now on.
func (c *Clocks) BeginStep(amount time.Duration) {
	c.EndStep()
	c.mu.Lock()
	defer c.mu.Unlock()
	if amount.Abs() > c.StepMax {
		amount = min(max(amount, -simplan.ClockErrorMax), simplan.ClockErrorMax)
	}
	c.steps = append(c.steps, clockStep{amount: amount, from: time.Now()})
}

// EndStep notes that the clocks are right again.
func (c *Clocks) EndStep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.steps {
		if c.steps[i].to.IsZero() {
			c.steps[i].to = time.Now()
		}
	}
}

// early returns how much too early messages may come at a time. c may be nil.
func (c *Clocks) early(at time.Time) time.Duration {
	if c == nil {
		return 0
	}
	return c.Error + c.Ahead(at)
}

// Ahead returns how far wall time may be ahead at a time because of the steps. c may be nil.
func (c *Clocks) Ahead(at time.Time) time.Duration {
	return c.most(at, func(s clockStep, since time.Duration) time.Duration {
		return min(s.amount, s.amount-(since-agreeWithin))
	})
}

// behind returns how far wall time may be behind at a time because of the steps. c may be nil.
func (c *Clocks) behind(at time.Time) time.Duration {
	return c.most(at, func(s clockStep, since time.Duration) time.Duration {
		if since > agreeWithin {
			return 0
		}
		return min(-s.amount, at.Sub(s.from))
	})
}

// most returns the largest effect of a step at a time, 0 at least; since is how long before the clocks became right again.
func (c *Clocks) most(at time.Time, effect func(s clockStep, since time.Duration) time.Duration) (most time.Duration) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.steps {
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
