package simplan

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// A failure that needs three faults of many, and half a minute of load, is reduced to them.
func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	plan := New(7, 4*time.Minute, Kill, Delay, Reset)
	for i := range plan.Faults { // each is over within half a minute, and has a number of its own
		plan.Faults[i].At, plan.Faults[i].Length, plan.Faults[i].Amount = time.Duration(i), time.Second, time.Duration(i)
	}
	needed := []time.Duration{1, 4, time.Duration(len(plan.Faults) - 1)}
	runs := 0
	got := Shrink(plan, func() bool { return true }, func(p Plan) bool {
		runs++
		if runs%2 == 0 {
			return false // a plan need not fail each time
		}
		return p.Length >= 30*time.Second && !slices.ContainsFunc(needed, func(n time.Duration) bool {
			return !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Amount == n })
		})
	})
	if len(got.Faults) != len(needed) || got.Length != 30*time.Second {
		t.Errorf("%d faults remain in %v: %v", len(got.Faults), got.Length, &got)
	}
	if got := Shrink(plan, func() bool { return false }, func(Plan) bool { return true }); len(got.Faults) != len(plan.Faults) {
		t.Error("shrunk although no time was left")
	}
}

func TestPlanIsReadBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		plan := New(seed, 5*time.Minute)
		got, err := Parse(plan.Text())
		if err != nil || !reflect.DeepEqual(got, plan) {
			t.Fatalf("%v: read back %v, want %v", err, &got, &plan)
		}
	}
	if _, err := Parse("7 3 4 5m0s\nkill"); err == nil {
		t.Error("half a fault was read")
	}
}
