package refusal

import (
	"net/netip"
	"testing"
	"time"
)

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }

// Each client has its own lines in each window, and the first line after omitted ones contains their number.
func TestLogLinesOfAClientAreLimited(t *testing.T) {
	t.Parallel()
	var l LogLimiter
	now := time.Unix(1_000_000, 0)
	for range 2 {
		for i := range LogLinesMax {
			if ok, before := l.Allow(client(1), now); !ok || i > 0 && before != 0 {
				t.Errorf("line %d: %v, %d before", i, ok, before)
			}
		}
		for range 5 {
			if ok, _ := l.Allow(client(1), now); ok {
				t.Error("too many lines")
			}
		}
		if ok, _ := l.Allow(client(2), now); !ok {
			t.Error("another client has none")
		}
		now = now.Add(LogEvery)
	}
	if ok, before := l.Allow(client(1), now); !ok || before != 5 {
		t.Errorf("%v, %d before", ok, before)
	}
}

// Regardless of the number of clients, the limiter remembers a fixed number; the others share one window.
func TestLogLimiterIsBounded(t *testing.T) {
	t.Parallel()
	var l LogLimiter
	now := time.Unix(1_000_000, 0)
	logged := 0
	for i := range 3 * logClientsMax {
		if ok, _ := l.Allow(client(i), now); ok {
			logged++
		}
	}
	if len(l.clients) != logClientsMax || logged != logClientsMax+LogLinesMax {
		t.Errorf("%d clients are remembered, %d lines logged", len(l.clients), logged)
	}
	now = now.Add(LogEvery)
	if ok, _ := l.Allow(client(2*logClientsMax), now); !ok || len(l.clients) != 1 {
		t.Errorf("later %v, %d are remembered", ok, len(l.clients))
	}
}
