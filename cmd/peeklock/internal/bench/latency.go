package bench

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies is a histogram that several goroutines may use.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, latencyMaxMicros, latencyDigits)}
}

func (l *latencies) add(nanos int64) {
	micros := min(max(nanos/1000, 1), latencyMaxMicros)
	l.mu.Lock()
	_ = l.h.RecordValue(micros) // the value is within the limits of the histogram
	l.mu.Unlock()
}

// Latencies are in microseconds, with a precision of three digits, up to ten minutes.
const (
	latencyMaxMicros = 10 * 60 * 1_000_000
	latencyDigits    = 3
)
