package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

func TestMemberWithDataNeverBootstraps(t *testing.T) { inBubble(t, memberWithDataNeverBootstraps) }

func memberWithDataNeverBootstraps(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	before := c.nodes[0].clusterID()
	for i := range c.nodes {
		c.stop(i)
	}
	// A member that holds data waits for its majority, even if it is configured to bootstrap alone.
	c.configs[0].Expect, c.configs[0].Join = 1, nil
	lone := c.start(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := lone.Ready(ctx); err == nil {
		t.Fatal("a member of three is ready alone")
	}
	if got := lone.clusterID(); got != before {
		t.Fatalf("cluster %q became %q", before, got)
	}
	if group := lone.replicas.Local(fsm.CatalogPartition); group == nil || group.Status().IsLeader {
		t.Fatal("a member of three leads the catalog alone")
	}
}

func TestFourthMemberJoinsAndServes(t *testing.T) { inBubble(t, fourthMemberJoinsAndServes) }

func fourthMemberJoinsAndServes(t *testing.T) {
	c := newFileCluster(t, 3, 2)
	c.startAll()
	createQueue(t, c.nodes[0], "orders")
	fourth := c.start(c.add())
	c.ready()
	if got := fourth.clusterID(); got != c.nodes[0].clusterID() {
		t.Fatalf("joined %q", got)
	}
	at := resolve(t, fourth, "orders")
	sendMessage(t, fourth, at, "hello")
	receiver := fourth.Router().Receiver(at, true)
	defer receiver.Close()
	got := lockMessages(receiver, 1, waitMax)
	if len(got.deliveries) != 1 || string(got.deliveries[0].Payload) != "hello" {
		t.Fatalf("received %+v", got)
	}
	sendMessage(t, fourth, at, "seen")
	peeked, err := fourth.Router().Peek(t.Context(), at, 1, 10, 1000)
	if err != nil || len(peeked) != 1 || string(peeked[0].Payload) != "seen" {
		t.Fatalf("peeked %+v, %v", peeked, err)
	}
	for _, voter := range c.nodes[0].replicas.Local(fsm.CatalogPartition).Status().Voters {
		if voter.Member == fourth.self {
			t.Fatal("the fourth member votes in the catalog")
		}
	}
	kit.Eventually(t, "the fourth member knows the leaders and replicas of all", func() bool {
		status, err := fourth.Status(t.Context())
		return err == nil && len(status.Members) == 4 && len(status.Partitions) == 3 &&
			!slices.ContainsFunc(status.Partitions, func(p topology.Partition) bool { return p.Leader == "" || len(p.Replicas) < 3 })
	})
}

// loadedHandler reports that the catalog of a member is loaded before the member continues.
type loadedHandler struct {
	slog.Handler
	loaded func()
}

func (h loadedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h loadedHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h loadedHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "catalog was loaded" {
		h.loaded()
	}
	return nil
}

// TestClusterIsKnownOnceCatalogIsLoaded checks a member without replicas, which is ready as soon as its catalog
// is loaded. By then it must know its cluster, because it announces the cluster to others, which reject foreign
// ones.
func TestClusterIsKnownOnceCatalogIsLoaded(t *testing.T) {
	inBubble(t, clusterIsKnownOnceCatalogIsLoaded)
}

func clusterIsKnownOnceCatalogIsLoaded(t *testing.T) {
	c := newFileCluster(t, 1, 1)
	c.startAll()
	config := &c.configs[c.add()]
	config.Expect = 2 // alone, it would form a cluster of its own before it has found the other
	opened, known := make(chan *Node, 1), make(chan string, 1)
	config.Logger = slog.New(loadedHandler{slog.DiscardHandler, func() { known <- (<-opened).clusterID() }})
	opened <- c.start(1)
	c.ready()
	if got := <-known; got == "" || got != c.nodes[0].clusterID() {
		t.Errorf("the catalog is loaded, and the cluster is %q", got)
	}
}

// TestMembersBeyondExpectedJoin starts five members that each expect three: whatever each of them sees first,
// they form one cluster.
func TestMembersBeyondExpectedJoin(t *testing.T) { inBubble(t, membersBeyondExpectedJoin) }

func membersBeyondExpectedJoin(t *testing.T) {
	c := newFileCluster(t, 5, 2)
	for i := range c.configs {
		c.configs[i].Expect = 3
	}
	var starting sync.WaitGroup
	for i := range c.nodes {
		starting.Go(func() {
			node, err := c.open(i)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			c.nodes[i] = node
		})
	}
	starting.Wait()
	c.ready()
	for _, node := range c.nodes[1:] {
		if node.clusterID() != c.nodes[0].clusterID() {
			t.Fatalf("clusters %q and %q", node.clusterID(), c.nodes[0].clusterID())
		}
	}
	if voters := c.nodes[0].replicas.Local(fsm.CatalogPartition).Status().Voters; len(voters) != 3 {
		t.Fatalf("%d voters, want 3", len(voters))
	}
}

func TestMembersOfTwoClustersStayApart(t *testing.T) { inBubble(t, membersOfTwoClustersStayApart) }

func membersOfTwoClustersStayApart(t *testing.T) {
	c := newFileCluster(t, 2, 1)
	for i := range c.configs {
		c.configs[i].Expect, c.configs[i].Join = 1, nil
	}
	c.startAll()
	first, second := c.nodes[0], c.nodes[1]
	if first.clusterID() == second.clusterID() {
		t.Fatal("two clusters of one name")
	}
	err := first.gossip.Join(second.GossipAddr())
	if err == nil {
		t.Error("two clusters merged their gossip")
	}
	if _, ok := first.gossip.Lookup(second.self); ok {
		t.Error("a member of another cluster was taken in")
	}
	// A stream that names the wrong cluster is refused, whatever gossip shows.
	impostor := peer.New(&peer.Config{
		Self: first.self, DialTimeout: waitMax, Logger: testLogger(), Cluster: first.clusterID, Dial: c.hosts[0].process.Dial,
		Address: func(fsm.MemberID) (string, error) { return second.PeerAddr(), nil },
	})
	_, err = impostor.Dial(t.Context(), peer.ForwardStream, second.self, 0)
	if refused := (peer.RefusedError{}); !errors.As(err, &refused) || refused.Reply != peer.ForeignCluster {
		t.Errorf("stream to another cluster: %v", err)
	}
}

func TestSecondProcessOnOneDataDirIsRefused(t *testing.T) {
	inBubble(t, secondProcessOnOneDataDirIsRefused)
}

func secondProcessOnOneDataDirIsRefused(t *testing.T) {
	c := newFileCluster(t, 1, 1)
	c.startAll()
	second := c.add()
	c.configs[second].Dir = c.configs[0].Dir
	node, err := c.open(second)
	if err == nil {
		_ = node.Close(t.Context())
		t.Fatal("opened twice")
	}
	if !strings.Contains(err.Error(), "in use by another process") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("says %q", err)
	}
}
