package starts_test

import (
	"errors"
	"testing"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm/fields"
)

// run returns the start after so many restarts, with nonces from the given one on.
func run(from starts.Start, restarts int, nonce uint64) starts.Start {
	for i := range restarts {
		from = from.Next(nonce + uint64(i))
	}
	return from
}

func TestStartsThatCannotHaveFollowedAreOld(t *testing.T) {
	t.Parallel()
	copied := run(starts.Start{}, 5, 100)
	seen := run(copied, 2, 200) // start 7
	for name, c := range map[string]struct {
		start starts.Start
		old   bool
	}{
		"the same process":                         {start: seen},
		"the next one":                             {start: run(seen, 1, 300)},
		"many later":                               {start: run(seen, 3*starts.Kept, 300)},
		"the copied one":                           {start: copied, old: true},
		"one restart of the copy":                  {start: run(copied, 1, 300), old: true},
		"as many restarts of the copy":             {start: run(copied, 2, 300), old: true},
		"more restarts of the copy":                {start: run(copied, 2+starts.Kept, 300), old: true},
		"more restarts of the copy than are named": {start: run(copied, 3+starts.Kept, 300)},
	} {
		if err := c.start.Follows(seen); errors.Is(err, starts.ErrOld) != c.old {
			t.Errorf("%s: %v, want old: %t", name, err, c.old)
		}
	}
	accepted := copied
	accepted.AcceptRollback()
	accepted = run(accepted, 1, 300)
	if err := accepted.Follows(seen); err != nil {
		t.Errorf("after the rollback was accepted: %v", err)
	}
	if err := seen.Follows(accepted); err == nil {
		t.Error("the former folder is not old after the rollback was accepted")
	}
}

func TestStartIsReadBack(t *testing.T) {
	t.Parallel()
	want := run(starts.Start{}, 12, 1)
	x := fields.Encoder(nil)
	want.Fields(&x)
	encoded := x.Buf
	d := fields.Decoder(encoded)
	var got starts.Start
	got.Fields(&d)
	if err := d.End(); err != nil || got != want || len(encoded) != starts.Bytes {
		t.Errorf("%d bytes came back as %+v, %v, want %+v", len(encoded), got, err, want)
	}
}
