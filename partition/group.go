package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/planted"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/raftlog"
)

// Machine is the replicated state machine of a group: [fsm.Queues] or [fsm.Catalog]. The group calls it from
// one goroutine at a time.
type Machine interface {
	// Apply executes one encoded command. It panics on bytes that it does not know, and the replica then
	// stops: skipping a command would make replicas diverge.
	Apply(env fsm.Env, command []byte) fsm.Result
	// Effects returns and clears the effects that the Apply calls since the last call have produced for the
	// leader.
	Effects() []fsm.Effect
	// NextDeadline returns the times at which the next Pulse is due, on each timeline; 0 when none is needed.
	NextDeadline() fsm.Times
	// Times returns the times of the newest entry, and FormatLevel the format level that the log has set.
	Times() fsm.Times
	FormatLevel() uint32
	// Image freezes the state in microseconds; later calls of Apply do not change the image.
	Image() fsm.Image
	// Restore replaces the state with an image read back.
	Restore(r io.Reader) error
	// Refs calls visit for every body reference, in a fixed order, and stores the reference that visit
	// returns.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
}

// Image is a frozen copy of the state of a machine.
type Image = fsm.Image

// Outcome is the end of a submission.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota + 1 // applied; Result is meaningful
	Refused                    // certainly not in the log: ask the leader
	Unknown                    // may or may not have been applied: submit it again with the same Header
)

// Answer reports the end of a submission.
type Answer struct {
	Outcome Outcome
	// Final is set in a Refused answer that a retry will not change soon: the leader refuses commands that make data
	// grow because of SetReadOnly.
	Final bool
	// Result of a Refused answer has the Code ServerBusy when a queue of this leader is full, and OK when
	// this replica is not the leader.
	Result fsm.Result
}

// Voter names a replica of a group and the member that holds it.
type Voter struct {
	Replica string       `json:"Replica"` // raft server id, never reused
	Member  fsm.MemberID `json:"Member"`
}

// Config configures a group. Log is shared by all groups of a member; its file system holds Dir.
type Config struct {
	ID        fsm.PartitionID
	Replica   string // this replica's raft server id
	Member    fsm.MemberID
	Dir       string // of this replica alone
	Log       *raftlog.Log
	Machine   func(fsm.Bodies) Machine
	Bootstrap []Voter // if not empty: form the group, unless it has state already
	// Dial opens a raft stream to the named replica of the same group at another member. See Accepts and Accept.
	Dial func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error)
	// Liveness is shared by all groups of a member. nil: no other member can be asked, and only raft's timers start
	// elections.
	Liveness *Liveness
	// Now is the wall clock of this member.
	Now func() time.Time
	// Monotonic counts the time since some moment of this process. It never goes back, and need not count
	// while the host is suspended. nil means the clock of the operating system.
	Monotonic func() time.Duration
	// AgreedTime returns the median of the clocks of a quorum of members, extrapolated to now; ok is false if
	// no quorum confirms one. nil means Now: of a single member. It must not block or call the group.
	AgreedTime func() (at time.Time, ok bool)
	// IsReluctant, if it is true, lets this replica leave elections to others for up to reluctantMax (3 s) after
	// the loss of a leader: its member should not lead. It may be nil. It must not block or call the group.
	IsReluctant func() bool
	// Applied is called after every applied batch, on every replica, without locks held;
	// it must not block. It may be nil.
	Applied func()
	// LeadershipChanged is called with true when this replica has become the leader and has applied
	// everything older than its term, and with false when it has lost leadership. It may be nil. It must not
	// call Close.
	LeadershipChanged func(leads bool)
	// LeaderFound is called when this replica follows another leader than before; that one may not have applied
	// everything older than its term yet. It may be nil. It must not block.
	LeaderFound func()
	// Effect is called on the leader for every effect that is not about ready messages, without locks held;
	// it must not block. It may be nil. An effect is lost with its leader: the state of the machine must show
	// what it was about.
	Effect func(fsm.Effect)
	Logger *slog.Logger
	// SlowLogger logs entries and reads that took SlowAfter or longer, with the time of each stage. A nil
	// SlowLogger or a SlowAfter of 0 turns this off.
	SlowLogger *slog.Logger
	SlowAfter  time.Duration
	// MeasureDisk returns the free and total bytes of the file system of a folder; nil means statfs. As with
	// Sizes.Reserve, the first group that is opened on a Log decides.
	MeasureDisk func(dir string) (free, total uint64, err error)
	// Timing holds timeouts and intervals; the zero value means DefaultTiming.
	Timing Timing
	// Sizes holds limits in bytes; the zero value means DefaultSizes.
	Sizes Sizes
}

