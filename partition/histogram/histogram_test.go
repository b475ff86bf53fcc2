package histogram

import (
	"testing"
	"time"
)

func TestHistogramCountsByBucket(t *testing.T) {
	t.Parallel()
	var h Histogram
	for i := range histogramBuckets {
		h.Observe(Bound(i))     // the last that fits
		h.Observe(Bound(i) + 1) // the first that does not
	}
	h.Observe(-time.Second) // a clock that was set back
	h.Observe(0)
	h.Observe(time.Hour)
	d := h.Durations()
	for i, got := range d.Within {
		if want := uint64(2*i + 3); got != want { // two of each bucket before, one of this, two of zero
			t.Errorf("within %s: %d, want %d", Bound(i), got, want)
		}
	}
	if d.Count != 2*histogramBuckets+3 || d.Sum < time.Hour || Bound(histogramBuckets-1) != 8192*time.Millisecond {
		t.Errorf("%d observed in %s, up to %s", d.Count, d.Sum, Bound(histogramBuckets-1))
	}
}
