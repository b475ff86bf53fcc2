package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// TestStatsCountMovingPartitions checks that a partition counts as moving while it has a target and is not
// paused.
func TestStatsCountMovingPartitions(t *testing.T) {
	t.Parallel()
	n := &Node{}
	if got := n.movingPartitions(); len(got) != 0 {
		t.Errorf("before the catalog is loaded: %v", got)
	}
	target := []fsm.Replica{{Member: "m"}}
	n.partitions.Store(&[]fsm.Partition{{ID: 1}, {ID: 2, Target: target}, {ID: 3, Target: target, Paused: true}})
	if d := cmp.Diff(map[fsm.PartitionID]bool{2: true}, n.movingPartitions()); d != "" {
		t.Error(d)
	}
}
