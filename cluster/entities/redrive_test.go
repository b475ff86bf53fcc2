package entities

import (
	"errors"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakeclients"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestRedrivesOverTheLimitAreSubmittedAgain: dead letters that an entry could not take follow in the next ones; when an entry
// takes none of them, the caller learns how many came back, and that the partition is busy.
func TestRedrivesOverTheLimitAreSubmittedAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answers []fsm.Result
		want    int
		code    error
	}{
		"all":  {[]fsm.Result{{Count: 1, Sequence: 3}, {Count: 1, Sequence: 4}, {Count: 1}}, 3, nil},
		"some": {[]fsm.Result{{Count: 1, Sequence: 3}, {Sequence: 3}}, 1, fsm.ServerBusy},
	} {
		group := &fakegroup.Group{}
		group.Lead(true, 1)
		r := &Manager{Clients: fakeclients.New(t, group)}
		var count int
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			count, err = r.redrive(t.Context(), fsm.EntityRef{Entity: fsm.Entity{ID: 1, Partition: 1}}, []fsm.SequenceNumber{1, 3, 4})
		}()
		for _, result := range row.answers {
			group.Await(t, 1, 0)
			group.Take()[0].Done(partition.Answer{Outcome: partition.Done, Result: result})
		}
		if <-done; count != row.want || !errors.Is(err, row.code) {
			t.Errorf("%s: %d, %v", name, count, err)
		}
	}
}
