package client

import (
	"testing"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// noReplicas is a transport of a member that has no replica open.
type noReplicas struct{ Transport }

func (noReplicas) LocalReplica(fsm.PartitionID) rpc.Group { return nil }

// TestStartingMemberIsBusyAboveItsLevel: a member that does not know the format level yet answers that it is busy to a
// command of a higher one: InvalidArgument would be final.
func TestStartingMemberIsBusyAboveItsLevel(t *testing.T) {
	t.Parallel()
	if canWrite(noReplicas{}, fsm.FormatLevel+1) || !canWrite(noReplicas{}, 1) {
		t.Errorf("writes level %d: %v, and level 1: %v; want false, true", fsm.FormatLevel+1, canWrite(noReplicas{}, fsm.FormatLevel+1), canWrite(noReplicas{}, 1))
	}
	if code := belowLevel(noReplicas{}); code != fsm.ServerBusy {
		t.Errorf("got %v, want %v", code, fsm.ServerBusy)
	}
}
