package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/load"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simnet"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// The ports of every simulated host.
const (
	gossipPort = 7946
	peerPort   = 7947
)

const (
	dataFolder    = "/data"
	startRetry    = time.Second // between two attempts to start a member
	startTriesMax = 600
	serveWithin   = time.Minute // from the end of the last fault until everything is served
)

// longTrailing is how much of their logs the members keep if calls fail in a cluster of three: otherwise a snapshot, which the leader
// sends because it has nothing else, would hide that a replica refuses entries.
const longTrailing = 4 << 20

// world is a cluster of the simulation: members, their network, clocks and disks.
type world struct {
	partitions int
	replicas   int // of each partition
	expect     int // members that bootstrap the cluster together; 0: it exists, and members join it
	network    *simnet.Network
	clients    *simnet.Host // of the AMQP clients
	members    []*member
	join       []string // addresses of gossip besides those of the members
	log        *slog.Logger
	entries    *recorder // of the logs of the cluster
	events     *digest
	clocks     judge.Clocks
	calls      *calls         // nil: they are not counted
	former     *recorder      // of the cluster before the restore, nil before
	repairs    sync.WaitGroup // operations after which the cluster is whole again
	forget     func()         // called when the cluster is lost, before it is restored
	resumed    func()         // called when hosts run again that stood still
	hasBacklog bool           // the plan has the fault Backlog
	fill       func()         // sends its messages
	naming     chan struct{}  // has one element while the names of a fault Rename are changed and asked for

	mu       sync.Mutex
	restored *judge.Restoration   // nil: the cluster was not restored
	found    []string             // findings that no client sees
	effects  map[simplan.Kind]int // faults that had an effect, of the kinds of which some have none
}

// find records a finding.
func (w *world) find(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, arguments...))
}

// cluster returns what distinguishes the cluster before a restore from the one after it.
func (w *world) cluster() *judge.Restoration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restored
}

// member is one host. It has at most one process at a time.
type member struct {
	world  *world
	name   string
	number int // of the host
	clock  *clock
	log    partition.LogKind // of its data folder; a former member keeps it at another host

	// slot has one element while a process starts or ends. It is no mutex, because a goroutine that waits for
	// a mutex stops the time of the simulation.
	slot    chan struct{}
	mu      sync.Mutex
	process *process // nil: down
	disk    *simfs.Disk
	isOld   bool // the member runs the former release
	// isCopied says that there is a copy of the disk: the processes on both stop when they find each other, and start no more.
	isCopied bool
}

// process is one run of a member.
type process struct {
	load.Process

	member      *member
	host        *simnet.Host
	begun       time.Time
	gateway     *amqp.Server
	stopServing context.CancelFunc // ends Serving
}

// served returns what clients use of the cluster.
func (w *world) served() *load.Cluster {
	running := func(member int) *load.Process {
		if p := w.members[member].running(); p != nil {
			return &p.Process
		}
		return nil
	}
	return &load.Cluster{Members: len(w.members), Host: w.clients, Running: running, Restored: w.cluster, Find: w.find}
}

func newWorld(plan *simplan.Plan, events *digest, log *slog.Logger) *world {
	w := &world{
		partitions: plan.Partitions, replicas: plan.Replicas(), expect: plan.Members, network: simnet.New(plan.Seed), log: log, events: events,
		entries: newRecorder(events, nil), effects: make(map[simplan.Kind]int), hasBacklog: plan.Has(simplan.Backlog), naming: make(chan struct{}, 1),
	}
	w.clocks.Error, w.clocks.StepMax, w.clocks.Agree = plan.ClockError(), clocks.StepMax, w.clocksAgree
	w.network.Observe(events.sent)
	w.network.DamageStreams(raftStream)
	w.clients = w.network.Start(clientsHost)
	for i := range plan.Members {
		m := w.add(i, i, newClock())
		m.isOld = plan.Has(simplan.Upgrade)
		m.replaceDisk(plan.Seed)
	}
	return w
}

// add adds a member. It has no disk yet.
func (w *world) add(name, host int, c *clock) *member {
	m := &member{world: w, name: fmt.Sprintf("m%d", name), number: host, clock: c, log: logStore(name), slot: make(chan struct{}, 1)}
	w.members = append(w.members, m)
	return m
}

// config returns the configuration of a member, with the timing of a real one.
func (m *member) config(host *simnet.Host) (cluster.Config, error) {
	w := m.world
	c := cluster.Default()
	c.Name = m.name
	c.Dir = dataFolder
	disk := m.store()
	files := disk.Mount()
	c.FS, c.OpenLogStore, c.Free = files, w.entries.open(m.name, files.OpenLog), disk.Space
	c.LogStore = m.log
	c.Expect = w.expect
	c.Partitions, c.Replication = w.partitions, w.replicas
	c.Logger = w.log.With("name", c.Name)
	c.Now, c.Monotonic = m.clock.now, m.clock.monotonic
	c.BootTime = func() time.Duration { return time.Since(m.clock.begun) }
	c.Reread = load.Reread
	c.Dial = host.Dial
	c.GossipAddr = simnet.Address(m.number, gossipPort)
	c.Join = slices.Clone(w.join)
	for _, other := range w.members {
		if other != m {
			c.Join = append(c.Join, simnet.Address(other.number, gossipPort))
		}
	}
	c.Sizes = partition.Sizes{Segment: 256 << 10, Snapshot: 256 << 10, Trailing: 64 << 10, Reserve: 1 << 30, Ballast: -1, LogSegment: 128 << 10}
	if w.calls != nil && w.expect == 3 {
		c.Sizes.Trailing = longTrailing
	}
	m.mu.Lock()
	if m.isOld {
		setFormerRelease(&c)
	}
	m.mu.Unlock()
	var err error
	if c.PeerListener, err = host.Listen(peerPort); err != nil {
		return c, err
	}
	c.GossipTransport, err = host.Gossip(gossipPort)
	return c, err
}

