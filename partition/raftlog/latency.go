package raftlog

import (
	"slices"
	"sync"
	"time"
)

const (
	latencyWindow    = 5 * time.Second // of the writes in a median
	latencyWritesMax = 64              // the newest ones
)

// Latency says how long writes of a log take now.
type Latency struct {
	Oldest time.Duration // age of the write in progress, 0 without one
	Median time.Duration // of the newest 64 writes of the last 5 s, 0 without one, and positive otherwise
}

// latencies holds the durations of the newest writes, in a ring. It may be used concurrently; its zero value is ready to use.
type latencies struct {
	mu     sync.Mutex
	next   int
	writes [latencyWritesMax]struct {
		ended time.Time
		took  time.Duration
	}
}

func (l *latencies) add(ended time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[l.next].ended, l.writes[l.next].took = ended, took
	l.next = (l.next + 1) % latencyWritesMax
}

func (l *latencies) median() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := make([]time.Duration, 0, latencyWritesMax)
	for _, w := range l.writes {
		if !w.ended.IsZero() && time.Since(w.ended) < latencyWindow {
			took = append(took, w.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return max(1, took[len(took)/2])
}
