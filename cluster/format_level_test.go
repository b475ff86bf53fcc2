package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// newLevelCluster creates members that simulate binaries of the given levels, in the bubble of the test.
func newLevelCluster(t *testing.T, levels ...uint32) *testCluster {
	t.Helper()
	c := newBubbleCluster(t, len(levels), 1)
	for i, level := range levels {
		c.configs[i].readableLevel = level
	}
	return c
}

// awaitLevel waits until every running member knows that the cluster has the given level.
func (c *testCluster) awaitLevel(level uint32) {
	c.t.Helper()
	kit.Eventually(c.t, "all members have heard of the level", func() bool {
		for _, node := range c.nodes {
			if node != nil && node.FormatLevel() != level {
				return false
			}
		}
		return true
	})
}

// upgrade stops a member if it runs, and starts it with a binary that can read the given level.
func (c *testCluster) upgrade(i int, level uint32) {
	c.t.Helper()
	c.stop(i)
	c.configs[i].readableLevel = level
	c.start(i)
	c.ready()
}

// awaitReconciles waits until the leader of the catalog has reconciled n more times, so that anything that it
// would do is done.
func (c *testCluster) awaitReconciles(n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(n)*c.configs[0].Timing.Reconcile)
	defer cancel()
	<-ctx.Done()
}

// TestLevelRisesWhenAllMembersCanReadIt (point 3 of operation) runs two members of a newer binary and one of an
// older: the cluster keeps the old level. When the third is replaced, the level rises, and the old binary is
// then refused.
func TestLevelRisesWhenAllMembersCanReadIt(t *testing.T) {
	inBubble(t, levelRisesWhenAllMembersCanReadIt)
}

func levelRisesWhenAllMembersCanReadIt(t *testing.T) {
	c := newLevelCluster(t, 2, 2, 1)
	c.startAll()
	c.awaitReconciles(15) // Settle is five of them
	c.awaitLevel(1)

	// A dead member with an old binary may come back unchanged.
	c.kill(2)
	kit.Eventually(t, "the third is gone", func() bool { return !c.nodes[0].isAlive(memberAt(t, c, 2)) })
	c.awaitReconciles(15)
	c.awaitLevel(1)

	c.upgrade(2, 2)
	c.awaitLevel(2)

	c.stop(2)
	c.configs[2].readableLevel = 1
	_, err := c.open(2)
	if !errors.Is(err, bootstrap.ErrOutdated) || !strings.Contains(err.Error(), "level 2 is needed and it knows 1") {
		t.Fatalf("an old binary starts: %v", err)
	}
	c.upgrade(2, 3) // a newer binary joins, and alone changes nothing
	c.awaitReconciles(10)
	c.awaitLevel(2)
}

// TestHeldLevelDoesNotRise: while an operator holds the level it does not rise, although all members can read the next
// one, and it cannot be held below what it is. Then it rises by itself.
func TestHeldLevelDoesNotRise(t *testing.T) { inBubble(t, heldLevelDoesNotRise) }

func heldLevelDoesNotRise(t *testing.T) {
	c := newLevelCluster(t, 2, 2, 1)
	c.startAll()
	c.ready()
	kit.OK(t, c.nodes[0].operator.HoldFormatLevel(t.Context(), 1))
	c.upgrade(2, 2)
	c.awaitReconciles(15) // Settle is five of them
	c.awaitLevel(1)
	if status, err := c.nodes[1].Status(t.Context()); err != nil || status.FormatLevel != 1 || status.FormatLevelMax != 1 {
		t.Errorf("status has level %d, held at %d, %v; want 1, held at 1", status.FormatLevel, status.FormatLevelMax, err)
	}
	kit.OK(t, c.nodes[1].operator.HoldFormatLevel(t.Context(), 0))
	c.awaitLevel(2)
	if err := c.nodes[0].operator.HoldFormatLevel(t.Context(), 1); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("holding level 1 of a cluster at level 2 gives %v, want %v", err, fsm.PreconditionFails)
	}
}

// memberAt returns the id of a member that may be down.
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

// TestOldBinaryOfMemberStops checks a member that was away while the level rose: it has not recorded the level,
// and learns it from the catalog.
func TestOldBinaryOfMemberStops(t *testing.T) { inBubble(t, oldBinaryOfMemberStops) }

func oldBinaryOfMemberStops(t *testing.T) {
	c := newLevelCluster(t, 2, 2, 2)
	c.startAll()
	c.awaitLevel(2)
	c.stop(2)
	files := c.hosts[2].disk.Mount()
	forget := func(id *datadir.Identity) { id.Level = 0 }
	f, err := datadir.Open(files, c.configs[2].Dir)
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
	if _, err := c.open(2); !errors.Is(err, bootstrap.ErrOutdated) {
		t.Fatalf("it starts again: %v", err)
	}
}

// TestOldBinaryCannotJoin checks that a member with an old binary is not added, and reports why.
func TestOldBinaryCannotJoin(t *testing.T) { inBubble(t, oldBinaryCannotJoin) }

func oldBinaryCannotJoin(t *testing.T) {
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
	// The member ignores that and asks to be added anyway.
	leader := c.nodes[c.leader(fsm.CatalogPartition)]
	kit.Eventually(t, "the leader knows it", func() bool {
		_, err := leader.address(old.self)
		return err == nil
	})
	if _, err := leader.reconciler.ConfirmMembership(ctx, old.self); err == nil || !strings.Contains(err.Error(), "knows level 1") {
		t.Fatalf("it would be taken in: %v", err)
	}
	for _, v := range leader.replicas.Local(fsm.CatalogPartition).Status().Nonvoters {
		t.Errorf("member %s was taken in", v.Member)
	}
}
