package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/skip"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// Status is the state of a group as this replica sees it.
type Status struct {
	ID       fsm.PartitionID
	IsLeader bool         // it is the leader and has applied everything older than its term
	Leader   fsm.MemberID // empty: none known
	Term     uint64
	// Transferring is set while this leader transfers leadership to another replica.
	Transferring bool
	// Applied is the index of the last command or configuration that was applied; it is the same on replicas
	// with the same state.
	Applied     uint64
	LastContact time.Duration
	Voters      []Voter
	Nonvoters   []Voter
	Halted      error // why this replica stopped, nil while it runs
	// Queue lengths and disk use, for dashboards and alerts.
	Queued    int   // commands that wait for an entry
	InFlight  int   // entries proposed and not yet applied
	Waiting   int   // lock requests that wait for messages
	BodyBytes int64 // of all segments
	LiveBytes int64 // the part that the machine refers to
	LogFirst  uint64
	LogLast   uint64
	// Commit is the newest index that this replica knows to be committed, LastIndex the newest in its log or
	// snapshot. Raft tells a leader nothing about its followers: to find out whether one has caught up,
	// compare its Applied with the leader's, twice.
	Commit    uint64
	LastIndex uint64
	// Configuration is the index of the newest committed configuration that was applied here.
	// Voters and Nonvoters may be of a later one, which is not committed yet.
	Configuration uint64
	// ConfigurationCommitted is set when Voters and Nonvoters are those of Configuration.
	ConfigurationCommitted bool
	// Removed is set when the group has removed this replica and the replica has stopped: Destroy it.
	Removed bool
	// ReadOnly is set when this replica, as leader, refuses commands that make data grow, because its member
	// is low on disk space or memory (Log.DiskSpace) or because of SetReadOnly: leadership should go to a
	// voter that has space.
	ReadOnly bool
	// Latency says how fast the disk of the member writes its log, which all groups of the member share.
	Latency LogLatency
}

// readsMax is the number of calls of Read that look at the machine at a time. The next apply waits for all of them.
const readsMax = 4

// Group is one replica of one raft group. All methods may be called concurrently.
type Group struct {
	cfg       Config
	log       *raftlog.Group
	bodies    *bodystore.Store
	snapshots *snapshots.Store

	// mu guards the machine: apply, restore and compaction write, View reads.
	mu          sync.RWMutex
	machine     Machine
	rolling     digest.Rolling
	digestWaits []digestWait

	applied       atomic.Uint64                 // index of the last command or configuration applied
	wall          atomic.Int64                  // fsm.Instant, wall time of the last entry applied
	serving       atomic.Int64                  // fsm.Instant, serving time of the last entry applied
	appliedAt     atomic.Int64                  // Config.Monotonic when the last entry was applied
	level         atomic.Uint32                 // format level of the machine
	configIndex   atomic.Uint64                 // of the newest committed configuration
	configuration atomic.Pointer[configuration] // the newest one that was applied
	instance      atomic.Pointer[instance]

	// fsm.Instant of the next pulse, 0 for none.
	deadlineWall, deadlineServing atomic.Int64

	candidacy          candidacy
	proposer           proposer
	bodyReader         bodyReader
	snapshotter        snapshotter
	counts             counters
	probe              *raftProbe
	appliedWaiters     appliedWaiters
	installsSinceApply atomic.Int32  // snapshots received since the last apply
	membershipSlot     chan struct{} // semaphore: one change of membership at a time
	reads              chan struct{} // semaphore: readsMax calls of View by Read at a time
	wasMember          bool          // a committed configuration contained this replica; guarded by mu
	removed            atomic.Bool
	toldReadOnly       atomic.Bool   // SetReadOnly
	skipped            skip.Marks    // by an operator, and behind the snapshot with which the replica was opened
	removedCh          chan struct{} // closed when the group has removed this replica
	reopen             chan string   // reason
	goesFirst          bool          // this replica has just formed the group and is the first of its voters
	haltOnce           sync.Once
	haltErr            atomic.Pointer[error]
	haltedCh           chan struct{}

	cancel    context.CancelFunc
	wg        sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
	closing   chan struct{} // closed when Close begins
	closed    chan struct{}
}

