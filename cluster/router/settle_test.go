package router

import (
	"slices"
	"testing"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakeclients"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestSettlementsOverTheLimitAreSubmittedAgain: settlements that an entry could not take follow in the
// next ones; when an entry takes none of them, the caller learns that the partition is busy.
func TestSettlementsOverTheLimitAreSubmittedAgain(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	r := newRouter(&entities.Manager{Clients: fakeclients.New(t, group)})
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

// TestSettlementsWithPropertiesAreSplitByBytes: what the settlements of a command add is limited, however small the command is.
func TestSettlementsWithPropertiesAreSplitByBytes(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	r := newRouter(&entities.Manager{Clients: fakeclients.New(t, group)})
	settlements, properties := make([]fsm.Settlement, 100), make([]byte, 50_000)
	want := make([]fsm.Code, len(settlements))
	for i := range settlements {
		settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Verb: fsm.Abandon, Properties: properties}
		want[i] = fsm.Code(i % 2)
	}
	got := make(chan []fsm.Code, 1)
	r.Settle(fsm.EntityRef{Entity: fsm.Entity{ID: 1, Partition: 1}}, settlements, func(codes []fsm.Code) { got <- codes })
	for next := 0; next < len(settlements); {
		group.Await(t, 1, 0)
		submitted := group.Take()[0]
		info, err := fsm.PeekCommand(submitted.Command)
		if err != nil {
			t.Fatal(err)
		}
		if n := info.Settlements; n*len(properties) > addedBytesMax || n < 20 && next+n < len(settlements) {
			t.Fatalf("a command has %d settlements with 50,000 bytes each, want as many as add %d", n, addedBytesMax)
		}
		submitted.Done(partition.Answer{Outcome: partition.Done, Result: fsm.Result{Codes: want[next : next+info.Settlements]}})
		next += info.Settlements
	}
	if codes := <-got; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
}
