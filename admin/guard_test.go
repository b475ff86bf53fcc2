package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/work"
)

// TestUnauthenticatedRequestsWait: requests that no key pays for wait when their address has used up its burst. Those of other
// addresses, of callers with a key, and for the health of the member do not.
func TestUnauthenticatedRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &core{work: work.NewShared(work.NewLimiter(1e6, 1e6))}
		ask := func(from string, next http.HandlerFunc, times int) time.Duration {
			begun := time.Now()
			for range times {
				r := httptest.NewRequest(http.MethodOptions, "/v1/queues", http.NoBody)
				r.RemoteAddr = from + ":1"
				s.limitUnauthenticated(next).ServeHTTP(httptest.NewRecorder(), r)
			}
			return time.Since(begun).Round(10 * time.Millisecond)
		}
		refused := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
		const burst, later = unauthenticatedWorkBurst / unauthenticatedCost, 100
		for _, c := range []struct {
			name, from string
			next       http.HandlerFunc
			times      int
			want       time.Duration
		}{
			{"the burst", "192.0.2.1", refused, burst, 0},
			{"more", "192.0.2.1", refused, later, later * unauthenticatedCost * time.Second / unauthenticatedWorkPerSecond},
			{"of another address", "192.0.2.2", refused, later, 0},
			{"of a caller", "192.0.2.1", func(_ http.ResponseWriter, r *http.Request) { setExempt(r) }, later, 0},
			{"for health", "192.0.2.1", unlimited(refused), later, 0},
		} {
			if got := ask(c.from, c.next, c.times); got != c.want {
				t.Errorf("%s: %d requests took %v, want %v", c.name, c.times, got, c.want)
			}
		}
	})
}
