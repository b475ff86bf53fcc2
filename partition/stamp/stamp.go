package stamp

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of the times that a leader stamps into entries.
const (
	// servingGapMax is the longest time before a leadership that counts as serving time, once per leadership:
	// about what electing a leader takes. Everything beyond it, back to the newest entry, counts as outage.
	servingGapMax = time.Second
	// ErrorMax is how far wall time may be from the median of the members' clocks.
	ErrorMax = 500 * time.Millisecond
	// WallLagMax is how many milliseconds wall time may lag behind the clock, so that its distance to serving time
	// stays the same from entry to entry.
	WallLagMax fsm.Instant = 5
	// UnconfirmedMax is how long a new leader grants no locks, and takes no messages by number or to forward them,
	// while no quorum confirms the time: members compare their clocks within some seconds of their start.
	UnconfirmedMax = 10 * time.Second
)

// Stamper computes the times of entries while this replica leads. The zero value has no leadership. It must not be used
// concurrently.
type Stamper struct {
	began   bool
	serving fsm.Instant   // when the leadership began
	since   time.Duration // monotonic time of that
	wall    fsm.Instant   // newest wall time that a quorum has confirmed, or that of the newest entry at begin
	wallAt  time.Duration // monotonic time of that

	confirmed bool // a quorum has confirmed a time, or it is no longer waited for

	steadied bool        // distance is known
	distance fsm.Instant // of wall time to serving time, in the newest entry
}

// Clocks are readings of the clocks of a member at one moment.
type Clocks struct {
	Monotonic time.Duration
	Own       fsm.Instant // wall clock of this member
	Agreed    fsm.Instant // median of the clocks of a quorum; 0 if no quorum confirms one
}

// Began reports whether Begin was called.
func (s *Stamper) Began() bool { return s.began }

// IsUnconfirmed reports whether no quorum is known to have confirmed a time since the leadership began.
func (s *Stamper) IsUnconfirmed() bool { return s.began && !s.confirmed }

// Confirm reports whether a quorum confirms a time now, or none has for UnconfirmedMax, after which it is no longer waited for.
func (s *Stamper) Confirm(c Clocks) bool {
	s.confirmed = c.Agreed != 0 || c.Monotonic-s.since >= UnconfirmedMax
	return s.confirmed
}

// Begin starts a leadership. The newest applied entry has the times applied, and was applied here at the
// monotonic time at.
func (s *Stamper) Begin(applied fsm.Times, at, now time.Duration) {
	*s = Stamper{
		began: true, serving: After(applied.Serving, min(max(now-at, 0), servingGapMax)), since: now,
		wall: applied.Wall, wallAt: at,
	}
}

// Times returns the times that an entry would get now.
func (s *Stamper) Times(c Clocks) fsm.Times {
	return fsm.Times{Wall: s.WallTime(c), Serving: After(s.serving, c.Monotonic-s.since)}
}

// Stamped records that an entry got these times. Without a quorum it records nothing: the monotonic clock would
// be rounded down to milliseconds once per entry, and wall time would stand still under load.
func (s *Stamper) Stamped(t fsm.Times, c Clocks) {
	if s.wall == 0 || c.Agreed != 0 {
		s.wall, s.wallAt = t.Wall, c.Monotonic
	}
}

// WallTime returns this member's clock as far as the others confirm it. Without a quorum it goes on by the
// monotonic clock. It never goes back: a time ahead of the clocks waits for them.
func (s *Stamper) WallTime(c Clocks) fsm.Instant {
	switch {
	case s.wall == 0 && c.Agreed == 0:
		return c.Own // a new partition
	case c.Agreed == 0:
		return After(s.wall, c.Monotonic-s.wallAt)
	}
	bounded := min(max(c.Own, After(c.Agreed, -ErrorMax)), After(c.Agreed, ErrorMax))
	return max(s.wall, bounded)
}

// Steady keeps the distance of the two times while the clocks permit that. Clients see the end of a lock as a wall
// time; if the distance followed each rounding of the clocks, the messages of one session would end at times that
// differ by a millisecond. Wall time lags behind the clock for this, and is never ahead of it.
func (s *Stamper) Steady(t fsm.Times) fsm.Times {
	if lag := t.Wall - t.Serving - s.distance; !s.steadied || lag < 0 || lag > WallLagMax {
		s.steadied, s.distance = true, t.Wall-t.Serving-1
	}
	return fsm.Times{Wall: t.Serving + s.distance, Serving: t.Serving}
}

// After returns the time d after t, in whole milliseconds.
func After(t fsm.Instant, d time.Duration) fsm.Instant { return t + fsm.Instant(d/time.Millisecond) }
