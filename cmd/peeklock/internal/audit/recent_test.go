package audit

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/topology"
)

// A member keeps its newest audit events, and pages through them return each once, newest first, also if the clock was set back.
func TestRecentEvents(t *testing.T) {
	t.Parallel()
	h := NewRecent(slog.DiscardHandler)
	log := slog.New(h).With("member", "m")
	for i := range recentEventsMax + 10 {
		log.Info("audit", "event", "admin_change", "who", "root", "name", fmt.Sprint(i), "messages", i)
	}
	h.state.events[5].event.At = time.Now().Add(time.Hour)
	seen := make(map[string]bool)
	var q topology.AuditQuery
	for q.Max = 300; ; {
		page := h.Before("m", q)
		for i := range page {
			e := &page[i]
			if seen[e.Fields["name"]] || e.Event != "admin_change" || e.Member != "m" || e.Fields["who"] != "root" || e.Fields["messages"] != e.Fields["name"] {
				t.Fatalf("got %+v, want each event once", e)
			}
			if first := len(seen) == 0; first && e.Fields["name"] != "15" {
				t.Errorf("the first event is %+v, want the one with the latest time", e)
			}
			seen[e.Fields["name"]] = true
		}
		if len(page) < q.Max {
			break
		}
		last := &page[len(page)-1]
		q.Before = &topology.AuditCursor{At: last.At, Member: last.Member, Number: last.Number}
	}
	if len(seen) != recentEventsMax || seen["9"] || !seen["10"] {
		t.Errorf("%d events are kept, want the newest %d", len(seen), recentEventsMax)
	}
}

// What is kept is bounded in bytes, too: texts of clients are cut.
func TestRecentEventsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	h := NewRecent(slog.DiscardHandler)
	log, long := slog.New(h), strings.Repeat("é", recentTextMax)
	for range recentEventsMax {
		log.Info("audit", "event", "login_refused", "a", long, "b", long, "c", long, "d", long)
	}
	sum := 0
	for i := range h.state.events {
		sum += h.state.events[i].bytes
	}
	if n := len(h.state.events); sum > recentBytesMax || sum != h.state.bytes || n < recentBytesMax/4/recentTextMax/2 || n == recentEventsMax {
		t.Errorf("%d events take %d bytes, counted as %d; want at most %d", n, sum, h.state.bytes, recentBytesMax)
	}
	if e := h.Before("m", topology.AuditQuery{Max: 1})[0]; len(e.Fields["a"]) > recentTextMax {
		t.Errorf("a field has %d bytes, want at most %d", len(e.Fields["a"]), recentTextMax)
	}
}
