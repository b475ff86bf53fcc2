package clocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// host is a member of a fleet: its clocks, which the test sets, and its monitor.
type host struct {
	*Monitor
	wall time.Time
	boot time.Duration
}

// fleet is a cluster whose members compare their clocks once a second.
type fleet struct {
	t       *testing.T
	members []fsm.MemberID
	hosts   []*host // nil: away
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, hosts: make([]*host, n)}
	for i := range n {
		f.members = append(f.members, fsm.MemberID(fmt.Sprintf("m%d", i)))
	}
	for i := range n {
		f.start(i, time.Unix(1_700_000_000, 0))
	}
	f.pass(10)
	return f
}

// start starts a member whose clock shows wall.
func (f *fleet) start(i int, wall time.Time) {
	h := &host{wall: wall, boot: time.Duration(i+1) * time.Hour}
	boot := func() time.Duration { return h.boot }
	h.Monitor = New(f.members[i], func() time.Time { return h.wall }, boot, boot)
	f.hosts[i] = h
}

// pass lets seconds pass; in each of them every member hears of all others and compares.
func (f *fleet) pass(seconds int) {
	for range seconds {
		for _, h := range f.hosts {
			if h != nil {
				h.wall, h.boot = h.wall.Add(time.Second), h.boot+time.Second
			}
		}
		for i, h := range f.hosts {
			for j, other := range f.hosts {
				if h != nil && other != nil && i != j {
					h.Observe(f.members[j], other.Reading(), 0)
				}
			}
		}
		for _, h := range f.hosts {
			if h != nil {
				h.Compare(f.members)
			}
		}
	}
}

// step sets the clocks of all members.
func (f *fleet) step(d time.Duration) {
	for _, h := range f.hosts {
		if h != nil {
			h.wall = h.wall.Add(d)
		}
	}
}

// expect verifies that each member holds wall time, or does not, and that its time is distance behind its clock.
func (f *fleet) expect(what string, held bool, distance time.Duration) {
	f.t.Helper()
	for i, h := range f.hosts {
		if h == nil {
			continue
		}
		at, ok := h.AgreedTime()
		got := h.wall.Sub(at)
		if h.Last().Held != held || !ok || (got-distance).Abs() > ErrorMax {
			f.t.Errorf("%s: m%d: held %v, agreed %v, its time is %v behind its clock; want held %v, agreed, %v", what, i, h.Last().Held, ok, got, held, distance)
		}
		if held && (h.Last().Step-distance).Abs() > ErrorMax {
			f.t.Errorf("%s: m%d: the step is %v, want %v", what, i, h.Last().Step, distance)
		}
	}
}

// TestTimeIsHeldWhenAllClocksAreSet: a step of all clocks by more than a minute is not followed, until the clocks are right
// again.
func TestTimeIsHeldWhenAllClocksAreSet(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour, 61 * time.Second} {
		f := newFleet(t, 3)
		f.step(step)
		f.pass(3600)
		f.expect("set", true, step)
		f.step(-step)
		f.pass(2)
		f.expect("set back", false, 0)
	}
	f := newFleet(t, 3)
	f.step(59 * time.Second)
	f.pass(2)
	f.expect("a small step", false, 0)
}

// TestSmallStepsDoNotAddUp: the steps of a week that NTP makes are followed, although they are more than a minute together.
func TestSmallStepsDoNotAddUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	for day := range 20 {
		f.step(5 * time.Second)
		for _, h := range f.hosts { // the day passes
			h.wall, h.boot = h.wall.Add(24*time.Hour), h.boot+24*time.Hour
		}
		f.pass(2)
		f.expect(fmt.Sprint("day ", day), false, 0)
	}
}

