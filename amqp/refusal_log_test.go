package amqp

import (
	"log/slog"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

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
	const wrong = 20 * refusal.LogLinesMax
	began := time.Now()
	for i := range uint32(wrong) {
		p.send(&wire.Attach{Name: "x", Handle: i, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders"}})
		p.refusedLink()
	}
	windows := int(time.Since(began)/refusal.LogEvery) + 2
	lines, missing := 0, false
	for _, line := range log.lines(t) {
		if line["msg"] == "request refused" {
			lines++
			missing = missing || line["not_logged"] != 0.0
		}
	}
	if lines < refusal.LogLinesMax || lines > windows*refusal.LogLinesMax {
		t.Errorf("%d lines of %d refusals in %d windows", lines, wrong, windows)
	}
	if lines := len(audit.lines(t)) - 1; lines < refusal.LogLinesMax || lines > windows*refusal.LogLinesMax { // one is the login
		t.Errorf("%d audit lines of %d refusals in %d windows", lines, wrong, windows)
	}
	if missing && windows == 2 {
		t.Error("lines are missing before any was left out")
	}
}
