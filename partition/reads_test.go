package partition

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestFewReadsAtATime: the next apply waits for the reads that look at the machine, so very many reads may not look at once.
func TestFewReadsAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		var now atomic.Int64
		var reading sync.WaitGroup
		look := make(chan struct{})
		for range 10 * readsMax {
			reading.Go(func() {
				if err := g.Read(t.Context(), func(Machine) { now.Add(1); <-look; now.Add(-1) }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := now.Load(); got != readsMax {
			t.Errorf("%d reads look at the machine at a time, want %d", got, readsMax)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Read(ctx, func(Machine) {}) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a read that ended while it waited returned %v, want %v", err, context.Canceled)
		}
		close(look)
		reading.Wait()
	})
}
