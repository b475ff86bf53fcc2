package clocks

import (
	"slices"
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
	// readingAgeMax is how long a reading counts, extrapolated by the boot-time clock.
	readingAgeMax = 10 * time.Second
)

// Observe records the clocks of another member in the middle of a round trip that has just ended.
func (m *Monitor) Observe(member fsm.MemberID, read Reading, roundTrip time.Duration) {
	if roundTrip < 0 || roundTrip > roundTripMax || member == m.self {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := reading{clock: read.Clock.Add(roundTrip / 2), at: m.bootTime(), confirmed: read.Confirmed}
	if !read.Steady.IsZero() {
		r.steady = read.Steady.Add(roundTrip / 2)
	}
	m.readings[member] = r
}

// Compare compares the clocks of the members of the cluster, this one among them, and forgets those of others.
// Without members nothing is agreed: the cluster is not known yet.
func (m *Monitor) Compare(members []fsm.MemberID) Comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, at := m.now(), m.bootTime()
	offsets := map[fsm.MemberID]time.Duration{}
	var sorted []time.Duration
	for _, id := range members {
		r, known := m.readings[id]
		if id == m.self {
			r, known = reading{clock: now, at: at}, true
		}
		if known && at-r.at <= readingAgeMax {
			offsets[id] = r.advanced(at).Sub(now)
			sorted = append(sorted, offsets[id])
		}
	}
	for id := range m.readings {
		if _, counts := offsets[id]; !counts {
			delete(m.readings, id)
		}
	}
	m.wasHeld = m.last.Held
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
		m.agreed = reading{clock: now.Add(median), at: at}
	}
	m.compareSteady()
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

// AgreedTime returns the median of the clocks, extrapolated from the last Compare by the boot-time clock; ok is
// false if no quorum confirms it. A step of this member's own clock does not change it until the next Compare. While
// wall time is held, it returns the steady time.
func (m *Monitor) AgreedTime() (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Agreed && m.last.Members == 1 {
		return m.now(), true
	}
	now, from := m.bootTime(), m.agreed
	if m.last.Held {
		from = m.steady.time
	}
	return from.advanced(now), m.last.Agreed && (m.steady.began || m.follows) && now-m.agreed.at <= readingAgeMax
}

// IsOff reports whether the clock of a member is further than ErrorMax from the median that a quorum confirms.
// It is false for members whose clocks are not known.
func (m *Monitor) IsOff(member fsm.MemberID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off[member]
}
