package cluster

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of gossip.
const (
	membersMax          = 1024 // members remembered, dead ones included
	updateWaitMax       = time.Second
	leaveWaitMax        = time.Second
	rejoinIntervalsMax  = 15 // the pause between two tries to join grows to this many intervals
	foreignLogEvery     = 10 * time.Second
	gossipPushPullEvery = 10 * time.Second
)

// member is a process as gossip knows it.
type member struct {
	metadata
	node   string // name in gossip
	gossip string // ip:port in gossip
	alive  bool
	since  time.Time // of the last change of alive, on our clock
}

// peerAddress is where streams to the member are opened.
func (m *member) peerAddress() string {
	if host, port, err := net.SplitHostPort(m.Peer); err == nil && host == "" {
		if host, _, err = net.SplitHostPort(m.gossip); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return m.Peer
}

// state is the word for people.
func (m *member) state() string {
	switch {
	case m.alive:
		return "alive"
	case m.Leaving:
		return "left"
	}
	return "dead"
}

// gossip knows who is here. It wraps memberlist, which calls its Notify methods from
// its own goroutines and with its own locks held, so those only write to members.
type gossip struct {
	list     *memberlist.Memberlist
	log      *slog.Logger
	join     []string
	changed  broadcast
	refusals logThrottle // log lines about gossip that cannot be decrypted
	// lost is called, outside of all locks but from memberlist's goroutines, when a
	// process is gone; it must not block.
	lost func(fsm.MemberID)

	mu         sync.Mutex
	self       metadata
	members    map[fsm.MemberID]*member // of each member the latest process
	foreignLog time.Time                // when a foreign member was last logged

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// openGossip starts gossiping; it does not wait for anybody to answer.
func openGossip(c *Config, self metadata, lost func(fsm.MemberID)) (*gossip, error) {
	g := &gossip{
		log:     c.Logger,
		join:    c.Join,
		lost:    lost,
		self:    self,
		members: make(map[fsm.MemberID]*member),
		stop:    make(chan struct{}),
	}
	config, err := g.config(c)
	if err != nil {
		return nil, err
	}
	g.list, err = memberlist.Create(config)
	if err != nil {
		return nil, fmt.Errorf("open gossip on %s: %w", c.GossipAddr, err)
	}
	g.done.Go(func() { g.rejoinLoop(c.Timing.Rejoin) })
	return g, nil
}

func (g *gossip) config(c *Config) (*memberlist.Config, error) {
	config := memberlist.DefaultLANConfig()
	config.Name = g.self.node()
	config.Label = c.Cluster
	config.LogOutput = gossipLog{log: c.Logger, refusals: &g.refusals}
	config.Delegate, config.Events, config.Alive, config.Merge = g, g, g, g
	config.ProbeInterval = c.Timing.GossipProbe
	config.ProbeTimeout = c.Timing.GossipProbe / 2
	config.GossipInterval = c.Timing.GossipInterval
	config.PushPullInterval = gossipPushPullEvery
	config.TCPTimeout = c.Timing.Dial // bounds how long Close may wait for a join on its way
	var err error
	if len(c.GossipKeys) > 0 { // what comes in plain is then refused
		if config.Keyring, err = memberlist.NewKeyring(c.GossipKeys, c.GossipKeys[0]); err != nil {
			return nil, fmt.Errorf("gossip keys: %w", err)
		}
	}
	if config.BindAddr, config.BindPort, err = splitAddress(c.GossipAddr); err != nil {
		return nil, err
	}
	if config.BindAddr == "" {
		config.BindAddr = "0.0.0.0"
	}
	config.AdvertisePort = config.BindPort
	if c.GossipAdvertise != "" {
		if config.AdvertiseAddr, config.AdvertisePort, err = splitAddress(c.GossipAdvertise); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %q: port is not a number up to 65535", address)
	}
	return host, port, nil
}

// address is the ip:port that others can join.
func (g *gossip) address() string { return g.list.LocalNode().Address() }

// rejoinLoop tries the names to join, and where members were last seen, while
// somebody is missing: names may resolve later, and two halves of a cluster that held
// each other for dead do not find together by themselves.
func (g *gossip) rejoinLoop(interval time.Duration) {
	pause := time.Duration(0)
	for {
		changed := g.changed.wait()
		if names := g.missing(); len(names) > 0 {
			if _, err := g.list.Join(names); err != nil {
				logGossip(g.log, &g.refusals, "join", err.Error())
			}
		}
		pause = min(max(2*pause, interval), rejoinIntervalsMax*interval)
		timer := time.NewTimer(pause)
		select {
		case <-g.stop:
			timer.Stop()
			return
		case <-changed:
			pause = 0
			timer.Reset(interval)
			select {
			case <-g.stop:
				timer.Stop()
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
	}
}

// missing are the addresses worth a try, none when nobody is known to be missing.
func (g *gossip) missing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := true
	var names []string
	for _, m := range g.members {
		switch {
		case m.Member == g.self.Member:
		case m.alive:
			alone = false
		case !m.Leaving:
			names = append(names, m.gossip)
		}
	}
	if alone || len(names) > 0 {
		names = append(names, g.join...)
	}
	return names
}

// setCluster, setLeaving and setShort change what this member says about itself.
func (g *gossip) setCluster(id string) { g.update(func(m *metadata) { m.Cluster = id }) }
func (g *gossip) setLeaving()          { g.update(func(m *metadata) { m.Leaving = true }) }
func (g *gossip) setShort(now func() bool) {
	g.update(func(m *metadata) { m.Short = now() })
}

func (g *gossip) update(change func(*metadata)) {
	g.mu.Lock()
	before := g.self
	change(&g.self)
	same := g.self == before
	g.mu.Unlock()
	if same {
		return
	}
	if err := g.list.UpdateNode(updateWaitMax); err != nil {
		g.log.Debug("gossip about ourselves is slow", "error", err)
	}
}

func (g *gossip) clusterID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.Cluster
}

// lookup returns what is known of a member.
func (g *gossip) lookup(id fsm.MemberID) (member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[id]; m != nil {
		return *m, true
	}
	return member{}, false
}

// all returns every known member, this one included, by id.
func (g *gossip) all() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := make([]member, 0, len(g.members))
	for _, m := range g.members {
		members = append(members, *m)
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(string(a.Member), string(b.Member)) })
	return members
}

