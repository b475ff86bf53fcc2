package forwarding

import (
	"context"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestRefusedBatchIsSentInANewEpoch: a batch that its destination refuses as outdated is sent again in a new
// epoch, under the same serial and numbers, and so are those that follow.
func TestRefusedBatchIsSentInANewEpoch(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.source.boxes[fsm.Address{Entity: 1}].epoch = 7
	x.LeaderChanged(1, true)
	x.deps.set(func(_ context.Context, _ fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
		if c.Epoch == 7 {
			return fsm.Result{Code: fsm.Stale, Serial: 9}, nil
		}
		return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, nil
	})
	x.put(1, "a", "broken", "b")
	want := []fsm.Code{fsm.OK, fsm.Internal, fsm.OK}
	if codes := x.ended(t, 1, 3); !slices.Equal(codes, want) {
		t.Fatalf("%v", codes)
	}
	x.put(1, "c")
	x.ended(t, 1, 4)
	x.source.mu.Lock()
	defer x.source.mu.Unlock()
	if len(x.source.epochs) != 1 || x.source.epochs[0].Replaces != 7 || x.source.epochs[0].Serial != 1 {
		t.Fatalf("epochs begun: %+v", x.source.epochs)
	}
	brought := x.deps.brought
	if len(brought) != 3 || brought[1].Epoch != x.source.epochs[0].Epoch || brought[1].Serial != 1 || brought[2].Epoch != brought[1].Epoch {
		t.Fatalf("batches: %+v", brought)
	}
	for _, c := range brought[:2] {
		if len(c.Messages) != 2 || c.Messages[0].Number != 1 || c.Messages[1].Number != 3 {
			t.Errorf("numbers: %+v", c.Messages)
		}
	}
}

// TestStaleAnswerBeginsNoEpoch: a Stale that is not about a batch makes the batch wait.
func TestStaleAnswerBeginsNoEpoch(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	x.LeaderChanged(1, true)
	refusals := 0
	x.deps.set(func(_ context.Context, _ fsm.PartitionID, c fsm.TransferMessages) (fsm.Result, error) {
		if refusals++; refusals < 3 {
			return fsm.Result{Code: fsm.Stale}, nil
		}
		return fsm.Result{Codes: make([]fsm.Code, len(c.Messages))}, nil
	})
	x.put(1, "a")
	x.ended(t, 1, 1)
	x.source.mu.Lock()
	defer x.source.mu.Unlock()
	if len(x.source.epochs) != 0 {
		t.Errorf("got the epochs %+v, want none", x.source.epochs)
	}
}
