package partition

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of the times that a leader stamps into entries.
const (
	// servingGapMax is the longest time before a leadership that counts as serving time, once per leadership:
	// about what electing a leader takes. Everything beyond it, back to the newest entry, counts as outage.
	servingGapMax = time.Second
	// clockErrorMax is how far wall time may be from the median of the members' clocks.
	clockErrorMax = 500 * time.Millisecond
	// wallLagMax is how many milliseconds wall time may lag behind the clock, so that its distance to serving time
	// stays the same from entry to entry.
	wallLagMax fsm.Instant = 5
	// servingRecordInterval is the longest time for which an idle leader keeps serving time to itself while a
	// lock or another deadline of serving time is pending: then it proposes a pulse. A next leader continues
	// from the newest entry.
	servingRecordInterval = 10 * time.Second
	// wallCheckInterval is the longest sleep of a leader that waits for a wall time: the clock may be set
	// meanwhile.
	wallCheckInterval = time.Second
	// grantsHeldMax is how long a new leader grants no locks, and takes no messages by number or to forward them,
	// while no quorum confirms the time: members compare their clocks within some seconds of their start.
	grantsHeldMax = 10 * time.Second
)

// stamper computes the times of entries while this replica leads. See DESIGN.md, "Two times".
type stamper struct {
	began   bool
	serving fsm.Instant   // when the leadership began
	since   time.Duration // monotonic time of that
	wall    fsm.Instant   // newest wall time that a quorum has confirmed, or that of the newest entry at begin
	wallAt  time.Duration // monotonic time of that

	confirmed bool // a quorum has confirmed a time, or it is no longer waited for

	steadied bool        // distance is known
	distance fsm.Instant // of wall time to serving time, in the newest entry
}

// clocks are readings of the clocks of a member at one moment.
type clocks struct {
	monotonic time.Duration
	own       fsm.Instant // wall clock of this member
	agreed    fsm.Instant // median of the clocks of a quorum; 0 if no quorum confirms one
}

// begin starts a leadership. The newest applied entry has the times applied, and was applied here at the
// monotonic time at.
func (s *stamper) begin(applied fsm.Times, at, now time.Duration) {
	*s = stamper{
		began: true, serving: after(applied.Serving, min(max(now-at, 0), servingGapMax)), since: now,
		wall: applied.Wall, wallAt: at,
	}
}

// times returns the times that an entry would get now.
func (s *stamper) times(c clocks) fsm.Times {
	return fsm.Times{Wall: s.wallTime(c), Serving: after(s.serving, c.monotonic-s.since)}
}

// stamped records that an entry got these times. Without a quorum it records nothing: the monotonic clock would
// be rounded down to milliseconds once per entry, and wall time would stand still under load.
func (s *stamper) stamped(t fsm.Times, c clocks) {
	if s.wall == 0 || c.agreed != 0 {
		s.wall, s.wallAt = t.Wall, c.monotonic
	}
}

// wallTime returns this member's clock as far as the others confirm it. Without a quorum it goes on by the
// monotonic clock. It never goes back: a time ahead of the clocks waits for them.
func (s *stamper) wallTime(c clocks) fsm.Instant {
	switch {
	case s.wall == 0 && c.agreed == 0:
		return c.own // a new partition
	case c.agreed == 0:
		return after(s.wall, c.monotonic-s.wallAt)
	}
	bounded := min(max(c.own, after(c.agreed, -clockErrorMax)), after(c.agreed, clockErrorMax))
	return max(s.wall, bounded)
}

// steady keeps the distance of the two times while the clocks permit that. Clients see the end of a lock as a wall
// time; if the distance followed each rounding of the clocks, the messages of one session would end at times that
// differ by a millisecond. Wall time lags behind the clock for this, and is never ahead of it.
func (s *stamper) steady(t fsm.Times) fsm.Times {
	if lag := t.Wall - t.Serving - s.distance; !s.steadied || lag < 0 || lag > wallLagMax {
		s.steadied, s.distance = true, t.Wall-t.Serving-1
	}
	return fsm.Times{Wall: t.Serving + s.distance, Serving: t.Serving}
}

// after returns the time d after t, in whole milliseconds.
func after(t fsm.Instant, d time.Duration) fsm.Instant { return t + fsm.Instant(d/time.Millisecond) }

// readClocks reads the clocks of this member.
func (g *Group) readClocks() clocks {
	c := clocks{monotonic: g.cfg.Monotonic(), own: fsm.Instant(g.cfg.Now().UnixMilli())}
	if g.cfg.AgreedTime == nil {
		c.agreed = c.own
	} else if at, ok := g.cfg.AgreedTime(); ok {
		c.agreed = fsm.Instant(at.UnixMilli())
	}
	return c
}

// timeAhead returns by how much the wall time of the newest entry is ahead of the time that a quorum confirms,
// or of this member's clock while none does; 0 if it is not.
func (g *Group) timeAhead() time.Duration {
	c := g.readClocks()
	clock := c.own
	if c.agreed != 0 {
		clock = c.agreed
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
func (p *proposer) nextTimes() (fsm.Times, clocks) {
	c := p.g.readClocks()
	applied := p.g.appliedTimes()
	if !p.stamper.began {
		at := time.Duration(p.g.appliedAt.Load())
		if applied == (fsm.Times{}) { // no entry yet: both times begin with the clock
			own := new(stamper).wallTime(c) // bounded by the clocks of a quorum, if they agree
			applied, at = fsm.Times{Wall: own, Serving: own}, c.monotonic
		}
		p.stamper.begin(applied, at, c.monotonic)
	}
	t := p.stamper.steady(p.stamper.times(c))
	t.Wall = max(t.Wall, applied.Wall, p.lastStamp.Wall)
	t.Serving = max(t.Serving, applied.Serving, p.lastStamp.Serving)
	return t, c
}

// stamp returns the times of an entry that is composed now. Called with mu held.
func (p *proposer) stamp() fsm.Times {
	t, c := p.nextTimes()
	p.lastStamp, p.stampedAt = t, c.monotonic
	p.stamper.stamped(t, c)
	return t
}

// holdsGrants reports whether locks have to wait, because the next deadline has passed by this member's clock and
// no quorum has confirmed a time yet: after an outage of all members a time to live may have ended, and the message
// must not be delivered. It is so for grantsHeldMax at most, so that members whose clocks never agree go on.
// Called with mu held, at the leader.
func (p *proposer) holdsGrants() bool {
	c, unconfirmed := p.unconfirmed()
	deadline := p.g.nextDeadline().Wall
	return unconfirmed && deadline != 0 && deadline <= c.own
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
		return c.own > after(p.stamper.wallTime(c), clockErrorMax)
	case fsm.TakesReady:
		return p.holdsGrants()
	}
	return false
}

// unconfirmed reports whether no quorum has confirmed a time since the leadership began, for grantsHeldMax at most,
// and reads the clocks if so.
func (p *proposer) unconfirmed() (c clocks, yes bool) {
	s := &p.stamper
	if s.confirmed || !s.began {
		return clocks{}, false
	}
	c = p.g.readClocks()
	s.confirmed = c.agreed != 0 || c.monotonic-s.since >= grantsHeldMax
	return c, !s.confirmed
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
		d = min(d, max(servingRecordInterval-(c.monotonic-p.stampedAt), 0))
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