// start starts the process of a member, unless it has one.
func (m *member) start() error {
	m.slot <- struct{}{}
	defer func() { <-m.slot }()
	if m.running() != nil {
		return nil
	}
	host := m.world.network.Start(m.number)
	config, err := m.config(host)
	if err != nil {
		return err
	}
	p := &process{Process: load.Process{Member: m.number, Ended: make(chan struct{})}, member: m, host: host, begun: time.Now()}
	p.Serving, p.stopServing = context.WithCancel(context.Background())
	if p.Node, err = cluster.Open(context.Background(), config); err != nil {
		host.Kill()
		m.store().Kill()
		return fmt.Errorf("start member %d: %w", m.number, err)
	}
	if p.gateway, err = openGateway(host, p.Node, m.name, m.world.log); err != nil {
		return err
	}
	m.set(p)
	go m.followRemoval(p)
	go m.followStart(p)
	return nil
}

// ensureRunning starts the member if it is down, and tries again while that fails.
func (m *member) ensureRunning() {
	for tries := 1; ; tries++ {
		err := m.start()
		if err == nil {
			return
		}
		if tries == startTriesMax {
			m.world.find("member %d does not start: %v", m.number, err)
			return
		}
		if m.world.calls != nil {
			m.world.calls.addNote(refusedStart + err.Error())
		}
		m.world.log.Warn("failed to start a member", "error", err)
		if errors.Is(err, datadir.ErrCopied) && m.mayStop() {
			return // its operator replaces it
		}
		if isRemoved(err) {
			m.replaceDisk(uint64(time.Now().UnixNano()))
		}
		sleep(startRetry)
	}
}

// mayStop reports whether a copy of the disk is a reason not to start.
func (m *member) mayStop() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isCopied
}

func (m *member) set(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = p
}

// running returns the process of a member, nil while it is down.
func (m *member) running() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// kill ends the process of a member: as a killed process, or, with power, as a host that loses power.
func (m *member) kill(power bool) {
	m.slot <- struct{}{}
	defer func() { <-m.slot }()
	m.end(power)
}

// end is kill for a caller that holds the slot.
func (m *member) end(power bool) {
	p := m.running()
	if p == nil {
		return
	}
	m.set(nil)
	close(p.Ended)
	if power {
		p.host.PowerOff()
		m.store().Crash()
	} else {
		p.host.Kill()
		m.store().Kill()
	}
	go func() { _ = p.close() }() // ends the goroutines; nothing of it gets out
}

// stop ends the process of a member in order.
func (m *member) stop() error {
	m.slot <- struct{}{}
	defer func() { <-m.slot }()
	p := m.running()
	if p == nil {
		return nil
	}
	m.set(nil)
	p.stopServing()
	err := p.close()
	close(p.Ended)
	p.host.Kill()
	m.store().Kill()
	return err
}

// close ends the gateway and the node of a process.
func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), gatewayCloseMax)
	defer cancel()
	_ = p.gateway.Close(ctx) // a client that does not close its connection is no failure
	return p.Node.Close(context.Background())
}

// startAll starts every member and waits until all are ready.
func (w *world) startAll(ctx context.Context) error {
	for _, m := range w.members {
		if err := m.start(); err != nil { //nolint:contextcheck // the process outlives the start
			return err
		}
	}
	return w.awaitReady(ctx)
}

// awaitReady waits until every member that runs is ready.
func (w *world) awaitReady(ctx context.Context) error {
	for _, m := range w.members {
		if p := m.running(); p != nil {
			if err := p.Node.Ready(ctx); err != nil {
				return fmt.Errorf("member %d: %w", m.number, err)
			}
		}
	}
	return nil
}

// startRest starts the members that are down.
func (w *world) startRest() {
	for _, m := range w.members {
		m.ensureRunning()
	}
}

// counted returns how many faults had an effect. Of Garble it is the frames that were damaged.
func (w *world) counted() map[simplan.Kind]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.network.Stats().Damaged; n > 0 {
		w.effects[simplan.Garble] = int(n)
	}
	return w.effects
}

// happened counts a fault that had an effect.
func (w *world) happened(k simplan.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[k]++
}

// raftStream reports whether a stream between members, which begins with some bytes, is one of Raft: only its frames have checksums
// without TLS.
func raftStream(first []byte) bool {
	const kindAt = 9 // behind magic, version, draft and length, see package peer
	return len(first) > kindAt && string(first[:4]) == "PLKP" && first[kindAt] == 1
}
