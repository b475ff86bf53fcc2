package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
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

type (
	// Transport carries the packets and streams of gossip.
	Transport = memberlist.Transport
	// Packet is one packet that a Transport received.
	Packet = memberlist.Packet
)

// Config configures the gossip of one member.
type Config struct {
	// Label, when set, keeps out processes with another label.
	Label string
	// Addr is the host:port that is bound, for UDP and TCP; port 0 picks a free port. Advertise is the
	// host:port announced to others; if it is empty, Addr is announced.
	Addr, Advertise string
	// Transport, when set, carries gossip instead of sockets at Addr. Close shuts it down.
	Transport Transport
	Join      []string // host:port of members to join; contacted again while a member is missing, and every rejoinIntervalsMax intervals
	Keys      [][]byte // 16, 24 or 32 bytes each; the first encrypts, all decrypt; none: plain gossip

	ProbeInterval  time.Duration // between two probes of a random member
	GossipInterval time.Duration // between two rounds of gossip
	RejoinInterval time.Duration // least pause between two attempts to join; it grows to rejoinIntervalsMax times this value
	TCPTimeout     time.Duration // of one TCP exchange; Close may wait for one, and for the resolution of its name

	// OnLost is called when the process of a member has left or is considered dead, from memberlist's
	// goroutines and with no lock held. It must not block.
	OnLost func(fsm.MemberID)
	// OnTwin is called, in a goroutine of its own, when another process with the identity of this member appears: one that runs on a
	// copy of its data folder, or the one before this, whose end is not known yet. It gets the host:port of its peer port. It may be nil.
	OnTwin func(address string)
	Logger *slog.Logger
}