// TestStartedMemberTakesTheHoldOver: members that start while wall time is held go on with the time of the others, one after
// the other, and also two at once.
func TestStartedMemberTakesTheHoldOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.step(3 * time.Hour)
	f.pass(5)
	for i := range f.hosts {
		f.start(i, f.hosts[i].wall)
		f.pass(5)
		f.expect(fmt.Sprintf("m%d was restarted", i), true, 3*time.Hour)
	}
	kept := f.hosts[2]
	f.start(0, kept.wall)
	f.start(1, kept.wall)
	f.hosts[2] = nil // is reached 2 s later
	f.pass(2)
	for i := range 2 {
		if _, ok := f.hosts[i].AgreedTime(); ok {
			t.Errorf("m%d knows a time before it has heard all members, or waited for them", i)
		}
	}
	kept.wall, kept.boot, f.hosts[2] = kept.wall.Add(2*time.Second), kept.boot+2*time.Second, kept
	f.pass(2)
	f.expect("two were restarted", true, 3*time.Hour)

	alone := newFleet(t, 3)
	alone.start(0, alone.hosts[2].wall)
	alone.start(1, alone.hosts[2].wall)
	alone.hosts[2] = nil
	alone.pass(5)
	alone.expect("a member is away for long", false, 0)
}

// TestOneSuspendedHostHoldsNothing: a pause of one host, which its boot-time clock did not count, is no step of all clocks.
func TestOneSuspendedHostHoldsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.hosts[1].boot -= 5 * time.Minute
	f.pass(2)
	f.expect("one was paused", false, 0)
	f.step(time.Hour)
	f.pass(2)
	f.expect("set", true, time.Hour)
}

// TestOperatorConfirmsTheTime: a confirmation at one member moves the time of all to the clocks, and a later step is held
// again. Members that start later know of the confirmation.
func TestOperatorConfirmsTheTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	if step, held := f.hosts[0].Confirm(); held || step != 0 {
		t.Errorf("confirmed a step of %v that never was", step)
	}
	f.step(3 * time.Hour)
	f.pass(5)
	if step, held := f.hosts[1].Confirm(); !held || (step-3*time.Hour).Abs() > ErrorMax {
		t.Errorf("the confirmed step is %v (held %v), want 3h", step, held)
	}
	f.pass(2)
	f.expect("confirmed", false, 0)
	f.start(1, f.hosts[0].wall)
	f.pass(5)
	f.expect("restarted", false, 0)
	f.step(-2 * time.Minute)
	f.pass(5)
	f.expect("set again", true, -2*time.Minute)
	if _, held := f.hosts[1].Confirm(); !held {
		t.Error("a member that has restarted since the first confirmation cannot confirm")
	}
	f.pass(2)
	f.expect("confirmed again", false, 0)
}

// TestHoldOutlivesALostQuorum: while too few clocks are known, nothing is agreed, and afterwards wall time is still held.
func TestHoldOutlivesALostQuorum(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.step(3 * time.Hour)
	f.pass(5)
	away := f.hosts
	f.hosts = []*host{away[0], nil, nil}
	f.pass(20)
	if last := away[0].Last(); last.Agreed || !last.Held || last.Step != 0 {
		t.Errorf("alone: %+v, want held without an agreed time", last)
	}
	for _, h := range away[1:] {
		h.wall, h.boot = h.wall.Add(20*time.Second), h.boot+20*time.Second
	}
	f.hosts = away
	f.pass(3)
	f.expect("together again", true, 3*time.Hour)
}

// TestSingleMemberAndDevelopersFollowTheClock: nothing is held by a single member, nor without a boot-time clock.
func TestSingleMemberAndDevelopersFollowTheClock(t *testing.T) {
	t.Parallel()
	single := newFleet(t, 1)
	single.step(3 * time.Hour)
	single.pass(2)
	single.expect("a single member", false, 0)

	dev := newFleet(t, 3)
	for i, h := range dev.hosts {
		h.Monitor = New(dev.members[i], func() time.Time { return h.wall }, func() time.Duration { return h.boot }, nil)
	}
	dev.pass(2)
	dev.step(3 * time.Hour)
	dev.pass(2)
	dev.expect("without a boot-time clock", false, 0)
}
