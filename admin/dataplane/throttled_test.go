package dataplane

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// busy refuses every message.
type busy struct{ generous }

func (busy) Send(_ fsm.EntityRef, _ []fsm.Message, done func(fsm.Code)) { done(fsm.ServerBusy) }

// TestThrottledRequestsAreCounted counts a send that is refused because the broker is busy, and none that succeeds.
func TestThrottledRequestsAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		broker       Broker
		status, want int
	}{{busy{}, http.StatusServiceUnavailable, 1}, {generous{}, http.StatusCreated, 0}} {
		counted := 0
		s := New(Config{Broker: c.broker, Authority: anyToken{}, Logger: slog.New(slog.DiscardHandler), Throttled: func(e *fsm.Entity) {
			if e.Name == "q" {
				counted++
			}
		}})
		w := httptest.NewRecorder()
		s.Serve(w, httptest.NewRequest(http.MethodPost, "/q/messages", strings.NewReader("hello")), Caller{Trusted: true})
		if w.Code != c.status || counted != c.want {
			t.Errorf("got status %d and %d counted, want %d and %d: %s", w.Code, counted, c.status, c.want, w.Body)
		}
	}
}
