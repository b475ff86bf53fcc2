package clocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// rig is a monitor of member m0 whose clocks the test sets.
type rig struct {
	*Monitor
	wall      time.Time
	monotonic time.Duration
	members   []fsm.MemberID
}

// newRig returns a monitor in a cluster of n members.
func newRig(n int) *rig {
	r := &rig{wall: time.Unix(1_700_000_000, 0), monotonic: time.Hour}
	for i := range n {
		r.members = append(r.members, fsm.MemberID(fmt.Sprintf("m%d", i)))
	}
	r.Monitor = New("m0", func() time.Time { return r.wall }, func() time.Duration { return r.monotonic }, nil)
	return r
}

// observe gives m1, m2, ... clocks that are off from that of m0.
func (r *rig) observe(offsets ...time.Duration) {
	for i, offset := range offsets {
		r.Observe(r.members[i+1], Reading{Clock: r.wall.Add(offset)}, 0)
	}
}

func (r *rig) pass(d time.Duration) { r.wall, r.monotonic = r.wall.Add(d), r.monotonic+d }

// TestQuorumConfirmsTheMedian: a time is agreed when more than half of all members are within 500 ms of the
// median of those that are known, and then the others are off.
func TestQuorumConfirmsTheMedian(t *testing.T) {
	t.Parallel()
	const ms, hour = time.Millisecond, time.Hour
	for _, row := range []struct {
		name    string
		members int
		others  []time.Duration
		agreed  bool
		median  time.Duration
		off     []fsm.MemberID
	}{
		{"a single member", 1, nil, true, 0, nil},
		{"no other clock is known", 3, nil, false, 0, nil},
		{"two of three agree", 3, []time.Duration{20 * ms}, true, 0, nil},
		{"two of three agree with the earlier one", 3, []time.Duration{-500 * ms}, true, -500 * ms, nil},
		{"two of three, of which one is wrong", 3, []time.Duration{-501 * ms}, false, 0, nil},
		{"this one is wrong", 3, []time.Duration{-hour, -hour + 10*ms}, true, -hour + 10*ms, []fsm.MemberID{"m0"}},
		{"another one is wrong", 3, []time.Duration{hour, 10 * ms}, true, 10 * ms, []fsm.MemberID{"m1"}},
		{"at the bound", 3, []time.Duration{0, 500 * ms}, true, 0, nil},
		{"above the bound", 3, []time.Duration{0, 501 * ms}, true, 0, []fsm.MemberID{"m2"}},
		{"two members that differ", 2, []time.Duration{hour}, false, hour / 2, nil},
		{"three that differ", 3, []time.Duration{hour, -hour}, false, 0, nil},
		{"two of five", 5, []time.Duration{0}, false, 0, nil},
		{"three of five, one wrong", 5, []time.Duration{0, hour}, false, 0, nil},
		{"four of five, one wrong", 5, []time.Duration{0, 10 * ms, hour}, true, 0, []fsm.MemberID{"m3"}},
	} {
		r := newRig(row.members)
		r.observe(row.others...)
		c := r.Compare(r.members)
		at, ok := r.AgreedTime()
		if c.Agreed != row.agreed || ok != row.agreed || row.agreed && at.Sub(r.wall) != row.median || c.Known != 1+len(row.others) {
			t.Errorf("%s: %+v, agreed %v on %v", row.name, c, ok, at.Sub(r.wall))
		}
		var off []fsm.MemberID
		for _, id := range r.members {
			if r.IsOff(id) {
				off = append(off, id)
			}
		}
		if fmt.Sprint(off) != fmt.Sprint(row.off) {
			t.Errorf("%s: off are %v, want %v", row.name, off, row.off)
		}
	}
}

// TestAgreedTimeDoesNotFollowAStepOfTheOwnClock: between two comparisons it goes on by the monotonic clock.
func TestAgreedTimeDoesNotFollowAStepOfTheOwnClock(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	r.observe(0, 0)
	r.Compare(r.members)
	start := r.wall
	r.pass(2 * time.Second)
	r.wall = r.wall.Add(time.Hour)
	if at, ok := r.AgreedTime(); !ok || at != start.Add(2*time.Second) {
		t.Errorf("agreed on %v after 2 s, %v", at.Sub(start), ok)
	}
	if c := r.Compare(r.members); !c.Agreed || !r.IsOff("m0") || c.Offset != time.Hour {
		t.Errorf("after the step: %+v", c)
	}
}

// TestOldAndSlowReadingsDoNotCount: a reading counts for 10 s, if its round trip took at most 250 ms.
func TestOldAndSlowReadingsDoNotCount(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	r.Observe("m1", Reading{Clock: r.wall}, roundTripMax+1)
	if c := r.Compare(r.members); c.Known != 1 {
		t.Errorf("a slow reading counts: %+v", c)
	}
	r.Observe("m1", Reading{Clock: r.wall}, roundTripMax)
	r.Observe("unknown", Reading{Clock: r.wall}, 0)
	if c := r.Compare(r.members); c.Known != 2 || !c.Agreed || len(r.readings) != 1 {
		t.Errorf("%+v with %d readings", c, len(r.readings))
	}
	r.pass(readingAgeMax)
	if c := r.Compare(r.members); c.Known != 2 {
		t.Errorf("a reading of 10 s does not count: %+v", c)
	}
	r.pass(time.Millisecond)
	if c := r.Compare(r.members); c.Known != 1 || c.Agreed {
		t.Errorf("an older reading counts: %+v", c)
	}
	if _, ok := r.AgreedTime(); ok {
		t.Error("a time is agreed without a quorum")
	}
}

// TestClockThatWasOffMustReturnWellWithin: it does not alternate at the bound.
func TestClockThatWasOffMustReturnWellWithin(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	for _, step := range []struct {
		offset time.Duration
		off    bool
	}{{ErrorMax, false}, {ErrorMax + 1, true}, {ErrorMax, true}, {ErrorReturnMax + 1, true}, {ErrorReturnMax, false}, {ErrorMax, false}} {
		r.observe(0, step.offset)
		r.Compare(r.members)
		if r.IsOff("m2") != step.off {
			t.Errorf("at %v: off %v, want %v", step.offset, r.IsOff("m2"), step.off)
		}
	}
}