// Open opens a replica and joins it to its group. ctx bounds the opening only. When stored bytes are damaged,
// Open returns an error and changes nothing on disk. ErrDropped means that the removal of the replica had
// been interrupted and is now complete. For ErrRestoring see RestoreFrom.
func Open(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Timing == (Timing{}) {
		cfg.Timing = DefaultTiming()
	}
	if cfg.Sizes == (Sizes{}) {
		cfg.Sizes = DefaultSizes()
	}
	if cfg.Monotonic == nil {
		start := time.Now()
		cfg.Monotonic = func() time.Duration { return time.Since(start) }
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open group %d: %w", cfg.ID, err)
	}
	cfg.Logger = cfg.Logger.With(slog.Uint64("partition", uint64(cfg.ID)))
	g := &Group{
		cfg:            cfg,
		membershipSlot: make(chan struct{}, 1), reads: make(chan struct{}, readsMax), removedCh: make(chan struct{}),
		reopen: make(chan string, 1), haltedCh: make(chan struct{}), closed: make(chan struct{}),
		closing: make(chan struct{}), probe: new(raftProbe),
	}
	g.configuration.Store(new(configuration))
	g.candidacy.init(&g.cfg, &g.instance)
	if isDropped(cfg.Log.FS(), cfg.Dir) {
		if err := Drop(cfg.Log, cfg.ID, cfg.Replica, cfg.Dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("open group %d: replica %s: %w", cfg.ID, cfg.Replica, ErrDropped)
	}
	if _, err := cfg.Log.FS().Stat(filepath.Join(cfg.Dir, restoringFile)); err == nil {
		return nil, fmt.Errorf("open group %d: replica %s: %w", cfg.ID, cfg.Replica, ErrRestoring)
	}
	cfg.Log.Disk().Watch(ctx, cfg.Sizes.Reserve, cfg.Sizes.Ballast, cfg.MeasureDisk)
	if err := g.openStorage(); err != nil {
		return nil, fmt.Errorf("open group %d: %w", cfg.ID, err)
	}
	if err := g.openRaft(); err != nil {
		return nil, errors.Join(fmt.Errorf("open group %d: %w", cfg.ID, err), g.bodies.Close())
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, g.instance.Load().close(), g.bodies.Close())
	}
	g.proposer.init(g)
	g.bodyReader.init(g)
	g.snapshotter.init(g)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel = cancel
	g.wg.Go(func() { g.watchLeadership(run) })
	g.wg.Go(func() { g.candidacy.campaignLoop(run) })
	if g.goesFirst {
		g.wg.Go(func() { g.candidacy.electFirst(run) })
	}
	g.wg.Go(func() { g.proposer.run(run) })
	g.wg.Go(func() { g.bodyReader.run(run) })
	g.wg.Go(func() { g.snapshotter.run(run) })
	return g, nil
}

// openStorage loads the newest snapshot into the machine, or the one before if it was kept and the newest one cannot be loaded.
func (g *Group) openStorage() error {
	cfg := &g.cfg
	var err error
	if g.log, err = cfg.Log.Group(cfg.ID); err != nil {
		return err
	}
	g.log.OnFailure(g.halt, func() { g.requestReopen("the log has less than raft takes for written") }, g.Supersede)
	if err := claim(cfg, g.log); err != nil {
		return err
	}
	newest, serial, err := snapshots.Find(cfg.Log.FS(), filepath.Join(cfg.Dir, "snap"))
	if err != nil {
		return err
	}
	if err := g.log.Reconcile(newest.Ends()); err != nil {
		return err
	}
	if err := g.openSnapshot(newest, serial, nil); err != nil {
		return g.openFormer(newest, serial, err)
	}
	return nil
}

