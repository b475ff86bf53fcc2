package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/replicas"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// failing returns the names of the checks that are not OK.
func failing(checks []Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func textOf(checks []Check, name string) string {
	for _, c := range checks {
		if c.Name == name {
			return c.Text
		}
	}
	return ""
}

// TestMemberThatHearsNoCatalogLeaderIsNotReady checks that a member is not ready when another hears the catalog's leader and it does not; that
// the catalog has no leader makes no member worse than another.
func TestMemberThatHearsNoCatalogLeaderIsNotReady(t *testing.T) {
	inBubble(t, memberThatHearsNoCatalogLeaderIsNotReady)
}

func memberThatHearsNoCatalogLeaderIsNotReady(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	n := c.nodes[0]
	kit.Eventually(t, "it is ready", func() bool { return failing(n.Readiness()) == nil })
	if bad := failing(n.Liveness()); bad != nil {
		t.Fatalf("not alive: %v", bad)
	}
	kit.Eventually(t, "two members hear the catalog's leader", func() bool { return n.askOthersAboutCatalog(t.Context()) })
	kit.Eventually(t, "not ready while others hear a leader", func() bool {
		n.health.othersHearLeader.Store(true) // the loop clears it: the leader was not silent
		bad := failing(n.Readiness())
		return len(bad) == 1 && bad[0] == "catalog"
	})
	kit.Eventually(t, "ready again", func() bool { return failing(n.Readiness()) == nil })

	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := retryUntilLed(t, func() error { return n.operator.Drain(ctx, n.self) }); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "drained, and ready", func() bool {
		return failing(n.Readiness()) == nil && strings.HasPrefix(textOf(n.Readiness(), "membership"), "drained")
	})

	c.kill(1)
	c.kill(2)
	kit.Eventually(t, "the catalog is silent for long", func() bool { return n.catalogLeaderSilence() > n.catalogLeaderSilenceMax() })
	if n.askOthersAboutCatalog(t.Context()) {
		t.Error("somebody who is dead hears the catalog's leader")
	}
	kit.Eventually(t, "silence that is nobody's fault", func() bool {
		return failing(n.Readiness()) == nil && strings.HasSuffix(textOf(n.Readiness(), "catalog"), "nor by others")
	})
	if bad := failing(n.Liveness()); bad != nil {
		t.Errorf("a restart brings no quorum: %v", bad)
	}
}

// TestReadinessOfIsolatedMember checks that a member that can never serve again is not ready.
func TestReadinessOfIsolatedMember(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	for name, change := range map[string]func(*Node){
		"failed":  func(n *Node) { n.startError = errors.New("x") },
		"closing": func(n *Node) { n.closing = true },
		"removed": func(n *Node) { n.removal.isRemoved = true },
	} {
		c := newTestCluster(t, 1, 1)
		c.startAll()
		n := c.nodes[0]
		n.mu.Lock()
		n.removal.mu.Lock()
		change(n)
		n.removal.mu.Unlock()
		n.mu.Unlock()
		if bad := failing(n.Readiness()); len(bad) != 1 || bad[0] != "membership" {
			t.Errorf("%s: %v", name, bad)
		}
		n.mu.Lock()
		n.removal.mu.Lock()
		n.startError, n.closing, n.removal.isRemoved = nil, false, false
		n.removal.mu.Unlock()
		n.mu.Unlock()
	}
	n := &Node{replicas: replicas.New(&replicas.Config{})}
	if n.catalogCheck().OK {
		t.Error("ready without a catalog")
	}
}

// TestStuckMemberIsNotLive checks that something that has not returned for 30 s calls for a restart, unless it waits for
// disk space.
func TestStuckMemberIsNotLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stalled, owed time.Duration
		full          bool
		want          string
	}{
		{0, 0, false, ""},
		{stuckTimeout, stuckTimeout, false, ""},
		{stuckTimeout + time.Second, 0, false, "log"},
		{0, stuckTimeout + time.Second, false, "raft"},
		{stuckTimeout + time.Second, stuckTimeout + time.Second, true, ""},
	} {
		n := &Node{}
		n.health.unanswered.Store(int64(c.owed))
		bad := failing(n.liveness(partition.LogStats{Stalled: c.stalled}, partition.DiskSpace{ReadOnly: c.full}))
		if strings.Join(bad, ",") != c.want {
			t.Errorf("stalled %s, owed %s, full %v: %v", c.stalled, c.owed, c.full, bad)
		}
	}
}
