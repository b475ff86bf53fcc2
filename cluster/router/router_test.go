package router

import (
	"log/slog"

	"github.com/peeklock/peeklock/fsm"
)

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// lockedMessages is the result of a Lock.
type lockedMessages struct {
	code       fsm.Code
	deliveries []fsm.Delivery
}
