package client

import (
	"errors"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestChangesAreTracked checks that a command that was refused changed nothing, that one that was done, or may have
// been, did, and that a refusal afterwards does not hide that.
func TestChangesAreTracked(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	r := New(&Config{})
	r.clients[1] = newTestClient(t, group, nil)
	ctx, changed := TrackChanges(t.Context())
	busy := partition.Answer{Outcome: partition.Refused, Final: true, Result: fsm.Result{Code: fsm.ServerBusy}}
	for i, step := range []struct {
		answer  partition.Answer
		changed bool
	}{
		{busy, false}, {done(fsm.PreconditionFails), false}, {done(fsm.OK), true}, {busy, true},
	} {
		end := make(chan error, 1)
		go func() {
			_, err := r.Command(ctx, 1, fsm.DropEntity{Entity: 1})
			end <- err
		}()
		group.Await(t, 1, 0)
		group.Take()[0].Done(step.answer)
		err := <-end
		if want := step.answer.Result.Code; want != fsm.OK && !errors.Is(err, want) || changed() != step.changed {
			t.Errorf("step %d: %v, changed %v", i, err, changed())
		}
	}
}
