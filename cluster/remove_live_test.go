package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

// removeRequestTimeout bounds one request to remove a member; the command line repeats it.
const removeRequestTimeout = 3 * time.Second

// removeAtOnce removes members at the same time, each by requests to itself, as when a StatefulSet is scaled
// down. Each process ends when it learns that it was removed. It returns how long that took.
func (c *testCluster) removeAtOnce(members ...int) time.Duration {
	c.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitMax)
	defer cancel()
	var removals sync.WaitGroup
	for _, i := range members {
		node := c.nodes[i]
		removals.Go(func() {
			select {
			case <-node.Removed():
				_ = node.Close(context.WithoutCancel(ctx))
			case <-ctx.Done():
				c.t.Errorf("member %d does not learn that it was removed", i)
			}
		})
		removals.Go(func() {
			for ctx.Err() == nil {
				request, cancel := context.WithTimeout(ctx, removeRequestTimeout)
				err := node.Operator().RemoveMember(request, node.self)
				cancel()
				if err == nil || node.isClosing() {
					return
				}
				if !errors.Is(err, fsm.Timeout) && !errors.Is(err, fsm.ServerBusy) {
					c.t.Errorf("member %d: %v", i, err)
				}
				sleep(ctx, 20*time.Millisecond)
			}
		})
	}
	removals.Wait()
	for _, i := range members {
		c.stop(i)
	}
	return time.Since(began)
}

func (n *Node) isClosing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closing
}

// TestMembersRemovedAtOnceKeepTheQuorum checks that several members can be removed at the same time while the
// others are in use: no partition and not the catalog loses its quorum, and no message is lost.
func TestMembersRemovedAtOnceKeepTheQuorum(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	for name, test := range map[string]struct{ members, partitions, staying int }{
		"three to one":  {3, 4, 1},
		"five to three": {5, 6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := newGrowingCluster(t, test.members, test.members, test.partitions)
				x := c.traffic(c.nodes[:1], createQueue(t, c.nodes[0], "a"), createQueue(t, c.nodes[0], "b"))
				var leaving []int
				for i := test.staying; i < test.members; i++ {
					leaving = append(leaving, i)
				}
				took := c.removeAtOnce(leaving...)
				parts := c.settled()
				c.clean(parts)
				x.stop()
				for _, part := range parts {
					if len(part.Replicas) != min(3, test.staying) {
						t.Errorf("partition %d has the replicas %v", part.ID, part.Replicas)
					}
				}
				members := kit.Must(c.nodes[0].Operator().Members(t.Context()))(t)
				if n := len(slices.DeleteFunc(members, func(m fsm.Member) bool { return m.Removed })); n != test.staying {
					t.Errorf("%d members are left", n)
				}
				t.Logf("took %s", took.Round(time.Millisecond))
			})
		})
	}
}

// TestRemovedMemberServesWhileItIsNeeded checks that the process of a removed member runs while the catalog has no
// quorum without it, and ends when the catalog has released it.
func TestRemovedMemberServesWhileItIsNeeded(t *testing.T) {
	inBubble(t, removedMemberServesWhileItIsNeeded)
}

func removedMemberServesWhileItIsNeeded(t *testing.T) {
	c := newGrowingCluster(t, 3, 3, 1)
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	kit.Eventually(t, "the partition has had a leader", func() bool { return (*c.nodes[0].partitions.Load())[0].Formed })
	c.move(1, c.nodes[0].self)
	c.settled()
	leaving, operator := c.nodes[1], c.nodes[0].Operator()
	c.kill(2)
	kit.OK(t, retryUntilLed(t, func() error {
		return operator.UpdateMember(ctx, leaving.self, func(m *fsm.Member) { m.Drained, m.Removed = true, true })
	}))
	kit.Eventually(t, "it knows that it was removed", func() bool { return leaving.memberRecord(leaving.self).Removed })
	c.awaitReconciles(20)
	select {
	case <-leaving.Removed():
		t.Fatal("it ended while the catalog needed its vote")
	default:
	}
	kit.Must(c.nodes[0].Router().Command(ctx, fsm.CatalogPartition, fsm.CreateNamespace{Name: "team"}))(t)
	c.start(2)
	select {
	case <-leaving.Removed():
	case <-ctx.Done():
		t.Fatal("it does not learn that it was removed")
	}
	c.stop(1)
	kit.Must(c.nodes[0].Router().Command(ctx, fsm.CatalogPartition, fsm.CreateNamespace{Name: "other"}))(t)
}

// TestInterruptedRemovalIsShownAndDoesNotStopRebalancing checks that a removal that nobody continues leaves a
// member that is shown as drained, that the cluster gives new members their share nevertheless, and that the
// removal can be completed or given up.
func TestInterruptedRemovalIsShownAndDoesNotStopRebalancing(t *testing.T) {
	kit.Long(t)
	inBubble(t, interruptedRemovalIsShownAndDoesNotStopRebalancing)
}