// openSnapshot loads a snapshot, nil for an empty state, and sets aside the one that could not be loaded, if there was one.
func (g *Group) openSnapshot(newest *snapshots.Snapshot, serial uint64, unloadable *snapshots.Snapshot) (err error) {
	cfg := &g.cfg
	files, snapDir := cfg.Log.FS(), filepath.Join(cfg.Dir, "snap")
	var listed []bodystore.SegmentSize
	if newest != nil {
		listed = newest.Segments
	}
	g.bodies, err = bodystore.Open(files, filepath.Join(cfg.Dir, "seg"), cfg.Sizes.Segment, listed, g.halt)
	if err != nil {
		return err
	}
	g.bodies.OnFullDisk(cfg.Log.Disk(), g.closing)
	g.bodies.Retain(listed)
	g.machine = cfg.Machine(g.bodies)
	g.snapshots = snapshots.New(snapshots.Config{
		Files: files, Dir: snapDir, Bodies: g.bodies, Machine: cfg.snapshotMachine, Fail: g.halt, Received: g.noteSnapshotInstalled,
		LogBytes: g.snapshotter.total.Load,
	}, newest, serial)
	g.log.KeepFrom(g.logKeptFrom)
	g.log.SnapshotEnd(g.snapshots.Ends)
	var covered uint64
	if newest != nil {
		covered = newest.Applied
		image, err := newest.OpenImage()
		if err == nil {
			err = g.load(image)
		}
		if err != nil {
			return errors.Join(err, g.bodies.Close())
		}
	}
	// Everything is read and sound: only now is anything cut or removed.
	if g.skipped, err = skip.Open(files, cfg.Dir, covered); err == nil && unloadable != nil {
		err = unloadable.SetAside() // before its segments are truncated
	}
	if err != nil {
		return errors.Join(err, g.bodies.Close())
	}
	err = errors.Join(g.bodies.TruncateToSnapshot(listed), g.snapshots.DropOlder(), files.SyncFolder(cfg.Dir), files.SyncFolder(filepath.Dir(cfg.Dir)))
	if err != nil {
		return errors.Join(err, g.bodies.Close())
	}
	return nil
}

// load puts the machine into the state of a snapshot. The caller holds mu, or is Open.
func (g *Group) load(s *snapshots.Image) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load snapshot %s: %v", s.Dir, r)
		}
	}()
	if err := s.Load(g.machine); err != nil {
		return err
	}
	if err := g.bodies.Recount(g.machine); err != nil {
		return err
	}
	g.applied.Store(s.Applied)
	g.appliedAt.Store(int64(g.cfg.Monotonic()))
	g.rolling.Restore(s.State)
	g.failPassedWaits()
	g.applyConfiguration(s.ConfigurationIndex, raft.DecodeConfiguration(s.Configuration).Servers)
	g.publishTimes()
	return nil
}

// Close stops the replica and waits until it has stopped or ctx ends. Entries in flight end with Unknown.
func (g *Group) Close(ctx context.Context) error {
	g.closeOnce.Do(func() {
		close(g.closing)
		go func() {
			g.cancel()
			g.proposer.close(Unknown)
			g.closeErr = g.instance.Load().close()
			g.wg.Wait()
			// Once more, for an instance that was reopened meanwhile.
			g.closeErr = errors.Join(g.closeErr, g.instance.Load().close(), g.bodies.Close())
			close(g.closed)
		}()
	})
	select {
	case <-g.closed:
		if g.closeErr != nil {
			return fmt.Errorf("close group %d: %w", g.cfg.ID, g.closeErr)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close group %d: %w", g.cfg.ID, ctx.Err())
	}
}

// Destroy closes the replica and removes all of its data from this member. The group must have removed the
// replica, or be abandoned: a replica must never return under the same name. If ctx or the process ends
// before Destroy is done, the next [Open] of the replica, which returns ErrDropped, or [Drop] completes it.
func (g *Group) Destroy(ctx context.Context) error {
	if err := markDropped(g.cfg.Log.FS(), g.cfg.Dir); err != nil {
		return fmt.Errorf("destroy replica %s: %w", g.cfg.Replica, err)
	}
	if err := g.Close(ctx); err != nil {
		select {
		case <-g.closed: // it has stopped; the error concerns data that is removed
		default:
			return fmt.Errorf("destroy replica %s: %w", g.cfg.Replica, err)
		}
	}
	return Drop(g.cfg.Log, g.cfg.ID, g.cfg.Replica, g.cfg.Dir)
}

// halt stops this replica for good: its disk or its machine cannot be trusted. The data on disk stays as it
// is for an investigation. halt does not wait.
func (g *Group) halt(err error) {
	g.haltOnce.Do(func() {
		g.haltErr.Store(&err)
		close(g.haltedCh)
		g.cfg.Logger.Error("replica stopped after a failure; its data is kept, and it takes no part in the group until it is replaced: "+
			"move the partition off this member (peeklock partition move), and back if it belongs here",
			"error", err, "index", g.applied.Load())
	})
}

// requestReopen asks watchLeadership to reopen raft. It does not block.
func (g *Group) requestReopen(reason string) {
	if inst := g.instance.Load(); inst != nil {
		inst.giveUp.Do(func() { close(inst.givenUp) })
	}
	select {
	case g.reopen <- reason:
	default:
	}
}

// halted returns the reason for which the replica stopped, nil while it runs.
func (g *Group) halted() error {
	if err := g.haltErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Accepts reports whether this is the replica that a raft stream names. A member that
// has removed a replica and got another one must not answer for the former: what that one has promised, a vote or
// entries, this one does not hold.
func (g *Group) Accepts(replica string) bool {
	return replica == g.cfg.Replica
}

// Accept hands over a raft stream that the same group of another member has dialled.
func (g *Group) Accept(from fsm.MemberID, conn net.Conn) {
	g.instance.Load().streams.Accepted(from, conn)
}

// View calls f with this replica's machine, which may lag behind the leader's. f must not change the machine,
// keep it, or call the group.
func (g *Group) View(f func(Machine)) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f(g.machine)
}

// ReadBodies fills in Payload and Patches. It omits a delivery whose message was deleted meanwhile. Damaged
// bytes stop the replica.
func (g *Group) ReadBodies(ds []fsm.Delivery) ([]fsm.Delivery, error) {
	out, err := g.bodies.ReadBodies(ds)
	if errors.Is(err, bodystore.ErrUnwritten) && g.flushBodies() == nil {
		out, err = g.bodies.ReadBodies(ds)
	}
	if errors.Is(err, bodystore.ErrUnwritten) {
		return nil, fmt.Errorf("read bodies of group %d: %w (%w)", g.cfg.ID, fsm.ServerBusy, err)
	}
	if err != nil {
		g.halt(err)
		return nil, fmt.Errorf("read bodies of group %d: %w", g.cfg.ID, err)
	}
	return out, nil
}

// flushBodies writes the bodies that are only in memory.
func (g *Group) flushBodies() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bodies.Flush()
}

