package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// useTLS gives every member a certificate of the authority.
func (c *testCluster) useTLS(a *kit.Authority) {
	for i := range c.configs {
		c.configs[i].PeerTLS = a.MemberTLSConfig(c.t)
	}
}

// addUntrusted adds the configuration of one more member that tries to join the first three.
func (c *testCluster) addUntrusted() int {
	i := c.add()
	config := &c.configs[i]
	config.Expect, config.PeerTLS, config.GossipKeys = 0, nil, nil
	return i
}

// isKnownTo reports whether a member's data contains another one: as a voter of the catalog, as another replica
// of the catalog, or as a replica of a partition.
func isKnownTo(t *testing.T, node *Node, other fsm.MemberID) bool {
	t.Helper()
	status := kit.Must(node.Status(t.Context()))(t)
	for _, part := range status.Partitions {
		if slices.Contains(part.Replicas, other) {
			return true
		}
	}
	s := node.replicas.Group(fsm.CatalogPartition).Status()
	for _, v := range slices.Concat(s.Voters, s.Nonvoters) {
		if v.Member == other {
			return true
		}
	}
	return false
}

// TestClusterWithTLSServesAndRefusesOthers checks that three members with TLS form a cluster, serve, and survive the death of a
// leader, and that a fourth with a certificate of another authority, or with none, cannot join.
func TestClusterWithTLSServesAndRefusesOthers(t *testing.T) {
	inBubble(t, clusterWithTLSServesAndRefusesOthers)
}

