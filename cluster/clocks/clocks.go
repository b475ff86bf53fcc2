package clocks

import (
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of the comparison.
const (
	// ErrorMax is how far a clock may be from the median of the members' clocks; a clock that was further away
	// must return to within ErrorReturnMax.
	ErrorMax       = 500 * time.Millisecond
	ErrorReturnMax = 400 * time.Millisecond
	// roundTripMax is the longest round trip of a reading; the error of a reading is half of its round trip.
	roundTripMax = 250 * time.Millisecond
	// readingAgeMax is how long a reading counts, extrapolated by the monotonic clock.
	readingAgeMax = 10 * time.Second
)

// reading is the clock of another member at a moment of this member's monotonic clock.
type reading struct {
	clock time.Time
	at    time.Duration
}

// Comparison is the result of comparing the clocks of all members.
type Comparison struct {
	Members int           // members of the cluster
	Known   int           // of them, those whose clocks are known, this one included
	Agreed  bool          // a quorum confirms a time
	Offset  time.Duration // of this member's clock from the median of the known ones; 0 if no other is known
}

// Monitor compares clocks. All methods may be called concurrently.
type Monitor struct {
	self      fsm.MemberID
	now       func() time.Time
	monotonic func() time.Duration

	mu       sync.Mutex
	readings map[fsm.MemberID]reading
	off      map[fsm.MemberID]bool // members whose clocks are wrong
	last     Comparison
	agreed   reading // the median, when last.Agreed
}

// New returns a monitor that knows no other clock. now is the wall clock of this member, and monotonic counts
// time since some moment.
func New(self fsm.MemberID, now func() time.Time, monotonic func() time.Duration) *Monitor {
	return &Monitor{self: self, now: now, monotonic: monotonic, readings: make(map[fsm.MemberID]reading)}
}

// Observe records that the clock of another member showed a time in the middle of a round trip that has just
// ended.
func (m *Monitor) Observe(member fsm.MemberID, clock time.Time, roundTrip time.Duration) {
	if roundTrip < 0 || roundTrip > roundTripMax || member == m.self {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readings[member] = reading{clock.Add(roundTrip / 2), m.monotonic()}
}

// Compare compares the clocks of the members of the cluster, this one among them, and forgets those of others.
// Without members nothing is agreed: the cluster is not known yet.
func (m *Monitor) Compare(members []fsm.MemberID) Comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, at := m.now(), m.monotonic()
	offsets := map[fsm.MemberID]time.Duration{}
	var sorted []time.Duration
	for _, id := range members {
		r, known := m.readings[id]
		if id == m.self {
			r, known = reading{now, at}, true
		}
		if known && at-r.at <= readingAgeMax {
			offsets[id] = r.clock.Add(at - r.at).Sub(now)
			sorted = append(sorted, offsets[id])
		}
	}
	for id := range m.readings {
		if _, counts := offsets[id]; !counts {
			delete(m.readings, id)
		}
	}
	m.last = Comparison{Members: len(members), Known: len(sorted)}
	off := map[fsm.MemberID]bool{}
	if len(sorted) > 0 {
		slices.Sort(sorted)
		median := sorted[(len(sorted)-1)/2] // a clock, not the middle of two, which may be twice as far apart
		within := 0
		for id, offset := range offsets {
			bound := ErrorMax
			if m.off[id] {
				bound = ErrorReturnMax
			}
			if (offset - median).Abs() <= bound {
				within++
			} else {
				off[id] = true
			}
		}
		m.last.Agreed, m.last.Offset = within > len(members)/2, -median
		m.agreed = reading{now.Add(median), at}
	}
	if m.last.Agreed {
		m.off = off
	} else {
		m.off = nil // it is not known which clocks are wrong
	}
	return m.last
}

// Last returns the result of the last Compare.
func (m *Monitor) Last() Comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// AgreedTime returns the median of the clocks, extrapolated from the last Compare by the monotonic clock; ok is
// false if no quorum confirms it. A step of this member's own clock does not change it until the next Compare.
func (m *Monitor) AgreedTime() (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Agreed && m.last.Members == 1 {
		return m.now(), true
	}
	age := m.monotonic() - m.agreed.at
	return m.agreed.clock.Add(age), m.last.Agreed && age <= readingAgeMax
}

// IsOff reports whether the clock of a member is further than ErrorMax from the median that a quorum confirms.
// It is false for members whose clocks are not known.
func (m *Monitor) IsOff(member fsm.MemberID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off[member]
}