// UnansweredFor returns the time for which raft's main goroutine has not answered a request, and sends a new
// request when none is open: so a first call returns 0. Leadership and quorum do not matter: a follower
// answers at once, a leader without a quorum when its lease has ended. A replica that has stopped answers.
// Each request costs a goroutine until the answer, and a leader a round of heartbeats, so a call every few
// seconds is enough. May be called concurrently.
func (g *Group) UnansweredFor() time.Duration {
	inst := g.instance.Load()
	return g.probe.unansweredFor(inst.raft.VerifyLeader, inst.closed, g.closing)
}

// Leader returns the member that leads the group as far as this replica knows, "" for none. Unlike Status it is cheap enough for
// every request.
func (g *Group) Leader() fsm.MemberID {
	addr, _ := g.instance.Load().raft.LeaderWithID()
	return fsm.MemberID(addr)
}

// Status returns the state of the group as this replica sees it.
func (g *Group) Status() Status {
	r := g.instance.Load().raft
	s := Status{ID: g.cfg.ID, Term: r.CurrentTerm(), Applied: g.applied.Load(), Halted: g.halted()}
	s.Leader = g.Leader()
	g.proposer.addStatus(&s)
	s.BodyBytes, s.LiveBytes = g.bodies.Usage()
	s.Latency = g.cfg.Log.Latency()
	s.LogFirst, _ = g.log.FirstIndex()
	s.LogLast, _ = g.log.LastIndex()
	s.Commit, s.LastIndex = r.CommitIndex(), r.LastIndex()
	s.Configuration, s.Removed, s.ReadOnly = g.configIndex.Load(), g.removed.Load(), g.isReadOnly()
	if r.State() != raft.Leader {
		at := r.LastContact()
		if at.IsZero() {
			at = g.candidacy.opened
		}
		s.LastContact = time.Since(at)
	}
	newest := r.GetConfiguration()
	// GetConfiguration of raft 1.7.3 reports no index, so the servers are compared.
	s.ConfigurationCommitted = slices.Equal(newest.Configuration().Servers, *g.configuration.Load())
	for _, v := range newest.Configuration().Servers {
		x := Voter{Replica: string(v.ID), Member: fsm.MemberID(v.Address)}
		if v.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, x)
		} else {
			s.Nonvoters = append(s.Nonvoters, x)
		}
	}
	return s
}
