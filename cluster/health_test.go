package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cluster/health"
	"github.com/peeklock/peeklock/test/kit"
)

// failing returns the names of the checks that are not OK.
func failing(checks []health.Check) (names []string) {
	for _, c := range checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func textOf(checks []health.Check, name string) string {
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
	kit.Eventually(t, "two members hear the catalog's leader", func() bool { return n.health.OthersHearLeader(t.Context()) })

	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	kit.OK(t, retryUntilLed(t, func() error { return n.operator.Drain(ctx, n.self) }))
	kit.Eventually(t, "drained, and ready", func() bool {
		return failing(n.Readiness()) == nil && strings.HasPrefix(textOf(n.Readiness(), "membership"), "drained")
	})

	c.kill(1)
	c.kill(2)
	kit.Eventually(t, "the catalog is silent for long", func() bool { return n.health.LeaderSilence() > n.health.LeaderSilenceMax() })
	if n.health.OthersHearLeader(t.Context()) {
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
	inBubble(t, func(t *testing.T) {
		for name, change := range map[string]func(*Node){
			"failed":  func(n *Node) { n.startError = errors.New("x") },
			"closing": func(n *Node) { n.closing = true },
			"removed": func(n *Node) { n.removal.isRemoved = true },
		} {
			c := newFileCluster(t, 1, 1)
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
	})
}