func clusterWithTLSServesAndRefusesOthers(t *testing.T) {
	ours, theirs := kit.NewAuthority(t), kit.NewAuthority(t)
	c := newFileCluster(t, 3, 4)
	c.useTLS(ours)
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	sendMessage(t, c.nodes[1], at, "one")

	foreign, plain := c.addUntrusted(), c.addUntrusted()
	c.configs[foreign].PeerTLS = theirs.MemberTLSConfig(t)
	for _, i := range []int{foreign, plain} {
		c.start(i)
	}
	for _, i := range []int{foreign, plain} {
		kit.Eventually(t, "both ends refuse streams for want of trust", func() bool {
			inside := uint64(0)
			for _, node := range c.nodes[:3] {
				inside += node.Stats(0).Streams.Untrusted
			}
			return c.nodes[i].Stats(0).Streams.Untrusted > 0 && inside > 0
		})
	}
	for _, i := range []int{foreign, plain} {
		for _, node := range c.nodes[:3] {
			if isKnownTo(t, node, c.nodes[i].ID()) {
				t.Errorf("%s was taken in", c.configs[i].Name)
			}
		}
		if c.nodes[i].allReplicasOpen() || c.nodes[i].dataDir.Identity().Cluster != "" {
			t.Errorf("%s holds something of the cluster", c.configs[i].Name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := c.nodes[i].Ready(ctx); err == nil {
			t.Errorf("%s is ready", c.configs[i].Name)
		}
		cancel()
		c.stop(i)
	}

	leader := c.leader(at.Partition)
	c.kill(leader)
	client := c.nodes[(leader+1)%3]
	sendMessage(t, client, at, "two")
	if counts := countMessages(t, client, at); counts.Active != 2 {
		t.Errorf("holds %+v, want 2 messages", counts)
	}
	c.start(leader)
	c.ready()
}

// TestEndOfAProcessIsVisibleThroughTLS checks that the end of a process is visible through TLS as it is without: its
// streams break and its port refuses connections. A successor campaigns for that reason, before raft's timers
// expire.
func TestEndOfAProcessIsVisibleThroughTLS(t *testing.T) {
	inBubble(t, endOfAProcessIsVisibleThroughTLS)
}

func endOfAProcessIsVisibleThroughTLS(t *testing.T) {
	const patience = 4 * time.Second // raft's timeouts; an election by timers takes longer
	c := newFileCluster(t, 3, 1)
	c.useTLS(kit.NewAuthority(t))
	for i := range c.configs {
		raft := &c.configs[i].Timing.Raft
		raft.Heartbeat, raft.Election, raft.Lease = patience, patience, patience
	}
	c.startAll()
	at := createQueue(t, c.nodes[0], "orders")
	leader := c.leader(at.Partition)
	client := c.nodes[(leader+1)%3]
	sendMessage(t, client, at, "before")
	start := time.Now()
	c.kill(leader)
	sendMessage(t, client, at, "after")
	if took := time.Since(start); took >= patience {
		t.Errorf("a send was confirmed %s after the leader's death", took)
	}
}

// TestSecureClusterReplacesCertificates replaces the certificate of a member while all run; the others reach it
// with the new one.
func TestSecureClusterReplacesCertificates(t *testing.T) {
	inBubble(t, secureClusterReplacesCertificates)
}

func secureClusterReplacesCertificates(t *testing.T) {
	ours := kit.NewAuthority(t)
	c := newFileCluster(t, 3, 2)
	current := make([]*atomic.Pointer[tls.Certificate], 3)
	for i := range c.configs {
		current[i] = new(atomic.Pointer[tls.Certificate])
		current[i].Store(ours.Issue(t, nil))
		c.configs[i].PeerTLS = ours.TLSConfig(current[i])
	}
	c.startAll()
	for i := range current {
		current[i].Store(ours.Issue(t, nil))
	}
	conn := kit.Must(c.nodes[0].peers.Dial(t.Context(), peer.ForwardStream, c.nodes[1].ID(), 0))(t)
	shown := conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState().PeerCertificates[0].SerialNumber
	_ = conn.Close()
	if want := current[1].Load().Leaf.SerialNumber; shown.Cmp(want) != 0 {
		t.Errorf("a new stream shows %s, want %s", shown, want)
	}
	c.stop(2) // a member that comes back connects with those that stayed
	c.start(2)
	c.ready()
	sendMessage(t, c.nodes[2], createQueue(t, c.nodes[2], "orders"), "x")
}

// TestGossipWithAnotherKeySeesNoMember checks that a process with another key, or without one, sees no member and no member sees it,
// and that both ends log it. Keys are changed one member after the other.
func TestGossipWithAnotherKeySeesNoMember(t *testing.T) {
	inBubble(t, gossipWithAnotherKeySeesNoMember)
}

func gossipWithAnotherKeySeesNoMember(t *testing.T) {
	key := func(b byte) []byte { return slices.Repeat([]byte{b}, 32) }
	lines := new(kit.LogLines)
	c := newFileCluster(t, 3, 2)
	for i := range c.configs {
		c.configs[i].GossipKeys = [][]byte{key(1)}
		c.configs[i].Logger = lines.Logger()
	}
	c.startAll()
	wrong, none := c.addUntrusted(), c.addUntrusted()
	c.configs[wrong].GossipKeys = [][]byte{key(2)}
	const text = "refused gossip of a process with another key"
	for _, i := range []int{wrong, none} {
		told := new(kit.LogLines)
		c.configs[i].Logger = told.Logger()
		c.start(i)
		kit.Eventually(t, "it reports why it sees no member", func() bool { return told.Has(text) })
		if seen := len(c.nodes[i].gossip.All()); seen != 1 {
			t.Errorf("%s sees %d members", c.configs[i].Name, seen)
		}
		for _, node := range c.nodes[:3] {
			if _, seen := node.gossip.Lookup(c.nodes[i].ID()); seen || isKnownTo(t, node, c.nodes[i].ID()) {
				t.Errorf("%s is seen", c.configs[i].Name)
			}
		}
		c.stop(i)
	}
	kit.Eventually(t, "the members say that somebody knocked", func() bool { return lines.Has(text) })
	if lines.Has("AQEB") || lines.Has(string(key(1))) {
		t.Error("a key is in the log")
	}

	// The new key is appended, then moved to the front, then is the only one.
	for _, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
		for i := range 3 {
			c.stop(i)
			c.configs[i].GossipKeys = keys
			c.start(i)
			c.ready()
			for _, node := range c.nodes[:3] {
				kit.Eventually(t, "everybody sees everybody", func() bool { return len(node.gossip.Alive()) == 3 })
			}
		}
	}
}

// TestSecureThroughput measures, when the environment requests it, sends of 1 KiB, 256 outstanding, through a
// member that leads some of four partitions of three replicas: forwarding and raft's appends, alternately plain
// and with TLS.
func TestSecureThroughput(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("PEEKLOCK_SECURE"))
	if err != nil {
		t.Skip("PEEKLOCK_SECURE=<messages> measures")
	}
	ours := kit.NewAuthority(t)
	for round := range 3 {
		for _, name := range []string{"plain", "tls"} {
			t.Run(name, func(t *testing.T) {
				c := newTestCluster(t, 3, 4)
				if name == "tls" {
					c.useTLS(ours)
				}
				for i := range c.configs {
					c.configs[i].Timing = Default().Timing
				}
				c.startAll()
				var at []fsm.EntityRef
				for i := range 4 {
					at = append(at, createQueue(t, c.nodes[0], fmt.Sprintf("q%d", i)))
				}
				router := c.nodes[0].Router()
				free := make(chan fsm.Code, 256)
				for range cap(free) {
					free <- fsm.OK
				}
				payload := make([]byte, 1024)
				start := time.Now()
				for i := range count {
					if code := <-free; code != fsm.OK {
						t.Fatal(code)
					}
					router.Send(at[i%4], []fsm.Message{{Payload: payload}}, func(code fsm.Code) { free <- code })
				}
				for range cap(free) {
					if code := <-free; code != fsm.OK {
						t.Fatal(code)
					}
				}
				t.Logf("round %d, %s: %.0f messages/s", round, name, float64(count)/time.Since(start).Seconds())
			})
		}
	}
}

