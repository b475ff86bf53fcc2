package operate

import (
	"fmt"
	"testing"

	"github.com/peeklock/peeklock/topology"
)

// The last hour has one row per full minute, and the newest is 0 minutes old.
func TestMinutesOfAnEntity(t *testing.T) {
	t.Parallel()
	samples := make([]topology.Sample, 13)
	for i := range samples {
		samples[i] = topology.Sample{Incoming: uint32(i), Active: uint32(i)}
	}
	got := fmt.Sprint(minuteRows(samples, topology.RatesEvery))
	if want := "[[1 0.3 0.0 0.0 0.0 0.0 6 0] [0 0.9 0.0 0.0 0.0 0.0 12 0]]"; got != want {
		t.Errorf("got the rows %s, want %s", got, want)
	}
	if got := minuteRows(samples[:5], topology.RatesEvery); got != nil {
		t.Errorf("got %v, want no row for less than a minute", got)
	}
}
