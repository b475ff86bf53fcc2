package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/throttle"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// The limits of gossip.
const (
	membersMax          = 1024 // members remembered, dead ones included
	updateWaitMax       = time.Second
	leaveWaitMax        = time.Second
	rejoinIntervalsMax  = 15 // the pause between two attempts to join grows to this many intervals
	unreachedIntervals  = 2  // between two attempts to join by a name that has not been reached
	contactsMax         = 16 // addresses contacted at once
	gossipPushPullEvery = 10 * time.Second
	joinWarnEvery       = time.Minute // least time between two warnings about one address to join
)

// Member is the state of a member as gossip reports it.
type Member struct {
	Metadata
	Alive    bool
	Since    time.Time // of the last change of Alive, by the local clock
	nodeName string    // name in gossip
	address  string    // ip:port in gossip
}

// PeerAddress returns the host:port at which the member accepts streams.
func (m *Member) PeerAddress() string {
	if host, port, err := net.SplitHostPort(m.Peer); err == nil && host == "" {
		if host, _, err = net.SplitHostPort(m.address); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return m.Peer
}

// State returns the state of the member in package topology: Alive, Left (after an orderly stop) or Dead.
func (m *Member) State() string {
	switch {
	case m.Alive:
		return topology.Alive
	case m.Leaving:
		return topology.Left
	}
	return topology.Dead
}

// Membership maintains the list of members. It wraps memberlist, which calls the Notify methods from its own
// goroutines and with its own locks held, so those only write to members.
type Membership struct {
	list     *memberlist.Memberlist
	keyring  *memberlist.Keyring // nil: gossip is plain
	log      *slog.Logger
	join     []string
	changed  notify.Broadcast
	refusals throttle.Log       // limits log lines about gossip that cannot be decrypted
	onLost   func(fsm.MemberID) // Config.OnLost
	onTwin   func(string)       // Config.OnTwin

	mu              sync.Mutex
	self            Metadata
	members         map[fsm.MemberID]*Member // for each member the latest process
	foreignLoggedAt time.Time                // when a foreign member was last logged
	joinWarnedAt    map[string]time.Time     // when an address of join was last reported, for at most these addresses
	unreached       map[string]bool          // addresses of join of which at least one process did not answer last time

	resolveMax time.Duration // of the resolution of one name

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// Address returns the ip:port that other members can join.
func (g *Membership) Address() string { return g.list.LocalNode().Address() }

// SetKeys replaces the keys, as Config.Keys. A gossip that began plain stays plain, and one that began encrypted stays encrypted: an
// error then changes nothing.
func (g *Membership) SetKeys(keys [][]byte) error {
	switch {
	case len(keys) == 0 && g.keyring == nil:
		return nil
	case len(keys) == 0 || g.keyring == nil:
		return errors.New("gossip keys: gossip cannot become encrypted or plain while a member runs: restart it")
	}
	for _, key := range keys {
		if err := memberlist.ValidateKey(key); err != nil { // before anything is changed
			return fmt.Errorf("gossip keys: %w", err)
		}
	}
	for _, key := range keys {
		_ = g.keyring.AddKey(key) // validated
	}
	// RemoveKey shifts what follows a key while readers use it, so the keys to remove are moved to the end first. UseKey copies.
	isKept := func(ring []byte) bool {
		return slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, ring) })
	}
	if ring := g.keyring.GetKeys(); !slices.ContainsFunc(ring[:min(len(keys), len(ring))], func(key []byte) bool { return !isKept(key) }) {
		_ = g.keyring.UseKey(keys[0]) // it has been added
	} else {
		for _, key := range slices.Backward(keys) {
			_ = g.keyring.UseKey(key)
		}
	}
	for ring := g.keyring.GetKeys(); !isKept(ring[len(ring)-1]); ring = g.keyring.GetKeys() {
		_ = g.keyring.RemoveKey(ring[len(ring)-1]) // it is not the first, which is kept
	}
	return nil
}