// Open starts gossip with self as this member's metadata. It does not wait for answers of other members.
func Open(c *Config, self Metadata) (*Membership, error) {
	g := &Membership{
		log:     c.Logger,
		join:    c.Join,
		onLost:  c.OnLost,
		onTwin:  c.OnTwin,
		self:    self,
		members: make(map[fsm.MemberID]*Member),
		stop:    make(chan struct{}),

		joinWarnedAt: make(map[string]time.Time),
		unreached:    make(map[string]bool),
		resolveMax:   c.TCPTimeout,
	}
	config, err := g.memberlistConfig(c)
	if err != nil {
		return nil, err
	}
	g.list, err = memberlist.Create(config)
	if err != nil && c.Advertise == "" && config.BindAddr == "0.0.0.0" {
		return nil, fmt.Errorf("open gossip on %s: %w: the address to announce was chosen among the interfaces; set advertise to the name or address of this machine", c.Addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open gossip on %s: %w", c.Addr, err)
	}
	g.done.Go(func() { g.rejoinLoop(c.RejoinInterval) })
	g.done.Go(func() { g.unreachedLoop(c.RejoinInterval) })
	return g, nil
}

func (g *Membership) memberlistConfig(c *Config) (*memberlist.Config, error) {
	config := memberlist.DefaultLANConfig()
	config.Name = g.self.nodeName()
	config.Label = c.Label
	config.Transport = c.Transport
	config.LogOutput = memberlistLog{log: c.Logger, refusals: &g.refusals}
	config.Delegate, config.Events, config.Alive, config.Merge = g, g, g, g
	config.ProbeInterval = c.ProbeInterval
	config.ProbeTimeout = c.ProbeInterval / 2
	config.GossipInterval = c.GossipInterval
	config.PushPullInterval = gossipPushPullEvery
	config.TCPTimeout = c.TCPTimeout
	var err error
	if len(c.Keys) > 0 { // memberlist then refuses plain messages
		if config.Keyring, err = memberlist.NewKeyring(c.Keys, c.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip keys: %w", err)
		}
		g.keyring = config.Keyring
	}
	if config.BindAddr, config.BindPort, err = splitAddress(c.Addr); err != nil {
		return nil, err
	}
	if config.BindAddr == "" {
		config.BindAddr = "0.0.0.0"
	}
	config.AdvertisePort = config.BindPort
	if c.Advertise != "" {
		if config.AdvertiseAddr, config.AdvertisePort, err = splitAddress(c.Advertise); err != nil {
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

// Address returns the ip:port that other members can join.
func (g *Membership) Address() string { return g.list.LocalNode().Address() }

// rejoinLoop contacts the names to join, and the last known addresses of members, while members
// are missing: names may resolve later, and two halves of a cluster that consider each other dead
// do not rejoin by themselves. It contacts the names to join every rejoinIntervalsMax intervals in any case: processes
// that started while they could not reach the others know only each other and miss nobody.
func (g *Membership) rejoinLoop(interval time.Duration) {
	pause := time.Duration(0)
	var contacted time.Time
	for {
		changed := g.changed.Wait()
		isDue := time.Since(contacted) >= rejoinIntervalsMax*interval
		if isDue {
			contacted = time.Now()
		}
		g.contact(g.addressesToContact(isDue))
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

// unreachedLoop contacts the names to join that were not reached. Processes that start while a part of them cannot reach the others
// miss nobody, and soon meet all of them when they can.
func (g *Membership) unreachedLoop(interval time.Duration) {
	ticker := time.NewTicker(unreachedIntervals * interval)
	defer ticker.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-ticker.C:
		}
		g.mu.Lock()
		names := slices.Collect(maps.Keys(g.unreached))
		g.mu.Unlock()
		g.contact(names)
	}
}

// contact exchanges states with the members at some addresses, contactsMax at once, until Close is called.
func (g *Membership) contact(addresses []string) {
	slots := make(chan struct{}, contactsMax)
	var contacts sync.WaitGroup
	defer contacts.Wait()
	for _, address := range addresses {
		select {
		case <-g.stop:
			return
		case slots <- struct{}{}:
		}
		contacts.Go(func() {
			g.contactOne(address)
			<-slots
		})
	}
}

// contactOne exchanges states with the members at an address or name.
func (g *Membership) contactOne(address string) {
	all, err := g.resolve(address)
	n := 0
	if err == nil {
		n, err = g.list.Join(all)
	}
	if slices.Contains(g.join, address) { // otherwise it is the last known address of a member that is missing, which has been logged
		g.mu.Lock()
		if delete(g.unreached, address); n == 0 || n < len(all) {
			g.unreached[address] = true
		}
		g.mu.Unlock()
		if err != nil {
			g.warnJoin(address, err)
		}
	}
	if n == 0 && err != nil {
		logGossip(g.log, &g.refusals, "join", err.Error())
	}
}

// resolve returns an ip:port for each address of a host:port. Join would report a name as reached if one of its addresses was.
func (g *Membership) resolve(address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.resolveMax)
	defer cancel()
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	for i := range all {
		all[i] = net.JoinHostPort(all[i], port)
	}
	return all, nil
}

// warnJoin logs that an address to join cannot be reached or resolved, once in joinWarnEvery.
func (g *Membership) warnJoin(address string, cause error) {
	now := time.Now()
	g.mu.Lock()
	isDue := now.Sub(g.joinWarnedAt[address]) >= joinWarnEvery
	if isDue {
		g.joinWarnedAt[address] = now
	}
	g.mu.Unlock()
	if isDue {
		g.log.Warn("failed to reach a member of the setting join, will retry", "address", address, "error", strings.Join(strings.Fields(cause.Error()), " "))
	}
}

// addressesToContact returns the addresses of missing members, and the names to join if a member is missing, this one
// is alone, or always is set.
func (g *Membership) addressesToContact(always bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	alone := true
	var names []string
	for _, m := range g.members {
		switch {
		case m.Member == g.self.Member:
		case m.Alive:
			alone = false
		case !m.Leaving:
			names = append(names, m.address)
		}
	}
	if always || alone || len(names) > 0 {
		names = append(names, g.join...)
	}
	return names
}

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