// Timing holds the timeouts and intervals of a group. Lease <= Heartbeat <= Election.
type Timing struct {
	Heartbeat     time.Duration // raft's heartbeat timeout; at least 5 ms
	Election      time.Duration // raft's election timeout: a candidate tries again after it
	Lease         time.Duration // a leader without a quorum steps down after it
	Commit        time.Duration // an idle follower learns the commit index after it
	SnapshotEvery time.Duration // between snapshots of a group in which little changes
}

// DefaultTiming suits members in one data centre: replacing a leader takes some ten milliseconds when its
// process has ended and less than a second when it is silent; an idle group costs an eighth of a percent of a
// core.
func DefaultTiming() Timing {
	return Timing{
		Heartbeat:     time.Second,
		Election:      time.Second,
		Lease:         500 * time.Millisecond,
		Commit:        250 * time.Millisecond,
		SnapshotEvery: 10 * time.Minute,
	}
}

// Sizes holds the limits of a group, in bytes.
type Sizes struct {
	Segment  int64 // of one segment file
	Snapshot int64 // of log entries between two snapshots, up to four times as many when the image is large
	Trailing int64 // of log entries kept behind a snapshot, for followers that lag a little
	// Reserve is the part of the log's file system that stays free: below it the member is read-only. 0 means
	// 5 % of the file system, at least 1 and at most 16 GiB; a negative value means none. Ballast is the size
	// of a file that is deleted when the disk is full, so that the log can be compacted; 0 means 64 MiB, a
	// negative value means none. The values of the first group that is opened hold for all groups of a Log.
	Reserve int64
	Ballast int64
	// LogSegment is the size of one file of the journal, if the log has one; 0 means 32 MiB.
	LogSegment int
}

// DefaultSizes keeps the log of a group under about 100 MiB, or under 300 MiB when its image has 256 MiB or more, except
// while a snapshot is being sent (snapshot_send.go).
func DefaultSizes() Sizes {
	return Sizes{Segment: bodystore.SegmentBytesDefault, Snapshot: 64 << 20, Trailing: 32 << 20}
}

// LockRequest waits at the leader until messages are ready, or until a session can be accepted.
type LockRequest struct {
	Header fsm.Header
	Lock   fsm.LockMessages
	// Accept, if it is not nil, is proposed instead of Lock. It names no session: a request for a named
	// session never waits and goes through Submit.
	Accept *fsm.AcceptSession
	Until  time.Time // end of the wait: Done then gets the outcome Done without deliveries
	Done   func(Answer)
}

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
}

// The errors that callers branch on.
var (
	// ErrNotLeader means that this replica is not the leader now: ask another.
	ErrNotLeader = errors.New("not the leader of the group")
	// ErrClosed means that the group is closed or has stopped.
	ErrClosed = errors.New("group is closed")
	// ErrTransferUsed means that this leader has already tried to transfer leadership in its term: a second
	// try can wedge raft, so it is refused until the next leadership.
	ErrTransferUsed = errors.New("leadership transfer was tried before in this term")
)

// Group is one replica of one raft group. All methods may be called concurrently.
type Group struct {
	cfg       Config
	log       *raftlog.Group
	bodies    *bodystore.Store
	snapshots *snapshotStore
	opened    time.Time

	// mu guards the machine: apply, restore and compaction write, View reads.
	mu          sync.RWMutex
	machine     Machine
	rolling     rollingDigest
	digestWaits []digestWait

	applied     atomic.Uint64 // index of the last command or configuration applied
	wall        atomic.Int64  // fsm.Instant, wall time of the last entry applied
	serving     atomic.Int64  // fsm.Instant, serving time of the last entry applied
	appliedAt   atomic.Int64  // Config.Monotonic when the last entry was applied
	level       atomic.Uint32 // format level of the machine
	configIndex atomic.Uint64 // of the newest committed configuration
	instance    atomic.Pointer[instance]

	// fsm.Instant of the next pulse, 0 for none.
	deadlineWall, deadlineServing atomic.Int64

	proposer           proposer
	bodyReader         bodyReader
	snapshotter        snapshotter
	counts             counters
	probe              *raftProbe
	appliedWaiters     appliedWaiters
	installsSinceApply atomic.Int32  // snapshots received since the last apply
	membershipSlot     chan struct{} // semaphore: one change of membership at a time
	wasMember          bool          // a committed configuration contained this replica; guarded by mu
	removed            atomic.Bool
	toldReadOnly       atomic.Bool   // SetReadOnly
	removedCh          chan struct{} // closed when the group has removed this replica
	reopen             chan string   // reason
	streamBroken       chan struct{} // a stream from a peer ended
	silentAt           atomic.Int64  // time since opened at which the leader was last found silent
	leaderSilent       chan struct{} // a peer that hears no leader has asked, and this replica has the better log
	goesFirst          bool          // this replica has just formed the group and is the first of its voters
	voteRefused        chan struct{} // this replica has refused its vote to a candidate with an older log
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
		cfg: cfg, opened: time.Now(),
		membershipSlot: make(chan struct{}, 1), removedCh: make(chan struct{}),
		reopen: make(chan string, 1), streamBroken: make(chan struct{}, 1), leaderSilent: make(chan struct{}, 1), voteRefused: make(chan struct{}, 1), haltedCh: make(chan struct{}), closed: make(chan struct{}),
		closing: make(chan struct{}), probe: new(raftProbe),
	}
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
	g.wg.Go(func() { g.campaignLoop(run) })
	if g.goesFirst {
		g.wg.Go(func() { g.electFirst(run) })
	}
	g.wg.Go(func() { g.proposer.run(run) })
	g.wg.Go(func() { g.bodyReader.run(run) })
	g.wg.Go(func() { g.snapshotter.run(run) })
	return g, nil
}