// TestKeysAndAuthorityRotateUnderLoad follows the steps of the runbook at three members that run: the new authority is trusted, issues the
// certificates and replaces the old one, and the gossip key is appended, moved to the front and left alone. No send fails.
func TestKeysAndAuthorityRotateUnderLoad(t *testing.T) { inBubble(t, keysAndAuthorityRotateUnderLoad) }

func keysAndAuthorityRotateUnderLoad(t *testing.T) {
	old, fresh := kit.NewAuthority(t), kit.NewAuthority(t)
	key := func(b byte) []byte { return slices.Repeat([]byte{b}, 32) }
	c := newFileCluster(t, 3, 2)
	certificates := make([]*atomic.Pointer[tls.Certificate], 3)
	trusted := make([]*atomic.Pointer[x509.CertPool], 3)
	for i := range c.configs {
		certificates[i], trusted[i] = new(atomic.Pointer[tls.Certificate]), new(atomic.Pointer[x509.CertPool])
		certificates[i].Store(old.Issue(t, nil))
		trusted[i].Store(old.Pool)
		c.configs[i].PeerTLS, c.configs[i].PeerAuthorities = old.TLSConfig(certificates[i]), trusted[i].Load
		c.configs[i].GossipKeys = [][]byte{key(1)}
	}
	c.startAll()
	load := c.traffic(c.nodes, createQueue(t, c.nodes[0], "orders"))
	keys := func(keys ...[]byte) func(int) error {
		return func(i int) error { return c.nodes[i].SetGossipKeys(keys) }
	}
	for number, step := range []func(i int) error{
		func(i int) error { trusted[i].Store(old.PoolWith(fresh)); return nil },
		func(i int) error { certificates[i].Store(fresh.Issue(t, nil)); return nil },
		func(i int) error { trusted[i].Store(fresh.Pool); return nil },
		keys(key(1), key(2)), keys(key(2), key(1)), keys(key(2)),
	} {
		for i := range c.nodes {
			kit.OK(t, step(i))
			for j := range c.nodes {
				if j == i {
					continue
				}
				for _, ends := range [][2]int{{i, j}, {j, i}} {
					kit.Eventually(t, fmt.Sprintf("step %d at member %d: a new stream from %d to %d", number+1, i, ends[0], ends[1]), func() bool {
						conn, err := c.nodes[ends[0]].peers.Dial(t.Context(), peer.ForwardStream, c.nodes[ends[1]].ID(), 0)
						return err == nil && conn.Close() == nil
					})
				}
			}
		}
		for _, node := range c.nodes {
			kit.Eventually(t, "all members are alive", func() bool { return len(node.gossip.Alive()) == 3 })
		}
	}
	load.stop()
}
