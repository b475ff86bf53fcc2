package simplan

import (
	"slices"
	"time"
)

// The limits of shrinking.
const (
	shrinkTries  = 2                // runs of a plan until it counts as one that does not fail: a seed need not fail again
	shrinkLength = 10 * time.Second // plans are not made shorter than that
)

// Shrink looks for a smaller plan that fails: it drops faults by halves, then one by one, and then makes the load
// shorter. fails runs a plan and reports whether it failed. Shrink ends when nothing can be left out, or when more
// reports false, which is asked before each run. It returns the smallest plan that failed.
func Shrink(plan Plan, more func() bool, fails func(Plan) bool) Plan {
	works := func(p Plan) bool {
		for range shrinkTries {
			if !more() {
				return false
			}
			if fails(p) {
				return true
			}
		}
		return false
	}
	for size := (len(plan.Faults) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(plan.Faults); {
			smaller := plan
			smaller.Faults = slices.Delete(slices.Clone(plan.Faults), at, min(at+size, len(plan.Faults)))
			if works(smaller) {
				plan = smaller
			} else {
				at += size
			}
		}
	}
	for length := plan.Length / 2; length >= shrinkLength; length /= 2 {
		shorter := plan
		shorter.Length = max(length, plan.end())
		if shorter.Length >= plan.Length || !works(shorter) {
			break
		}
		plan = shorter
	}
	return plan
}

// end is when the last fault has ended.
func (p *Plan) end() (end time.Duration) {
	for i := range p.Faults {
		end = max(end, p.Faults[i].At+p.Faults[i].Length)
	}
	return end
}
