package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/peeklock/peeklock/cluster/throttle"
)

// NotifyJoin is called by memberlist for every process that appears.
func (g *Membership) NotifyJoin(node *memberlist.Node) { g.NotifyUpdate(node) }

// NotifyUpdate is called by memberlist when the metadata of a process changes.
func (g *Membership) NotifyUpdate(node *memberlist.Node) {
	meta, err := decodeMetadata(node.Meta)
	if err != nil {
		return // NotifyAlive has already refused it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isForeignCluster(&meta) {
		return // this member has learned the id of its cluster since NotifyAlive
	}
	known := g.members[meta.Member]
	if meta.Member == g.self.Member && meta.Incarnation != g.self.Incarnation && g.onTwin != nil {
		twin := Member{Metadata: meta, address: node.Address()}
		go g.onTwin(twin.PeerAddress())
	}
	if known != nil && known.nodeName != node.Name && known.Started > meta.Started {
		if known.Alive && meta.Member != g.self.Member { // of this member, onTwin finds out
			g.log.Warn("found an earlier process of a member alive: check whether its data folder was copied", "peer", meta.Member)
		}
		return
	}
	now := Member{Metadata: meta, nodeName: node.Name, address: node.Address(), Alive: true, Since: time.Now()}
	if known != nil && known.nodeName == node.Name && known.Alive {
		now.Since = known.Since
	} else if meta.Member != g.self.Member {
		g.log.Info("member joined the gossip", "peer", meta.Member, "name", meta.Name, "address", now.PeerAddress())
	}
	g.members[meta.Member] = &now
	g.changed.Notify()
}

// NotifyLeave is called by memberlist when a process has left or is considered dead.
func (g *Membership) NotifyLeave(node *memberlist.Node) {
	meta, err := decodeMetadata(node.Meta)
	if err != nil {
		return
	}
	g.mu.Lock()
	known := g.members[meta.Member]
	if known == nil || known.nodeName != node.Name {
		g.mu.Unlock()
		return // the list already has a later process of the member
	}
	known.Alive, known.Since = false, time.Now()
	known.Leaving = meta.Leaving
	state, us := known.State(), meta.Member == g.self.Member
	g.mu.Unlock()
	g.changed.Notify()
	if !us {
		g.log.Info("member was lost from the gossip", "peer", meta.Member, "name", meta.Name, "state", state)
		g.onLost(meta.Member)
	}
}

// NotifyAlive is called by memberlist before it admits a process; an error refuses it.
func (g *Membership) NotifyAlive(node *memberlist.Node) error {
	meta, err := decodeMetadata(node.Meta)
	if errors.Is(err, errDraft) && g.refusals.Allow("draft of "+node.Address(), time.Now()) {
		g.log.Error("refused a member with another draft of the formats: before release 0.1.0, all members must run the same build",
			"node", node.Name, "address", node.Address(), "error", err)
	}
	if err != nil {
		return fmt.Errorf("%s at %s: %w", node.Name, node.Address(), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isForeignCluster(&meta) {
		if known := g.members[meta.Member]; known != nil && known.nodeName == node.Name {
			delete(g.members, meta.Member) // met before it knew its cluster
			g.changed.Notify()
		}
		return fmt.Errorf("member %s belongs to another cluster", meta.Member)
	}
	if g.members[meta.Member] == nil && len(g.members) >= membersMax && !g.evictOne() {
		return fmt.Errorf("more than %d members", membersMax)
	}
	return nil
}

// NotifyMerge is called by memberlist before two groups of members become one.
func (g *Membership) NotifyMerge(nodes []*memberlist.Node) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, node := range nodes {
		if meta, err := decodeMetadata(node.Meta); err == nil && g.isForeignCluster(&meta) {
			return fmt.Errorf("member %s belongs to another cluster", meta.Member)
		}
	}
	return nil
}

// evictOne removes the member that has been dead for the longest time. It returns false when all are alive.
func (g *Membership) evictOne() bool {
	var oldest *Member
	for _, m := range g.members {
		if !m.Alive && (oldest == nil || m.Since.Before(oldest.Since)) {
			oldest = m
		}
	}
	if oldest != nil {
		delete(g.members, oldest.Member)
	}
	return oldest != nil
}

// NodeMeta is called by memberlist for the metadata of this member.
func (g *Membership) NodeMeta(limit int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	meta := g.self.encode()
	if len(meta) > limit { // cluster.Config.Validate prevents this
		g.log.Error("failed to encode metadata: it is too long", "bytes", len(meta), "limit", limit)
		return nil
	}
	return meta
}

// NotifyMsg is not used: gossip carries only Metadata.
func (g *Membership) NotifyMsg([]byte) {}

// GetBroadcasts is not used.
func (g *Membership) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is not used.
func (g *Membership) LocalState(bool) []byte { return nil }

// MergeRemoteState is not used.
func (g *Membership) MergeRemoteState([]byte, bool) {}

// memberlistLog converts memberlist's log lines into slog records. Memberlist's warnings are about single
// probes and only help to diagnose network problems, so they are logged at level DEBUG.
type memberlistLog struct {
	log      *slog.Logger
	refusals *throttle.Log
}

func (l memberlistLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if at := strings.Index(text, "memberlist: "); at >= 0 {
		text = text[at+len("memberlist: "):]
	}
	logGossip(l.log, l.refusals, "gossip", text)
	return len(line), nil
}

// logGossip logs a line of memberlist: as a warning, at a limited rate, when it is about keys, else at level
// DEBUG. It recognizes lines about keys by the words "encrypted" and "decrypt" (memberlist 0.6.0, net.go and
// security.go); TestGossipWithAnotherKeySeesNoMember fails when those words change.
func logGossip(log *slog.Logger, refusals *throttle.Log, about, text string) {
	foreign := strings.Contains(text, "encrypted") || strings.Contains(strings.ToLower(text), "decrypt")
	if foreign && refusals.Allow(about, time.Now()) {
		log.Warn("refused gossip of a process with another key: give all members the same gossip keys", "about", about, "text", text)
		return
	}
	log.Debug("memberlist logged a message", "about", about, "text", text)
}