func (c *Config) validate() error {
	switch {
	case c.Replica == "" || c.Member == "" || c.Dir == "":
		return errors.New("config: Replica, Member and Dir must be set")
	case c.Log == nil || c.Machine == nil || c.Dial == nil || c.Now == nil || c.Logger == nil:
		return errors.New("config: Log, Machine, Dial, Now and Logger must be set")
	case c.Sizes.Segment < bodystore.HeaderBytes || c.Sizes.Snapshot <= 0 || c.Sizes.Trailing < 0:
		return errors.New("config: Sizes must be positive")
	case c.Timing.SnapshotEvery <= 0:
		return errors.New("config: Timing.SnapshotEvery must be positive")
	}
	return nil
}

// openStorage loads the newest snapshot into the machine.
func (g *Group) openStorage() error {
	cfg := &g.cfg
	var err error
	if g.log, err = cfg.Log.Group(cfg.ID); err != nil {
		return err
	}
	g.log.OnFailure(g.halt, func() { g.requestReopen("entries could not be written") })
	if err := g.claim(); err != nil {
		return err
	}
	files, snapDir := cfg.Log.FS(), filepath.Join(cfg.Dir, "snap")
	newest, serial, err := findSnapshot(files, snapDir)
	if err != nil {
		return err
	}
	if err := g.log.Reconcile(newest.ends()); err != nil {
		return err
	}
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
	g.snapshots = &snapshotStore{
		files: files, dir: snapDir, bodies: g.bodies, machine: cfg.Machine, fail: g.halt, received: g.noteSnapshotInstalled,
		logBytes: g.snapshotter.total.Load, newest: newest, serial: serial,
	}
	g.log.KeepFrom(g.logKeptFrom)
	if newest != nil {
		g.snapshots.imageBytes.Store(newest.ImageBytes)
		if err := g.load(newest); err != nil {
			return errors.Join(err, g.bodies.Close())
		}
	}
	// Everything is read and sound: only now is anything cut or removed.
	err = errors.Join(g.bodies.TruncateToSnapshot(listed), g.snapshots.dropOlder(), files.SyncFolder(cfg.Dir), files.SyncFolder(filepath.Dir(cfg.Dir)))
	if err != nil {
		return errors.Join(err, g.bodies.Close())
	}
	return nil
}

// load puts the machine into the state of a snapshot. The caller holds mu, or is Open.
func (g *Group) load(s *storedSnapshot) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load snapshot %s: %v", s.dir, r)
		}
	}()
	if err := s.load(g.machine); err != nil {
		return err
	}
	if err := g.bodies.Recount(g.machine); err != nil {
		return err
	}
	g.applied.Store(s.Applied)
	g.appliedAt.Store(int64(g.cfg.Monotonic()))
	g.rolling.restore(s.Digest, s.DigestVersion, s.DigestTerm)
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
	return replica == g.cfg.Replica || planted.Active(planted.RaftStreamAnyReplica)
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

// Status returns the state of the group as this replica sees it.
func (g *Group) Status() Status {
	r := g.instance.Load().raft
	s := Status{ID: g.cfg.ID, Term: r.CurrentTerm(), Applied: g.applied.Load(), Halted: g.halted()}
	addr, _ := r.LeaderWithID()
	s.Leader = fsm.MemberID(addr)
	g.proposer.addStatus(&s)
	s.BodyBytes, s.LiveBytes = g.bodies.Usage()
	s.LogFirst, _ = g.log.FirstIndex()
	s.LogLast, _ = g.log.LastIndex()
	s.Commit, s.LastIndex = r.CommitIndex(), r.LastIndex()
	s.Configuration, s.Removed, s.ReadOnly = g.configIndex.Load(), g.removed.Load(), g.isReadOnly()
	if r.State() != raft.Leader {
		at := r.LastContact()
		if at.IsZero() {
			at = g.opened
		}
		s.LastContact = time.Since(at)
	}
	newest := r.GetConfiguration()
	s.ConfigurationCommitted = newest.Index() <= s.Configuration
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