func interruptedRemovalIsShownAndDoesNotStopRebalancing(t *testing.T) {
	c := newGrowingClusterOf(t, 3, 4, 8, func(config *Config) { config.Rebalance = true })
	at := createQueue(t, c.nodes[0], "orders")
	x := c.traffic(c.nodes[:1], at)
	leaving, operator := c.nodes[1].self, c.nodes[0].Operator()
	c.kill(2) // two of three voters are left, so that no group can let another one go
	kit.Eventually(t, "it is missed", func() bool { return !c.nodes[0].isAlive(memberAt(t, c, 2)) })
	var err error
	kit.Eventually(t, "the removal begins", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = operator.RemoveMember(ctx, leaving)
		return c.nodes[0].memberRecord(leaving).Drained
	})
	if !errors.Is(err, fsm.Timeout) {
		t.Errorf("the removal ends with %v", err)
	}
	shown := func() (drained bool) {
		status := kit.Must(c.nodes[0].Status(t.Context()))(t)
		for _, m := range status.Members {
			drained = drained || m.ID == leaving && m.Drained
		}
		return drained
	}
	if !shown() {
		t.Error("the status does not show that the member is drained")
	}
	c.start(2)
	fresh := c.startMore(3)
	share := func(id fsm.MemberID, least int) func() bool {
		return func() bool {
			placed := *c.nodes[0].partitions.Load()
			return placement.ReplicaCounts(placed)[id] >= least && !slices.ContainsFunc(placed, func(p fsm.Partition) bool { return p.Target != nil })
		}
	}
	kit.Eventually(t, "the new member has its share", share(fresh, 5))
	kit.OK(t, retryUntilLed(t, func() error { return operator.Undrain(t.Context(), leaving) }))
	kit.Eventually(t, "the member that stays has a share", share(leaving, 5))
	if shown() {
		t.Error("the status shows the member as drained")
	}
	kit.OK(t, retryUntilLed(t, func() error { return operator.RemoveMember(t.Context(), leaving) }))
	c.clean(c.settled())
	x.stop()
}

// A member that lost its disk can be removed although the others have restarted since and gossip does not know it.
func TestLostMemberIsRemovedAfterTheOthersRestarted(t *testing.T) {
	inBubble(t, lostMemberIsRemovedAfterTheOthersRestarted)
}

func lostMemberIsRemovedAfterTheOthersRestarted(t *testing.T) {
	c := newBubbleCluster(t, 3, 2)
	c.startAll()
	lost := c.nodes[2].self
	for i := range c.nodes {
		c.stop(i)
	}
	for i := range 2 {
		c.start(i)
	}
	operator := c.nodes[0].Operator()
	if _, known := c.nodes[0].gossip.Lookup(lost); known {
		t.Fatal("gossip knows the lost member")
	}
	if err := retryUntilLed(t, func() error {
		return operator.UpdateMember(t.Context(), lost, func(m *fsm.Member) { m.Drained = true })
	}); err != nil {
		t.Error(err)
	}
	if err := retryUntilLed(t, func() error {
		return operator.UpdateMember(t.Context(), "NOBODY", func(m *fsm.Member) { m.Drained = true })
	}); !errors.Is(err, fsm.EntityNotFound) {
		t.Errorf("a member that never was: %v", err)
	}
}

// TestRemovalWaitsForADiskThatStoresNothing: of three members one stores nothing, whether it says so or not, and another is removed. The two
// that would remain could commit nothing, so the removal waits, says why, and sends go on.
func TestRemovalWaitsForADiskThatStoresNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set func(disk *simfs.Disk, ill bool)
		why string // the error of the removal names the member and says this
	}{
		"a full disk": {(*simfs.Disk).SetFull, "no free space"},
		"a hung disk": {(*simfs.Disk).SetHung, ""},
		"a quota of which the free space tells nothing": {func(disk *simfs.Disk, ill bool) {
			disk.Intercept(func(call, path string) (f simfs.Failure) {
				if ill && call == simfs.CallWrite && strings.Contains(path, partition.JournalFolder) {
					f.Err = simfs.PathError(call, path, syscall.EDQUOT)
				}
				return f
			})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c, at, leader := newDiskCluster(t, 3)
				ill, leaving := (leader+1)%3, c.nodes[(leader+2)%3].self
				disk := c.hosts[ill].disk
				test.set(disk, true)
				sendMessage(t, c.nodes[leader], at, "not stored there")
				sleep(t.Context(), 2*time.Second)
				remove := func(within time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					return c.nodes[leader].Operator().RemoveMember(ctx, leaving)
				}
				if err := remove(20 * time.Second); !errors.Is(err, fsm.Timeout) || !strings.Contains(err.Error(), test.why) {
					t.Errorf("removal: got %v, want %v with %q", err, fsm.Timeout, test.why)
				}
				sent := make(chan fsm.Code, 1)
				go func() { sent <- trySend(c.nodes[leader], at, "meanwhile") }()
				select {
				case code := <-sent:
					if code != fsm.OK {
						t.Errorf("send: got %v, want %v", code, fsm.OK)
					}
				case <-time.After(2 * time.Second):
					t.Error("a send takes more than 2 s")
				}
				test.set(disk, false)
				if err := remove(time.Minute); err != nil {
					t.Errorf("removal afterwards: %v", err)
				}
				sendMessage(t, c.nodes[leader], at, "after")
			})
		})
	}
}
