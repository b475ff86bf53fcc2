package router

import (
	"errors"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestSettlementsOverTheLimitAreSubmittedAgain: settlements that an entry could not take follow in the
// next ones; when an entry takes none of them, the caller learns that the partition is busy.
func TestSettlementsOverTheLimitAreSubmittedAgain(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	r := &Router{Manager: &Manager{Clients: testClients(t, group)}}
	settlements := make([]fsm.Settlement, 4)
	for i := range settlements {
		settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Verb: fsm.Defer}
	}
	got := make(chan []fsm.Code, 1)
	r.Settle(fsm.EntityRef{Entity: fsm.Entity{ID: 1, Partition: 1}}, settlements, func(codes []fsm.Code) { got <- codes })
	for _, codes := range [][]fsm.Code{
		{fsm.ServerBusy, fsm.OK, fsm.ServerBusy, fsm.ServerBusy},
		{fsm.OK, fsm.ServerBusy, fsm.MessageLockLost},
		{fsm.ServerBusy},
	} {
		group.Await(t, 1, 0)
		group.Take()[0].Done(partition.Answer{Outcome: partition.Done, Result: fsm.Result{Codes: codes}})
	}
	if codes, want := <-got, []fsm.Code{fsm.OK, fsm.OK, fsm.ServerBusy, fsm.MessageLockLost}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
}

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
		r := &Router{Manager: &Manager{Clients: testClients(t, group)}}
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
