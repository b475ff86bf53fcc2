package clocks

import (
	"slices"
	"time"
)

// The limits of the comparison of the agreed time with the steady time.
const (
	// StepMax is how far the agreed time may move away from the steady time. Beyond it wall time follows the steady
	// time until the distance is at most StepReturnMax.
	StepMax       = time.Minute
	StepReturnMax = 30 * time.Second
	// steadyDriftMax is how far the steady time approaches the agreed time in each second, so that the error of a
	// quartz and the small steps of NTP do not add up to a minute: at least 7 days would.
	steadyDriftMax = 100 * time.Microsecond
	// steadyWaitMax is how long a member that has just started waits for the clocks of all other members before it
	// begins a steady time of its own: one of them may be holding wall time.
	steadyWaitMax = 3 * time.Second
)

// Reading returns the clocks of this member.
func (m *Monitor) Reading() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{Clock: m.now(), Confirmed: m.steady.confirmed}
	if m.steady.began {
		r.Steady = m.steady.time.advanced(m.bootTime())
	}
	return r
}

// Confirm accepts the time on which the clocks of a quorum agree now, after they were set on purpose, and tells the
// other members within some seconds. It returns by how much wall time moves; false if this member does not hold it.
func (m *Monitor) Confirm() (step time.Duration, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.last.Held {
		return 0, false
	}
	step = m.last.Step
	m.steady.confirmed++
	m.steady.begin(m.agreed.clock, m.agreed.at)
	m.last.Held, m.last.Step = false, 0
	return step, true
}

// compareSteady compares the agreed time with the steady time, and with those of the other members. Called with mu
// held, after m.last and m.agreed were computed.
func (m *Monitor) compareSteady() {
	s, at := &m.steady, m.agreed.at
	if m.follows || m.last.Members <= 1 { // a single member never holds wall time
		*s = steadyTime{confirmed: s.confirmed}
		return
	}
	if newest := m.newestConfirmation(); newest > s.confirmed {
		*s = steadyTime{confirmed: newest}
	}
	if !m.last.Agreed {
		m.last.Held, m.last.Step = m.wasHeld && s.began, 0
		return
	}
	others := m.steadyOfOthers(at)
	if !s.began && !m.beginSteady(others) {
		return
	}
	own := s.time.advanced(at)
	if median, many := majority(others, m.last.Members); many && own.Sub(median).Abs() > StepMax {
		own = median // only this host was suspended, or has a broken boot-time clock
	}
	bound := StepMax
	if m.wasHeld {
		bound = StepReturnMax
	}
	step := m.agreed.clock.Sub(own)
	if step.Abs() > bound {
		m.last.Held, m.last.Step = true, step
	} else {
		passed := at - s.time.at
		drift := time.Duration(passed.Seconds() * float64(steadyDriftMax))
		own = own.Add(min(max(step, -drift), drift))
	}
	s.begin(own, at)
}

// beginSteady lets the steady time begin: with that of the other members, else with the agreed time. Of two members
// that differ, the one counts that is further from the agreed time, so that wall time stays held. It returns false
// while the member has to wait for their clocks.
func (m *Monitor) beginSteady(others []time.Time) bool {
	s, agreed := &m.steady, m.agreed
	if len(others) > 0 {
		slices.SortFunc(others, func(a, b time.Time) int {
			return int(a.Sub(agreed.clock).Abs() - b.Sub(agreed.clock).Abs())
		})
		s.begin(others[len(others)/2], agreed.at)
		return true
	}
	if m.last.Known < m.last.Members {
		if !s.waits {
			s.waits, s.waitsFrom = true, agreed.at
		}
		if agreed.at-s.waitsFrom < steadyWaitMax {
			return false
		}
	}
	s.begin(agreed.clock, agreed.at)
	return true
}

// newestConfirmation returns the highest number of confirmations that another member has told.
func (m *Monitor) newestConfirmation() (newest uint64) {
	for _, r := range m.readings {
		newest = max(newest, r.confirmed)
	}
	return newest
}

// steadyOfOthers returns the steady times, at a moment of the boot-time clock, of the other members that know as many
// confirmations as this one.
func (m *Monitor) steadyOfOthers(at time.Duration) (others []time.Time) {
	for _, r := range m.readings {
		if !r.steady.IsZero() && r.confirmed == m.steady.confirmed {
			others = append(others, r.steady.Add(at-r.at))
		}
	}
	return others
}

// majority returns the median of the steady times, and whether those within StepMax of it are of more than half of
// the members.
func majority(times []time.Time, members int) (median time.Time, many bool) {
	if len(times) <= members/2 {
		return time.Time{}, false
	}
	slices.SortFunc(times, time.Time.Compare)
	median = times[(len(times)-1)/2]
	within := 0
	for _, t := range times {
		if t.Sub(median).Abs() <= StepMax {
			within++
		}
	}
	return median, within > members/2
}