// alive returns the ids of the living members, this one included, sorted.
func (g *gossip) alive() []fsm.MemberID {
	var ids []fsm.MemberID
	for _, m := range g.all() {
		if m.alive {
			ids = append(ids, m.Member)
		}
	}
	return ids
}

// close tells the others and stops.
func (g *gossip) close() {
	g.once.Do(func() {
		close(g.stop)
		g.done.Wait()
		if err := g.list.Leave(leaveWaitMax); err != nil {
			g.log.Debug("leave gossip", "error", err)
		}
		if err := g.list.Shutdown(); err != nil {
			g.log.Warn("stop gossip", "error", err)
		}
	})
}

// NotifyJoin is called by memberlist for every process that appears.
func (g *gossip) NotifyJoin(node *memberlist.Node) { g.NotifyUpdate(node) }

// NotifyUpdate is called by memberlist when a process says something new about itself.
func (g *gossip) NotifyUpdate(node *memberlist.Node) {
	meta, err := decodeMetadata(node.Meta)
	if err != nil {
		return // NotifyAlive has refused it already
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.members[meta.Member]
	if known != nil && known.node != node.Name && known.Started > meta.Started {
		if known.alive {
			g.log.Warn("an earlier process of a member is alive: was its data folder copied?", "peer", meta.Member)
		}
		return
	}
	now := member{metadata: meta, node: node.Name, gossip: node.Address(), alive: true, since: time.Now()}
	if known != nil && known.node == node.Name && known.alive {
		now.since = known.since
	} else if meta.Member != g.self.Member {
		g.log.Info("member is here", "peer", meta.Member, "name", meta.Name, "address", now.peerAddress())
	}
	g.members[meta.Member] = &now
	g.changed.notify()
}

// NotifyLeave is called by memberlist when a process has left or is held for dead.
func (g *gossip) NotifyLeave(node *memberlist.Node) {
	meta, err := decodeMetadata(node.Meta)
	if err != nil {
		return
	}
	g.mu.Lock()
	known := g.members[meta.Member]
	if known == nil || known.node != node.Name {
		g.mu.Unlock()
		return // a later process of the member is here already
	}
	known.alive, known.since = false, time.Now()
	known.Leaving = meta.Leaving
	state, us := known.state(), meta.Member == g.self.Member
	g.mu.Unlock()
	g.changed.notify()
	if !us {
		g.log.Info("member is gone", "peer", meta.Member, "name", meta.Name, "state", state)
		g.lost(meta.Member)
	}
}

// NotifyAlive is called by memberlist before it takes a process in; an error keeps it out.
func (g *gossip) NotifyAlive(node *memberlist.Node) error {
	meta, err := decodeMetadata(node.Meta)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", node.Name, node.Address(), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.foreign(&meta) {
		return fmt.Errorf("member %s belongs to another cluster", meta.Member)
	}
	if g.members[meta.Member] == nil && len(g.members) >= membersMax && !g.forgetOne() {
		return fmt.Errorf("more than %d members", membersMax)
	}
	return nil
}

