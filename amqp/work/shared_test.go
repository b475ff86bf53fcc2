package work

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many requests of an owner are in progress, they have one rate and one burst, and other owners have theirs.
func TestRequestsOfAnOwnerShareItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, burst, parallel, each, cost = 1000, 2000, 50, 10, 20
		s := NewShared(NewLimiter(1<<30, 1<<30))
		greedy, honest := Owner{Namespace: 1, Key: "greedy"}, Owner{Namespace: 2, Key: "greedy"}
		start := time.Now()
		var all sync.WaitGroup
		for range parallel {
			all.Go(func() {
				for range each {
					a := s.Open(greedy, perSecond, burst)
					a.Wait(t.Context(), nil, cost)
					a.Close()
				}
			})
		}
		synctest.Wait()
		other := s.Open(honest, perSecond, burst)
		other.Wait(t.Context(), nil, burst)
		if d := time.Since(start); d > 0 {
			t.Errorf("another owner waited %v", d)
		}
		other.Close()
		all.Wait()
		const want = (parallel*each*cost - burst) * time.Second / perSecond
		if d := time.Since(start); d < want-100*time.Millisecond || d > want+100*time.Millisecond {
			t.Errorf("the requests took %v, want %v", d, want)
		}
		if len(s.accounts) != 0 {
			t.Errorf("%d accounts at the end", len(s.accounts))
		}
		again := s.Open(greedy, perSecond, burst)
		start = time.Now()
		again.Wait(t.Context(), nil, 0)
		again.Wait(t.Context(), nil, burst) // what remains of the burst is nothing
		again.Wait(t.Context(), nil, 0)
		if d := time.Since(start); d < burst*time.Second/perSecond-100*time.Millisecond {
			t.Errorf("the owner has a second burst: %v", d)
		}
		again.Close()
		var none *SharedAccount
		none.Wait(t.Context(), nil, 1<<30)
		none.Close()
	})
}
