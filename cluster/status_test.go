package cluster

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestStatusShowsNewestPlacement checks that partitions are listed where the catalog's leader has them, also at
// a member that does not have the last change yet.
func TestStatusShowsNewestPlacement(t *testing.T) { inBubble(t, statusShowsNewestPlacement) }

func statusShowsNewestPlacement(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	n := c.nodes[(c.leader(fsm.CatalogPartition)+1)%3]
	kit.Eventually(t, "the status has the placement of the catalog's leader", func() bool { // there may be none for a moment
		n.partitions.Store(&[]fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: n.self}}}})
		status, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(status.Partitions) == 3 && len(status.Partitions[1].Replicas) == 3
	})
}