// SetCluster announces the id of the cluster that this member belongs to, and forgets members of other clusters, which it may
// have met before it knew the id. Unlike the others, it does not wait until members have been told, which takes some rounds of
// gossip: a member that starts calls it before it opens its replicas.
func (g *Membership) SetCluster(id string) {
	isNew := g.change(func(m *Metadata) {
		m.Cluster = id
		maps.DeleteFunc(g.members, func(_ fsm.MemberID, known *Member) bool { return g.isForeignCluster(&known.Metadata) })
	})
	if isNew {
		g.changed.Notify()
		_ = g.list.UpdateNode(time.Nanosecond) // reports that it has not waited
	}
}

// SetLeaving announces that this member is stopping and accepts no leaderships.
func (g *Membership) SetLeaving() { g.update(func(m *Metadata) { m.Leaving = true }) }

// SetReadOnly announces whether this member is short of disk space or memory. isReadOnly is called under the
// lock that orders announcements, so that the last announcement is right.
func (g *Membership) SetReadOnly(isReadOnly func() bool) {
	g.update(func(m *Metadata) { m.ReadOnly = isReadOnly() })
}

// Changed returns a channel that is closed when something about a member changes. Call it before reading the
// state that may change.
func (g *Membership) Changed() <-chan struct{} { return g.changed.Wait() }

// Join contacts another member by its ip:port in gossip, in addition to those of Config.Join.
func (g *Membership) Join(address string) error {
	_, err := g.list.Join([]string{address})
	return err
}

// update changes the metadata of this member and waits until other members have been told, for at most updateWaitMax.
func (g *Membership) update(change func(*Metadata)) {
	if !g.change(change) {
		return
	}
	if err := g.list.UpdateNode(updateWaitMax); err != nil {
		g.log.Debug("failed to announce metadata to all members in time", "error", err)
	}
}

// change changes the metadata of this member and reports whether they differ.
func (g *Membership) change(change func(*Metadata)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.self
	change(&g.self)
	return g.self != before
}

// ClusterID returns the id last given to SetCluster or Open.
func (g *Membership) ClusterID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.Cluster
}

// Lookup returns the state of a member; false when this process has never seen it.
func (g *Membership) Lookup(id fsm.MemberID) (Member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[id]; m != nil {
		return *m, true
	}
	return Member{}, false
}

// All returns all known members, this one included, sorted by id.
func (g *Membership) All() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := make([]Member, 0, len(g.members))
	for _, m := range g.members {
		members = append(members, *m)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(string(a.Member), string(b.Member)) })
	return members
}

// Alive returns the ids of the living members, this one included, sorted.
func (g *Membership) Alive() []fsm.MemberID {
	var ids []fsm.MemberID
	for _, m := range g.All() {
		if m.Alive {
			ids = append(ids, m.Member)
		}
	}
	return ids
}

// Close leaves the cluster in order and stops. It may be called more than once.
func (g *Membership) Close() {
	g.once.Do(func() {
		close(g.stop)
		g.done.Wait()
		if err := g.list.Leave(leaveWaitMax); err != nil {
			g.log.Debug("failed to announce the leave to other members", "error", err)
		}
		g.shutdown()
	})
}

// Abort stops without leaving the cluster, like a killed process. For tests.
func (g *Membership) Abort() {
	g.once.Do(func() {
		close(g.stop)
		g.done.Wait()
		g.shutdown()
	})
}

func (g *Membership) shutdown() {
	if err := g.list.Shutdown(); err != nil {
		g.log.Warn("failed to stop gossip", "error", err)
	}
}

// Backdate makes the last change of every member that is not alive appear longer ago. For tests.
func (g *Membership) Backdate(longer time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if !m.Alive {
			m.Since = m.Since.Add(-longer)
		}
	}
}

// isForeignCluster reports whether a member belongs to another cluster, and logs that at a limited rate.
func (g *Membership) isForeignCluster(meta *Metadata) bool {
	if meta.Cluster == "" || g.self.Cluster == "" || meta.Cluster == g.self.Cluster {
		return false
	}
	if now := time.Now(); now.Sub(g.foreignLoggedAt) > throttle.LogEvery {
		g.foreignLoggedAt = now
		g.log.Error("refused a member of another cluster: check the names to join",
			"peer", meta.Member, "name", meta.Name, "their_cluster", meta.Cluster, "our_cluster", g.self.Cluster)
	}
	return true
}
