package stamp

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestServingTimeCountsTheLeadershipAndOneSecond: serving time goes on by the monotonic clock of the leader,
// whatever its wall clock says, and what passed since the newest entry counts for one second at most.
func TestServingTimeCountsTheLeadershipAndOneSecond(t *testing.T) {
	t.Parallel()
	applied := fsm.Times{Wall: 900_000, Serving: 500_000}
	for _, row := range []struct {
		name    string
		idle    time.Duration // since the newest entry, when the leadership began
		led     time.Duration
		serving fsm.Instant
	}{
		{"at once", 0, 0, 500_000},
		{"an election", 300 * time.Millisecond, 0, 500_300},
		{"an outage", time.Hour, 0, 501_000},
		{"an outage, and a minute of leadership", time.Hour, time.Minute, 561_000},
	} {
		var s Stamper
		s.Begin(applied, time.Second, time.Second+row.idle)
		now := Clocks{Monotonic: time.Second + row.idle + row.led, Own: 99_000_000, Agreed: 99_000_000}
		for range 3 { // the second is not added again
			if got := s.Times(now).Serving; got != row.serving {
				t.Errorf("%s: %d, want %d", row.name, got, row.serving)
			}
		}
	}
}

// TestWallTimeGoesOnUnderLoadWithoutAQuorum: entries that follow each other within a millisecond do not stop it.
func TestWallTimeGoesOnUnderLoadWithoutAQuorum(t *testing.T) {
	t.Parallel()
	var s Stamper
	s.Begin(fsm.Times{Wall: 10_000}, 0, 0)
	c := Clocks{Own: 10_000}
	for range 5_000 {
		c.Monotonic += 200 * time.Microsecond
		s.Stamped(s.Times(c), c)
	}
	if got := s.Times(c).Wall; got != 11_000 {
		t.Errorf("after a second, wall time is %d, want 11000", got)
	}
}

// TestTimesKeepTheirDistance: the clocks are read apart and rounded down, and yet the two times keep their distance
// until one of the clocks has moved by some milliseconds.
func TestTimesKeepTheirDistance(t *testing.T) {
	t.Parallel()
	var s Stamper
	const serving = fsm.Instant(1_000)
	for i, row := range []struct{ distance, want fsm.Instant }{
		{50_000, 49_999},
		{50_001, 49_999},
		{49_999, 49_999},
		{50_004, 49_999},
		{50_005, 50_004},
		{50_000, 49_999},
		{20_000, 19_999},
	} {
		got := s.Steady(fsm.Times{Wall: serving + row.distance, Serving: serving})
		if got.Serving != serving || got.Wall != serving+row.want {
			t.Errorf("%d: the distance is %d, want %d", i, got.Wall-got.Serving, row.want)
		}
	}
}

// TestWallTimeFollowsWhatAQuorumConfirms: it jumps with the clock of the leader, within 500 ms of the median;
// it goes on by the monotonic clock while nobody confirms a time; it never goes back.
func TestWallTimeFollowsWhatAQuorumConfirms(t *testing.T) {
	t.Parallel()
	const last, hour = fsm.Instant(10_000_000), fsm.Instant(3_600_000)
	for _, row := range []struct {
		name        string
		last        fsm.Instant
		own, agreed fsm.Instant
		elapsed     time.Duration
		want        fsm.Instant
	}{
		{"all agree", last, last + 70, last + 70, time.Minute, last + 70},
		{"the leader is a little ahead", last, last + 570, last + 100, 0, last + 570},
		{"the leader is an hour ahead", last, last + hour, last + 100, 0, last + 600},
		{"the leader is an hour behind", last, last - hour, last + 900, 0, last + 400},
		{"after an outage", last, last + hour, last + hour, 0, last + hour},
		{"machine time is ahead of the wall", last, last - hour, last - hour, time.Minute, last},
		{"nobody confirms", last, last + hour, 0, 2 * time.Second, last + 2000},
		{"nobody confirms a clock behind", last, last - hour, 0, 2 * time.Second, last + 2000},
		{"a new partition", 0, last, 0, time.Minute, last},
	} {
		var s Stamper
		s.Begin(fsm.Times{Wall: row.last}, 0, 0)
		if got := s.Times(Clocks{Monotonic: row.elapsed, Own: row.own, Agreed: row.agreed}).Wall; got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got-last, row.want-last)
		}
	}
}
