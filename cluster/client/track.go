package client

import (
	"context"
	"sync/atomic"

	"github.com/peeklock/peeklock/fsm"
)

// changeKey is the key of the flag in a context of TrackChanges.
type changeKey struct{}

// TrackChanges returns a context and a function that reports whether a command that was submitted with it may have
// changed something. An operation of several steps that ends with ServerBusy was certainly not done only if the
// function returns false. It may be called from any goroutine.
func TrackChanges(ctx context.Context) (tracked context.Context, changed func() bool) {
	flag := new(atomic.Bool)
	return context.WithValue(ctx, changeKey{}, flag), flag.Load
}

// recordChange sets the flag of TrackChanges if a command with this result may have changed something.
func recordChange(ctx context.Context, code fsm.Code) {
	if flag, ok := ctx.Value(changeKey{}).(*atomic.Bool); ok && (code == fsm.OK || code == fsm.Timeout) {
		flag.Store(true)
	}
}
