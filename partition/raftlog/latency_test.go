package raftlog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The median is that of the newest writes; writes of long ago do not count.
func TestMedianOfNewestWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l latencies
		if got := l.median(); got != 0 {
			t.Errorf("without writes: got %v, want 0", got)
		}
		for range 2 * latencyWritesMax {
			l.add(time.Now(), time.Second)
		}
		for range latencyWritesMax/2 + 1 {
			l.add(time.Now(), time.Millisecond)
		}
		if got := l.median(); got != time.Millisecond {
			t.Errorf("most of the newest writes take 1 ms: got %v", got)
		}
		<-time.After(latencyWindow)
		l.add(time.Now(), 2*time.Second)
		if got := l.median(); got != 2*time.Second {
			t.Errorf("one write in the last %v: got %v, want 2 s", latencyWindow, got)
		}
	})
}
