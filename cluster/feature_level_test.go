package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// newLevelCluster has members that play binaries of some levels.
func newLevelCluster(t *testing.T, levels ...uint32) *testCluster {
	t.Helper()
	c := newTestCluster(t, len(levels), 1)
	for i, level := range levels {
		c.configs[i].readableLevel = level
	}
	return c
}

// awaitLevel waits until every member that runs knows that the cluster has a level.
func (c *testCluster) awaitLevel(level uint32) {
	c.t.Helper()
	eventually(c.t, "all members have heard of the level", func() bool {
		for _, node := range c.nodes {
			if node != nil && node.FeatureLevel() != level {
				return false
			}
		}
		return true
	})
}

// awaitReconciles waits until the leader of the catalog has looked at everything n times more, so
// that what it would do it has done.
func (c *testCluster) awaitReconciles(n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(n)*c.configs[0].Timing.Reconcile)
	defer cancel()
	<-ctx.Done()
}

// TestLevelRisesWhenAllMembersCanReadIt (point 3 of operation): two members of a newer binary and one of the old stay
// at the old level; when the third is replaced the cluster rises; the old one is refused then.
func TestLevelRisesWhenAllMembersCanReadIt(t *testing.T) {
	t.Parallel()
	c := newLevelCluster(t, 2, 2, 1)
	c.startAll()
	c.awaitReconciles(15) // Settle is five of them
	c.awaitLevel(1)

	// An old member that is dead may come back as it was.
	c.kill(2)
	eventually(t, "the third is gone", func() bool { return !c.nodes[0].isAlive(memberAt(t, c, 2)) })
	c.awaitReconciles(15)
	c.awaitLevel(1)

	c.configs[2].readableLevel = 2
	c.start(2)
	c.ready()
	c.awaitLevel(2)
	status, err := c.nodes[1].Status(t.Context())
	if err != nil || status.Level != 2 {
		t.Fatalf("%+v, %v", status, err)
	}

	c.stop(2)
	c.configs[2].readableLevel = 1
	_, err = Open(t.Context(), c.configs[2])
	if !errors.Is(err, bootstrap.ErrOutdated) || !strings.Contains(err.Error(), "level 2 is needed and it knows 1") {
		t.Fatalf("an old binary starts: %v", err)
	}
	c.configs[2].readableLevel = 3 // a newer one goes on, and changes nothing alone
	c.start(2)
	c.ready()
	c.awaitReconciles(10)
	c.awaitLevel(2)
}

// memberAt is the id of a member that may be down.
func memberAt(t *testing.T, c *testCluster, i int) fsm.MemberID {
	t.Helper()
	for _, node := range c.nodes {
		if node == nil {
			continue
		}
		for _, m := range node.gossip.All() {
			if m.Name == c.configs[i].Name {
				return m.Member
			}
		}
	}
	t.Fatal("nobody has heard of it")
	return ""
}

// TestOldBinaryOfMemberStops: one that was away while the level rose did not write it down, and
// learns it from the catalog.
func TestOldBinaryOfMemberStops(t *testing.T) {
	t.Parallel()
	c := newLevelCluster(t, 2, 2, 2)
	c.startAll()
	c.awaitLevel(2)
	c.stop(2)
	forget := func(id *datadir.Identity) { id.Level = 0 }
	f, err := datadir.Open(c.configs[2].Dir)
	if err == nil {
		err = errors.Join(f.Update(forget), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	c.configs[2].readableLevel = 1
	old := c.start(2)
	select {
	case <-old.Outdated():
	case <-time.After(waitMax):
		t.Fatal("an old binary does not notice")
	}
	if err := old.Ready(t.Context()); !errors.Is(err, bootstrap.ErrOutdated) {
		t.Fatalf("ready: %v", err)
	}
	c.stop(2)
	if _, err := Open(t.Context(), c.configs[2]); !errors.Is(err, bootstrap.ErrOutdated) {
		t.Fatalf("it starts again: %v", err)
	}
}

// TestOldBinaryCannotJoin: it is not taken in, and says why.
func TestOldBinaryCannotJoin(t *testing.T) {
	t.Parallel()
	c := newLevelCluster(t, 2, 2, 1)
	for i := range c.configs {
		c.configs[i].Expect = 2
	}
	c.start(0)
	c.start(1)
	c.ready()
	c.awaitLevel(2)
	old := c.start(2)
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := old.Ready(ctx); !errors.Is(err, bootstrap.ErrOutdated) {
		t.Fatalf("ready: %v", err)
	}
	// It does not believe that, and asks to be taken in all the same.
	leader := c.nodes[c.leader(fsm.CatalogPartition)]
	if err := leader.confirmMembership(ctx, old.self); err == nil || !strings.Contains(err.Error(), "knows level 1") {
		t.Fatalf("it would be taken in: %v", err)
	}
	for _, v := range leader.localReplica(fsm.CatalogPartition).Status().Nonvoters {
		t.Errorf("member %s was taken in", v.Member)
	}
}

// hasPartitionLevel says whether the machines of partition 1 have a level, at every member.
func (c *testCluster) hasPartitionLevel(level uint32) bool {
	for _, node := range c.nodes {
		group := node.localReplica(1)
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

// TestPartitionsFollowTheLevel: the leader of a partition tells its machine what the level of the
// cluster is, not before the cluster has risen, and all replicas follow.
func TestPartitionsFollowTheLevel(t *testing.T) {
	t.Parallel()
	c := newLevelCluster(t, 2, 2, 1)
	c.startAll()
	c.awaitReconciles(15)
	c.awaitLevel(1)
	if !c.hasPartitionLevel(1) {
		t.Error("a machine is ahead of the cluster")
	}
	c.stop(2)
	c.configs[2].readableLevel = 2
	c.start(2)
	c.ready()
	c.awaitLevel(2)
	eventually(t, "the machines of all replicas have level 2", func() bool { return c.hasPartitionLevel(2) })
}
