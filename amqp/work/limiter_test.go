package work_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/work"
)

// An account begins its burst at once and then goes on at its rate; so does the limiter with all accounts together.
func TestRateAndBurst(t *testing.T) {
	t.Parallel()
	const many = 1_000_000
	for name, limits := range map[string][4]int{
		"account": {many, many, 100, 200},
		"process": {100, 200, many, many},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := work.NewLimiter(limits[0], limits[1]).Open(limits[2], limits[3])
				begin := time.Now()
				for range 200 {
					a.Wait(t.Context(), nil, 1)
				}
				if d := time.Since(begin); d > 0 {
					t.Errorf("the burst took %v", d)
				}
				for range 300 {
					a.Wait(t.Context(), nil, 1)
				}
				if d := time.Since(begin); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
					t.Errorf("300 units at 100 per second took %v", d)
				}
				a.Wait(t.Context(), nil, 500)
				begin = time.Now()
				a.Wait(t.Context(), nil, 1)
				if d := time.Since(begin); d < 4900*time.Millisecond {
					t.Errorf("work began %v after work of 500 units at 100 per second", d)
				}
			})
		})
	}
}

// A connection that requests little does not wait behind those that request much, and those get equal shares.
func TestSharesAreFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		limiter := work.NewLimiter(1000, 100)
		var greedy sync.WaitGroup
		var units [10]int
		for i := range units {
			cost := 1 + 99*(i%2) // small and large requests
			greedy.Go(func() {
				a := limiter.Open(1_000_000, 1_000_000)
				for ctx.Err() == nil {
					a.Wait(ctx, nil, cost)
					units[i] += cost
				}
			})
		}
		modest := limiter.Open(1_000_000, 1_000_000)
		for range 20 {
			<-time.After(time.Second)
			begin := time.Now()
			modest.Wait(ctx, nil, 1)
			if d := time.Since(begin); d > 210*time.Millisecond { // two of the large requests
				t.Errorf("a small request waited %v", d)
			}
		}
		cancel()
		greedy.Wait()
		for i, n := range units {
			if n < 1700 || n > 2300 {
				t.Errorf("connection %d received %d units in 20 s, not a tenth of 20,000", i, n)
			}
		}
	})
}

// A wait ends with its connection, and what it waited for is not charged to others.
func TestWaitEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := work.NewLimiter(10, 10)
		first, second, third := limiter.Open(1000, 1000), limiter.Open(1000, 1000), limiter.Open(1000, 1000)
		first.Wait(t.Context(), nil, 20) // 10 units too many: one second
		begin, stop := time.Now(), make(chan struct{})
		close(stop)
		second.Wait(t.Context(), stop, 1000)
		if d := time.Since(begin); d > 0 {
			t.Errorf("a wait that was stopped took %v", d)
		}
		third.Wait(t.Context(), nil, 1)
		if d := time.Since(begin); d > 1100*time.Millisecond {
			t.Errorf("the next one waited %v", d)
		}
	})
}
