package clocks

import (
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// reading is a clock at a moment of this member's boot-time clock.
type reading struct {
	clock time.Time
	at    time.Duration

	steady    time.Time // of another member, see Reading
	confirmed uint64
}

// advanced returns the time that the clock shows at another moment, if it was not set meanwhile.
func (r reading) advanced(at time.Duration) time.Time { return r.clock.Add(at - r.at) }

// Comparison is the result of comparing the clocks of all members.
type Comparison struct {
	Members int           // members of the cluster
	Known   int           // of them, those whose clocks are known, this one included
	Agreed  bool          // a quorum confirms a time
	Offset  time.Duration // of this member's clock from the median of the known ones; 0 if no other is known
	// Held is set while the clocks of a quorum have moved together, by Step, away from the boot-time clock: then wall
	// time does not follow them. Step is 0 while no quorum agrees.
	Held bool
	Step time.Duration
}

// Reading is what a member tells others about its clocks.
type Reading struct {
	Clock time.Time // its wall clock
	// Steady is its steady time: the agreed time when it began, advanced by the boot-time clock, which counts the
	// time for which the host is suspended. Zero before it has begun.
	Steady time.Time
	// Confirmed counts the confirmations of an operator that the clocks were set on purpose; each one begins a new
	// steady time.
	Confirmed uint64
}

// steadyTime is the steady time of this member. Guarded by the mutex of the monitor.
type steadyTime struct {
	began     bool
	time      reading // when it began
	confirmed uint64
	waits     bool          // for the clocks of other members, since waitsFrom
	waitsFrom time.Duration // by the boot-time clock
}

// begin lets a steady time begin.
func (s *steadyTime) begin(clock time.Time, at time.Duration) {
	s.began, s.waits, s.time = true, false, reading{clock: clock, at: at}
}

// Monitor compares clocks. All methods may be called concurrently.
type Monitor struct {
	self     fsm.MemberID
	now      func() time.Time
	bootTime func() time.Duration
	follows  bool // the clocks always, however they are set

	mu       sync.Mutex
	readings map[fsm.MemberID]reading
	off      map[fsm.MemberID]bool // members whose clocks are wrong
	last     Comparison
	agreed   reading // the median, when last.Agreed
	steady   steadyTime
	wasHeld  bool // last.Held before the Compare that is under way
}

// New returns a monitor that knows no other clock. now is the wall clock of this member, monotonic counts the time since
// some moment, and so does bootTime, that for which the host is suspended included. If bootTime is nil, wall time follows
// the clocks always.
func New(self fsm.MemberID, now func() time.Time, monotonic, bootTime func() time.Duration) *Monitor {
	m := &Monitor{self: self, now: now, bootTime: bootTime, follows: bootTime == nil, readings: make(map[fsm.MemberID]reading)}
	if m.follows {
		m.bootTime = monotonic
	}
	return m
}
