package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

type failingRouter struct{ err error }

func (r failingRouter) DeleteIdleShards(context.Context, fsm.EntityID) error { return r.err }
func (r failingRouter) LiftFences(context.Context, fsm.FencedShard) error    { return r.err }

// Two members may find an entity idle at once. That one of them finds it deleted is not logged.
func TestDeletionByAnotherMemberIsNoFailure(t *testing.T) {
	t.Parallel()
	for err, warns := range map[error]bool{
		fmt.Errorf("fence \"q\": %w", fsm.EntityNotFound):            false,
		errors.Join(fmt.Errorf("shard 1: %w", fsm.EntityNotFound)):   false,
		fmt.Errorf("look whether \"q\" is idle: %w", fsm.ServerBusy): true,
	} {
		var log bytes.Buffer
		s := NewIdleShards(&IdleShardsConfig{Router: failingRouter{err}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.deleteShards(t.Context(), 7)
		if strings.Contains(log.String(), "level=WARN") != warns {
			t.Errorf("%v: logs %q", err, log.String())
		}
	}
}
