//go:build level2

package cluster

import (
	"testing"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// hasPartitionLevel reports whether the state machines of partition 1 have a level, at every member.
func (c *testCluster) hasPartitionLevel(level uint32) bool {
	for _, node := range c.nodes {
		group := node.replicas.Local(1)
		if group == nil {
			return false
		}
		at := uint32(0)
		group.View(func(m partition.Machine) { at = raftgroup.Queues(m).FormatLevel() })
		if at != level {
			return false
		}
	}
	return true
}

// TestPartitionsFollowTheLevel checks that the leader of a partition raises the level of its state machine to
// that of the cluster, not before the cluster's level has risen, and that all replicas follow.
func TestPartitionsFollowTheLevel(t *testing.T) { inBubble(t, partitionsFollowTheLevel) }

func partitionsFollowTheLevel(t *testing.T) {
	c := newLevelCluster(t, 2, 2, 1)
	c.startAll()
	c.awaitReconciles(15)
	c.awaitLevel(1)
	if !c.hasPartitionLevel(1) {
		t.Error("a machine is ahead of the cluster")
	}
	c.upgrade(2, 2)
	c.awaitLevel(2)
	kit.Eventually(t, "the machines of all replicas have level 2", func() bool { return c.hasPartitionLevel(2) })
}
