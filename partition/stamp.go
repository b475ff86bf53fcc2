package partition

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/stamp"
)

// The limits of pulses.
const (
	// servingRecordInterval is the longest time for which an idle leader keeps serving time to itself while a
	// lock or another deadline of serving time is pending: then it proposes a pulse. A next leader continues
	// from the newest entry.
	servingRecordInterval = 10 * time.Second
	// wallCheckInterval is the longest sleep of a leader that waits for a wall time: the clock may be set
	// meanwhile.
	wallCheckInterval = time.Second
)

// readClocks reads the clocks of this member.
func (g *Group) readClocks() stamp.Clocks {
	c := stamp.Clocks{Monotonic: g.cfg.Monotonic(), Own: fsm.Instant(g.cfg.Now().UnixMilli())}
	if g.cfg.AgreedTime == nil {
		c.Agreed = c.Own
	} else if at, ok := g.cfg.AgreedTime(); ok {
		c.Agreed = fsm.Instant(at.UnixMilli())
	}
	return c
}

// timeAhead returns by how much the wall time of the newest entry is ahead of the time that a quorum confirms,
// or of this member's clock while none does; 0 if it is not.
func (g *Group) timeAhead() time.Duration {
	c := g.readClocks()
	clock := c.Own
	if c.Agreed != 0 {
		clock = c.Agreed
	}
	return time.Duration(max(0, g.appliedTimes().Wall-clock)) * time.Millisecond
}

// appliedTimes returns the times of the newest applied entry. A reader may see one of them older than the
// other.
func (g *Group) appliedTimes() fsm.Times {
	return fsm.Times{Wall: fsm.Instant(g.wall.Load()), Serving: fsm.Instant(g.serving.Load())}
}

// nextTimes returns the times that an entry would get now, and the clocks by which. Called with mu held, at
// the leader.
func (p *proposer) nextTimes() (fsm.Times, stamp.Clocks) {
	c := p.g.readClocks()
	applied := p.g.appliedTimes()
	if !p.stamper.Began() {
		at := time.Duration(p.g.appliedAt.Load())
		if applied == (fsm.Times{}) { // no entry yet: both times begin with the clock
			own := new(stamp.Stamper).WallTime(c) // bounded by the clocks of a quorum, if they agree
			applied, at = fsm.Times{Wall: own, Serving: own}, c.Monotonic
		}
		p.stamper.Begin(applied, at, c.Monotonic)
	}
	t := p.stamper.Steady(p.stamper.Times(c))
	t.Wall = max(t.Wall, applied.Wall, p.lastStamp.Wall)
	t.Serving = max(t.Serving, applied.Serving, p.lastStamp.Serving)
	return t, c
}

// stamp returns the times of an entry that is composed now. Called with mu held.
func (p *proposer) stamp() fsm.Times {
	t, c := p.nextTimes()
	p.lastStamp, p.stampedAt = t, c.Monotonic
	p.stamper.Stamped(t, c)
	return t
}

// holdsGrants reports whether locks have to wait, because the next deadline has passed by this member's clock and
// no quorum has confirmed a time yet: after an outage of all members a time to live may have ended, and the message
// must not be delivered. It is so for stamp.UnconfirmedMax at most, so that members whose clocks never agree go on.
// Called with mu held, at the leader.
func (p *proposer) holdsGrants() bool {
	c, unconfirmed := p.unconfirmed()
	deadline := p.g.nextDeadline().Wall
	return unconfirmed && deadline != 0 && deadline <= c.Own
}

// holdsTaking reports whether a command that takes messages without waiting for them, by number or to forward them, has
// to be refused for the same reason. A deferred message has no deadline, so this member's clock decides, if it is
// ahead of wall time by more than wall time may be wrong. Called with mu held, at the leader.
func (p *proposer) holdsTaking(kind fsm.Kind) bool {
	c, unconfirmed := p.unconfirmed()
	if !unconfirmed {
		return false
	}
	switch kind.Takes() {
	case fsm.TakesNothing:
	case fsm.TakesByNumber:
		return c.Own > stamp.After(p.stamper.WallTime(c), stamp.ErrorMax)
	case fsm.TakesReady:
		return p.holdsGrants()
	}
	return false
}

// unconfirmed reports whether no quorum has confirmed a time since the leadership began, for stamp.UnconfirmedMax at most,
// and reads the clocks if so.
func (p *proposer) unconfirmed() (c stamp.Clocks, yes bool) {
	if !p.stamper.IsUnconfirmed() {
		return stamp.Clocks{}, false
	}
	c = p.g.readClocks()
	return c, !p.stamper.Confirm(c)
}

// untilPulse returns the time until a pulse is due; ok is false if nothing is pending. Called with mu held, at
// the leader.
func (p *proposer) untilPulse() (d time.Duration, ok bool) {
	deadline := p.g.nextDeadline()
	if deadline == (fsm.Times{}) {
		return 0, false
	}
	now, c := p.nextTimes()
	rest, _ := now.Until(deadline)
	d = time.Duration(min(rest, maxSleepMillis)) * time.Millisecond
	if deadline.Serving != 0 {
		d = min(d, max(servingRecordInterval-(c.Monotonic-p.stampedAt), 0))
	}
	return d, true
}

// oversleepsPulse reports whether run would sleep beyond the time of the next pulse.
func (p *proposer) oversleepsPulse() bool {
	if p.g.nextDeadline() == (fsm.Times{}) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oversleepsPulseLocked()
}

func (p *proposer) oversleepsPulseLocked() bool {
	if !p.leading || p.pulseInFlight || p.sleepUntil.IsZero() {
		return false
	}
	wait, ok := p.untilPulse()
	return ok && time.Now().Add(wait).Before(p.sleepUntil)
}

// maxSleepMillis is longer than any sleep of a leader, in milliseconds.
const maxSleepMillis fsm.Millis = 3_600_000

// nextDeadline returns the deadlines of the next pulse, 0 for none.
func (g *Group) nextDeadline() fsm.Times {
	return fsm.Times{Wall: fsm.Instant(g.deadlineWall.Load()), Serving: fsm.Instant(g.deadlineServing.Load())}
}
