package kit

import "testing"

// shortSize divides the state of benchmarks with -short.
const shortSize = 100

// Size returns how much state a benchmark builds before it measures: full, or a hundredth with -short, where CI
// only checks that the benchmark runs.
func Size(full int) int {
	if testing.Short() {
		return full / shortSize
	}
	return full
}
