package router

import (
	"log/slog"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	kit.Eventually(t, what, holds)
}

// lockedMessages is the result of a Lock.
type lockedMessages struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}
