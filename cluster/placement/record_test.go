package placement

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestRetiredReplicaIsRecognized checks that a record shows a replica as removed only if the record is newer
// than the replica.
func TestRetiredReplicaIsRecognized(t *testing.T) {
	t.Parallel()
	part := fsm.Partition{Replicas: []fsm.Replica{{Member: "A", Number: 1}}, Target: []fsm.Replica{{Member: "B", Number: 4}}, Last: 4}
	for replica, want := range map[fsm.Replica]bool{
		{Member: "A", Number: 1}: false, {Member: "B", Number: 4}: false, {Member: "A", Number: 5}: false,
		{Member: "A", Number: 3}: true, {Member: "C", Number: 1}: true,
	} {
		if got := IsRetired(&part, replica); got != want {
			t.Errorf("%v: %v", replica, got)
		}
	}
}
