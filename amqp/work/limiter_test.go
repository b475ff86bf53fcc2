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
				a := work.NewLimiter(limits[0], limits[1]).Open(work.Owner{}, limits[2], limits[3])
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
				a := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
				for ctx.Err() == nil {
					a.Wait(ctx, nil, cost)
					units[i] += cost
				}
			})
		}
		modest := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
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

// Two keys get equal shares, on however many connections, and the connections of one key get equal shares of that.
func TestKeysGetEqualShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		limiter := work.NewLimiter(1000, 100)
		var connections sync.WaitGroup
		var units [11]int // ten connections of one key, and one of another
		for i := range units {
			key := "many"
			if i == 10 {
				key = "one"
			}
			connections.Go(func() {
				a := limiter.Open(work.Owner{Namespace: 1, Key: key}, 1_000_000, 1_000_000)
				defer a.Close()
				for ctx.Err() == nil {
					a.Wait(ctx, nil, 1+i%3)
					units[i] += 1 + i%3
				}
			})
		}
		<-time.After(20 * time.Second)
		cancel()
		connections.Wait()
		for i, n := range units[:10] {
			if n < 850 || n > 1150 { // whoever asks late has no claim to what it did not ask for
				t.Errorf("connection %d of ten received %d units in 20 s, not a twentieth of 20,000", i, n)
			}
		}
		if n := units[10]; n < 9500 || n > 10_500 {
			t.Errorf("the only connection of its key received %d units in 20 s, not half of 20,000", n)
		}
	})
}

// A wait ends with its connection, and what it waited for is not charged to others.
func TestWaitEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := work.NewLimiter(10, 10)
		first, second, third := limiter.Open(work.Owner{}, 1000, 1000), limiter.Open(work.Owner{}, 1000, 1000), limiter.Open(work.Owner{}, 1000, 1000)
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

// A stream of new connections with one large request each does not keep a connection waiting that was served before.
func TestNewConnectionsDoNotStarveOldOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const large, perSecond, shares = 100, 1000, 16
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a wait without end ends the test
		limiter := work.NewLimiter(perSecond, large)
		renewing, busy := limiter.Open(work.Owner{}, 1_000_000, 1_000_000), limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
		renewing.Wait(ctx, nil, 1)
		busy.Wait(ctx, nil, large)
		var stream sync.WaitGroup
		for range 50 {
			stream.Go(func() {
				for ctx.Err() == nil {
					a := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
					a.Wait(ctx, nil, large)
				}
			})
		}
		for range 20 {
			<-time.After(100 * time.Millisecond)
			begin := time.Now()
			renewing.Wait(ctx, nil, 1)
			if d := time.Since(begin); d > 3*large*time.Second/perSecond {
				t.Fatalf("a small request waited %v", d)
			}
		}
		for range 5 {
			begin := time.Now()
			busy.Wait(ctx, nil, large)
			if d := time.Since(begin); d > (shares+3)*large*time.Second/perSecond {
				t.Fatalf("a large request waited %v", d)
			}
		}
		cancel()
		stream.Wait()
	})
}

// New connections are served in the order of their arrival, and those that have gone cost the others nothing.
func TestNewConnectionsAreServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := work.NewLimiter(1000, 1000)
		old := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
		old.Wait(t.Context(), nil, 2000) // one second of others' work
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		served := make(chan int, 20)
		for i := range cap(served) {
			all.Go(func() {
				a := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
				a.Wait(t.Context(), nil, 10)
				served <- i
			})
			all.Go(func() {
				a := limiter.Open(work.Owner{}, 1_000_000, 1_000_000)
				a.Wait(gone, nil, 10_000)
			})
			synctest.Wait()
		}
		leave()
		begin := time.Now()
		all.Wait()
		if d := time.Since(begin); d > 1300*time.Millisecond {
			t.Errorf("they were served after %v", d)
		}
		for i := range cap(served) {
			if got := <-served; got != i {
				t.Errorf("connection %d was served as number %d", got, i)
			}
		}
	})
}

// A client that connects again has no second burst until its first one has filled again; others are not affected.
func TestReconnectingBringsNoSecondBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := work.NewLimiter(1_000_000, 1_000_000)
		use := func(owner string, units int) time.Duration {
			begin := time.Now()
			a := limiter.Open(work.Owner{Key: owner}, 100, 1000)
			for range units {
				a.Wait(t.Context(), nil, 1)
			}
			a.Close()
			return time.Since(begin)
		}
		if d := use("a", 1000); d > 0 {
			t.Errorf("the first burst took %v", d)
		}
		for range 3 {
			if d := use("a", 100); d < 900*time.Millisecond {
				t.Errorf("100 units at 100 per second took %v after reconnecting", d)
			}
		}
		if d := use("b", 1000); d > 0 {
			t.Errorf("the burst of another owner took %v", d)
		}
		<-time.After(11 * time.Second)
		if d := use("a", 1000); d > 0 {
			t.Errorf("a burst that has filled again took %v", d)
		}
	})
}