// NotifyMerge is called by memberlist before two groups of members become one.
func (g *gossip) NotifyMerge(nodes []*memberlist.Node) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, node := range nodes {
		if meta, err := decodeMetadata(node.Meta); err == nil && g.foreign(&meta) {
			return fmt.Errorf("member %s belongs to another cluster", meta.Member)
		}
	}
	return nil
}

// foreign says whether a member's data belongs to another cluster, and logs it now and then.
func (g *gossip) foreign(meta *metadata) bool {
	if meta.Cluster == "" || g.self.Cluster == "" || meta.Cluster == g.self.Cluster {
		return false
	}
	if now := time.Now(); now.Sub(g.foreignLog) > foreignLogEvery {
		g.foreignLog = now
		g.log.Error("a member of another cluster is refused: check the names to join",
			"peer", meta.Member, "name", meta.Name, "their_cluster", meta.Cluster, "our_cluster", g.self.Cluster)
	}
	return true
}

// forgetOne drops the member that has been dead for longest.
func (g *gossip) forgetOne() bool {
	var oldest *member
	for _, m := range g.members {
		if !m.alive && (oldest == nil || m.since.Before(oldest.since)) {
			oldest = m
		}
	}
	if oldest != nil {
		delete(g.members, oldest.Member)
	}
	return oldest != nil
}

// NodeMeta is called by memberlist for what we say about ourselves.
func (g *gossip) NodeMeta(limit int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	meta := g.self.appendTo(nil)
	if len(meta) > limit { // Config.Validate keeps this from happening
		g.log.Error("metadata is too long", "bytes", len(meta), "limit", limit)
		return nil
	}
	return meta
}

// NotifyMsg is not used: nothing is sent through gossip but metadata.
func (g *gossip) NotifyMsg([]byte) {}

// GetBroadcasts is not used.
func (g *gossip) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is not used.
func (g *gossip) LocalState(bool) []byte { return nil }

// MergeRemoteState is not used.
func (g *gossip) MergeRemoteState([]byte, bool) {}

// gossipLog turns memberlist's lines into slog records. Its warnings are about single
// probes and are of use only when one looks for trouble in the network.
type gossipLog struct {
	log      *slog.Logger
	refusals *logThrottle
}

func (l gossipLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if at := strings.Index(text, "memberlist: "); at >= 0 {
		text = text[at+len("memberlist: "):]
	}
	logGossip(l.log, l.refusals, "gossip", text)
	return len(line), nil
}

// logGossip tells what memberlist says: loudly, now and then, when it is about keys. It
// knows that by the words "encrypted" and "decrypt" (memberlist 0.6.0, net.go and
// security.go), which TestGossipKeys would miss.
func logGossip(log *slog.Logger, refusals *logThrottle, about, text string) {
	foreign := strings.Contains(text, "encrypted") || strings.Contains(strings.ToLower(text), "decrypt")
	if foreign && refusals.allow(about, time.Now()) {
		log.Warn("gossip of a process that has not our key is refused: give all members the same gossip keys", "about", about, "text", text)
		return
	}
	log.Debug("gossip", "about", about, "text", text)
}
