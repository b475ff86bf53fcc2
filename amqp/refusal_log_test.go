package amqp

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }

// Each client has its own lines in each window, and the first line after omitted ones contains their number.
func TestLogLinesOfAClientAreLimited(t *testing.T) {
	t.Parallel()
	var l logLimiter
	now := time.Unix(1_000_000, 0)
	for range 2 {
		for i := range logLinesMax {
			if ok, before := l.allow(client(1), now); !ok || i > 0 && before != 0 {
				t.Errorf("line %d: %v, %d before", i, ok, before)
			}
		}
		for range 5 {
			if ok, _ := l.allow(client(1), now); ok {
				t.Error("too many lines")
			}
		}
		if ok, _ := l.allow(client(2), now); !ok {
			t.Error("another client has none")
		}
		now = now.Add(logEvery)
	}
	if ok, before := l.allow(client(1), now); !ok || before != 5 {
		t.Errorf("%v, %d before", ok, before)
	}
}

// Regardless of the number of clients, the limiter remembers a fixed number; the others share one window.
func TestLogLimiterIsBounded(t *testing.T) {
	t.Parallel()
	var l logLimiter
	now := time.Unix(1_000_000, 0)
	logged := 0
	for i := range 3 * logClientsMax {
		if ok, _ := l.allow(client(i), now); ok {
			logged++
		}
	}
	if len(l.clients) != logClientsMax || logged != logClientsMax+logLinesMax {
		t.Errorf("%d clients are remembered, %d lines logged", len(l.clients), logged)
	}
	now = now.Add(logEvery)
	if ok, _ := l.allow(client(2*logClientsMax), now); !ok || len(l.clients) != 1 {
		t.Errorf("later %v, %d are remembered", ok, len(l.clients))
	}
}

// A client that repeats an error is answered each time, and logged a few times a second, with the number of
// omitted lines.
func TestRefusalsAreLoggedRarely(t *testing.T) {
	t.Parallel()
	var log auditCapture
	var audit auditCapture
	_, p := piped(t, newFakeBroker("orders"), audit.into, func(c *Config) {
		c.Logger, c.Authorizer = slog.New(slog.NewJSONHandler(&log, nil)), fakeAuthorizer{Grant{Rights: fsm.Listen}}
	})
	p.login()
	const wrong = 20 * logLinesMax
	began := time.Now()
	for i := range uint32(wrong) {
		p.send(&wire.Attach{Name: "x", Handle: i, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders"}})
		p.refusedLink()
	}
	windows := int(time.Since(began)/logEvery) + 2
	lines, missing := 0, false
	for _, line := range log.lines(t) {
		if line["msg"] == "request refused" {
			lines++
			missing = missing || line["not_logged"] != 0.0
		}
	}
	if lines < logLinesMax || lines > windows*logLinesMax {
		t.Errorf("%d lines of %d refusals in %d windows", lines, wrong, windows)
	}
	if lines := len(audit.lines(t)) - 1; lines < logLinesMax || lines > windows*logLinesMax { // one is the login
		t.Errorf("%d audit lines of %d refusals in %d windows", lines, wrong, windows)
	}
	if missing && windows == 2 {
		t.Error("lines are missing before any was left out")
	}
}
