package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// The buckets of a histogram: bucket i counts durations up to histogramFirst << i, that is 250 us to 8.2 s,
// and one more bucket counts the rest.
const (
	histogramFirst   = 250 * time.Microsecond
	histogramBuckets = 16
)

// Histogram counts durations. Its zero value is ready to use. It may be used concurrently and costs two
// atomic additions for each observation.
type Histogram struct {
	counts [histogramBuckets + 1]atomic.Uint64
	nanos  atomic.Int64
}

// Observe counts one duration.
func (h *Histogram) Observe(took time.Duration) {
	took = max(took, 0)
	i := 0
	if took > 0 {
		i = min(bits.Len64(uint64((took-1)/histogramFirst)), histogramBuckets)
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(took))
}

// Durations is a snapshot of a histogram.
type Durations struct {
	// Within[i] counts durations up to Bound(i); the counts are cumulative.
	Within [histogramBuckets]uint64
	Count  uint64 // of all durations
	Sum    time.Duration
}

// Bound returns the upper end of bucket i.
func Bound(i int) time.Duration { return histogramFirst << i }

// Durations returns a snapshot of the histogram. Concurrent observations may or may not be included.
func (h *Histogram) Durations() Durations {
	d := Durations{Sum: time.Duration(h.nanos.Load())}
	for i := range h.counts {
		d.Count += h.counts[i].Load()
		if i < histogramBuckets {
			d.Within[i] = d.Count
		}
	}
	return d
}
