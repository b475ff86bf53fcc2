package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// Machine is what a group keeps alive: [fsm.Queues] or [fsm.Catalog]. The group calls
// it from one goroutine at a time.
type Machine interface {
	// Apply performs one encoded command. It panics on bytes it does not know, and the
	// group then stops: skipping a command would fork the replica.
	Apply(env fsm.Env, command []byte) fsm.Result
	// Effects returns and clears what the applies since the last call ask of the leader.
	Effects() []fsm.Effect
	// NextDeadline says when the next Pulse is due.
	NextDeadline() (at fsm.Instant, ok bool)
	// Image freezes the state in microseconds; the image stays as it is while Apply goes on.
	Image() fsm.Image
	// Restore replaces the state with an image read back.
	Restore(r io.Reader) error
	// Refs visits every body reference in a fixed order; what visit returns takes its place.
	Refs(visit func(fsm.Owner, fsm.Ref) fsm.Ref)
}

// Image is a frozen state.
type Image = fsm.Image

// Outcome is how a submission ended.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota + 1 // applied; Result is meaningful
	Refused                    // certainly not in the log: ask the leader
	Unknown                    // may or may not have happened: ask again with the same Header
)

// Answer is the end of a submission.
type Answer struct {
	Outcome Outcome
	// Firm says of a Refused answer that asking again soon is of no use: what grows is
	// refused because SetReadOnly says so.
	Final bool
	// Result of a Refused answer has the Code ServerBusy when this leader has too much
	// waiting, and OK when this replica is not the leader.
	Result fsm.Result
}

// Voter is a member of a group at bootstrap.
type Voter struct {
	Replica string       `json:"Replica"` // raft server id, never reused
	Member  fsm.MemberID `json:"Member"`
}

// Config is what a group needs. Log is shared by all groups of a member.
type Config struct {
	ID        fsm.PartitionID
	Replica   string // this replica's raft server id
	Member    fsm.MemberID
	Dir       string // of this replica alone
	Log       *Log
	Machine   func(fsm.Bodies) Machine
	Bootstrap []Voter // non-empty: form the group if it holds no state yet
	// Dial opens a raft stream to the same group at another member.
	Dial func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (net.Conn, error)
	// Now is the wall clock of prepare.
	Now func() time.Time
	// Applied is called after every applied batch, on every replica, without locks held;
	// it must not block. It may be nil.
	Applied func()
	// Led is called when leadership is gained (true, after everything older is applied) or
	// lost. It may be nil. It must not call Close.
	LeadershipChanged func(leads bool)
	// Effect is called on the leader for every effect that is not about ready messages,
	// without locks held; it must not block. It may be nil. An effect whose leader dies
	// is not told again: what it is about must be found in the machine.
	Effect func(fsm.Effect)
	Logger *slog.Logger
	// Slow is told of entries and reads that took SlowAfter or longer, with where the time went; nil or 0: of none.
	SlowLogger *slog.Logger
	SlowAfter  time.Duration
	// Free measures the file system of a folder, in bytes; nil asks the system. As with
	// Sizes.Reserve the first group's holds.
	MeasureDisk func(dir string) (free, total uint64, err error)
	// Timing is how long things take; the zero value means DefaultTiming.
	Timing Timing
	// Sizes is how large things grow; the zero value means DefaultSizes.
	Sizes Sizes
}

// Timing is how long things take. Lease <= Heartbeat <= Election.
type Timing struct {
	Heartbeat     time.Duration // silence of the leader after which a follower asks around; at least 5 ms
	Election      time.Duration // after which a candidate tries again
	Lease         time.Duration // without a quorum after which a leader steps down
	Commit        time.Duration // after which idle followers learn what is committed
	SnapshotEvery time.Duration // between snapshots of a group in which little changes
}

// DefaultTiming is for members in one data centre: a leader whose process is gone costs some
// ten milliseconds, a silent one less than a second, an idle group a quarter of a percent of a
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

// Sizes is how large things grow, in bytes.
type Sizes struct {
	Segment  int64 // of a file of bodies
	Snapshot int64 // of log entries between two snapshots
	Trailing int64 // of log entries kept behind a snapshot, for followers that lag a little
	// Reserve is what stays free of the file system of the log: below it the member is
	// read-only. 0 means 5 % of it, at least 1 and at most 16 GiB; negative: nothing. Ballast is
	// a file that is given up when there is no room at all, so that the log can be cut; 0 means
	// 64 MiB, negative: none. For all groups of a Log those of the first that is opened hold.
	Reserve int64
	Ballast int64
}

// DefaultSizes keeps the log of a group under about 100 MiB.
func DefaultSizes() Sizes {
	return Sizes{Segment: segmentBytesDefault, Snapshot: 64 << 20, Trailing: 32 << 20}
}

// LockRequest waits at the leader until messages are ready, or for a session.
type LockRequest struct {
	Header fsm.Header
	Lock   fsm.LockMessages
	// Accept, where it is not nil, is asked instead of Lock. It is one without a name: one with
	// a name never waits and is submitted.
	Accept *fsm.AcceptSession
	Until  time.Time // when waiting ends: Done then gets Done with nothing
	Done   func(Answer)
}

// Status is a group as this replica sees it.
type Status struct {
	ID       fsm.PartitionID
	IsLeader bool         // leader, and everything older than its term is applied
	Leader   fsm.MemberID // empty: none known
	Term     uint64
	// HandingOver says that it leads and that a transfer to another replica is under way.
	Transferring bool
	// Applied is the index of the last command or configuration the machine has seen;
	// equal on replicas that are equal.
	Applied     uint64
	LastContact time.Duration
	Voters      []Voter
	Nonvoters   []Voter
	Halted      error // why this replica stopped, nil while it runs
	// What waits and what is on disk, for pictures and alarms.
	Queued    int   // commands that wait for an entry
	InFlight  int   // entries proposed and not yet applied
	Waiting   int   // lock requests that wait for messages
	BodyBytes int64 // of all segments
	LiveBytes int64 // of them, what the machine refers to
	LogFirst  uint64
	LogLast   uint64
	// Commit is the newest index that this replica knows to be committed, LastIndex the newest
	// in its log or snapshot. A leader learns nothing of its followers from raft: whoever wants
	// to know whether one has caught up compares its Applied with the leader's, twice.
	Commit    uint64
	LastIndex uint64
	// Configuration is the index of the newest committed configuration that was applied here.
	// Voters and Nonvoters may be of a later one, which is not committed yet.
	Configuration uint64
	// Removed says that the group has removed this replica and it has stopped: Destroy it.
	Removed bool
	// ReadOnly says that this replica refuses what grows while it leads, because its member is
	// short of room (Log.Space) or it was told so (SetReadOnly): if another voter has room,
	// leadership should go there.
	ReadOnly bool
}

// The errors callers branch on.
var (
	// ErrNotLeader says that this replica does not lead now: ask another.
	ErrNotLeader = errors.New("not the leader of the group")
	// ErrClosed says that the group is closed or has stopped.
	ErrClosed = errors.New("group is closed")
	// ErrTransferSpent says that this leader has tried to hand over before: a second try
	// can wedge raft, so it waits for the next leadership.
	ErrTransferUsed = errors.New("leadership transfer was tried before in this term")
)

// Group is one replica of one raft group. All methods may be called concurrently.
type Group struct {
	cfg       Config
	log       *groupLog
	bodies    *bodyStore
	snapshots *snapshotStore
	opened    time.Time

	// mu guards the machine: apply, restore and compaction write, View reads.
	mu          sync.RWMutex
	machine     Machine
	rolling     rollingDigest
	digestWaits []digestWait

	applied     atomic.Uint64 // index of the last command or configuration applied
	clock       atomic.Int64  // fsm.Instant of the last entry applied
	deadline    atomic.Int64  // fsm.Instant of the next pulse, 0 for none
	configIndex atomic.Uint64 // of the newest committed configuration
	instance    atomic.Pointer[instance]

	proposer           proposer
	bodyReader         bodyReader
	snapshotter        snapshotter
	counts             counters
	probe              raftProbe
	appliedWaiters     appliedWaiters
	installsSinceApply atomic.Int32  // snapshots that came since the last apply
	membershipSlot     chan struct{} // has room for the one change of members that may be under way
	wasMember          bool          // a configuration had this replica; guarded by mu
	removed            atomic.Bool
	toldReadOnly       atomic.Bool   // SetReadOnly
	removedCh          chan struct{} // closed when the group has removed this replica
	reopen             chan string   // reason
	streamBroken       chan struct{} // a stream of a peer ended
	leaderSilent       chan struct{} // a peer that hears no leader asked us
	voteRefused        chan struct{} // a candidate was refused our vote, for it is behind
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

// haltPanic is what unwinds an apply that cannot go on.
type haltPanic struct{ err error }

// Open opens a replica and joins it to its group. ctx bounds the opening only. An error
// that wraps stored damage leaves every byte as it was found. ErrDropped: the replica was
// being removed, and is gone now. ErrRestoring: see RestoreFrom.
func Open(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.Timing == (Timing{}) {
		cfg.Timing = DefaultTiming()
	}
	if cfg.Sizes == (Sizes{}) {
		cfg.Sizes = DefaultSizes()
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open group %d: %w", cfg.ID, err)
	}
	cfg.Logger = cfg.Logger.With(slog.Uint64("partition", uint64(cfg.ID)))
	g := &Group{
		cfg: cfg, opened: time.Now(),
		membershipSlot: make(chan struct{}, 1), removedCh: make(chan struct{}),
		reopen: make(chan string, 1), streamBroken: make(chan struct{}, 1), leaderSilent: make(chan struct{}, 1), voteRefused: make(chan struct{}, 1), haltedCh: make(chan struct{}), closed: make(chan struct{}),
		closing: make(chan struct{}),
	}
	if isDropped(cfg.Dir) {
		if err := Drop(cfg.Log, cfg.ID, cfg.Replica, cfg.Dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("open group %d: replica %s: %w", cfg.ID, cfg.Replica, ErrDropped)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, restoringFile)); err == nil {
		return nil, fmt.Errorf("open group %d: replica %s: %w", cfg.ID, cfg.Replica, ErrRestoring)
	}
	cfg.Log.diskSpace.watch(ctx, cfg.Sizes, cfg.MeasureDisk)
	if err := g.openStorage(); err != nil {
		return nil, fmt.Errorf("open group %d: %w", cfg.ID, err)
	}
	if err := g.openRaft(); err != nil {
		return nil, errors.Join(fmt.Errorf("open group %d: %w", cfg.ID, err), g.bodies.close())
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, g.instance.Load().close(), g.bodies.close())
	}
	g.proposer.init(g)
	g.bodyReader.init(g)
	g.snapshotter.init(g)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel = cancel
	g.wg.Go(func() { g.watchLeadership(run) })
	g.wg.Go(func() { g.campaignLoop(run) })
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
	case c.Sizes.Segment < segmentHeaderBytes || c.Sizes.Snapshot <= 0 || c.Sizes.Trailing < 0:
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
	if g.log, err = cfg.Log.group(cfg.ID); err != nil {
		return err
	}
	g.log.fail = g.halt
	if err := g.claim(); err != nil {
		return err
	}
	snapDir := filepath.Join(cfg.Dir, "snap")
	newest, serial, err := findSnapshot(snapDir)
	if err != nil {
		return err
	}
	if err := g.log.reconcileSnapshot(newest); err != nil {
		return err
	}
	var listed []segmentSize
	if newest != nil {
		listed = newest.Segments
	}
	g.bodies, err = openBodies(filepath.Join(cfg.Dir, "seg"), cfg.Sizes.Segment, listed, g.halt)
	if err != nil {
		return err
	}
	g.bodies.disk, g.bodies.closing = cfg.Log.diskSpace, g.closing
	g.bodies.retain(listed)
	g.machine = cfg.Machine(g.bodies)
	g.snapshots = &snapshotStore{
		dir: snapDir, bodies: g.bodies, machine: cfg.Machine, fail: g.halt, received: g.noteSnapshotInstalled,
		newest: newest, serial: serial,
	}
	if newest != nil {
		if err := g.load(newest); err != nil {
			return errors.Join(err, g.bodies.close())
		}
	}
	// Everything is read and sound: only now is anything cut or removed.
	err = errors.Join(g.bodies.truncateToSnapshot(listed), g.snapshots.dropOlder(), syncFolder(cfg.Dir), syncFolder(filepath.Dir(cfg.Dir)))
	if err != nil {
		return errors.Join(err, g.bodies.close())
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
	if err := g.bodies.recount(g.machine); err != nil {
		return err
	}
	g.applied.Store(s.Applied)
	g.clock.Store(int64(s.Clock))
	g.rolling.restore(s.Digest, s.DigestVersion, s.DigestTerm)
	g.failPassedWaits()
	g.applyConfiguration(s.ConfigurationIndex, raft.DecodeConfiguration(s.Configuration).Servers)
	g.updateDeadline()
	return nil
}

// reconcileSnapshot checks that the log goes on where the snapshot ends, and drops a log that
// contradicts it: entries of another term at the index of the snapshot were never
// committed, nor was anything behind them. Left in place they make raft ask for
// snapshots without end.
func (g *groupLog) reconcileSnapshot(newest *storedSnapshot) error {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	var index, term uint64
	if newest != nil {
		index, term = newest.Index, newest.Term
	}
	if first > index+1 {
		return fmt.Errorf("log of group %d begins at %d and the newest snapshot ends at %d: %w", g.id, first, index, errDamaged)
	}
	if index == 0 || index < first || last < index {
		return nil // nothing at the index of the snapshot that could contradict it
	}
	var e raft.Log
	if err := g.GetLog(index, &e); err != nil {
		return fmt.Errorf("read log of group %d at %d: %w", g.id, index, err)
	}
	if e.Term == term {
		return nil
	}
	return g.clear()
}

// Close stops the replica and waits until it has. What is in flight ends Unknown.
func (g *Group) Close(ctx context.Context) error {
	g.closeOnce.Do(func() {
		close(g.closing)
		go func() {
			g.cancel()
			g.proposer.close(Unknown)
			g.closeErr = g.instance.Load().close()
			g.wg.Wait()
			// Once more, for an instance that was opened anew meanwhile.
			g.closeErr = errors.Join(g.closeErr, g.instance.Load().close(), g.bodies.close())
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

// halt stops this replica for good: its disk or its machine cannot be trusted. Bytes
// stay as they are for whoever looks into it. It does not wait.
func (g *Group) halt(err error) {
	g.haltOnce.Do(func() {
		g.haltErr.Store(&err)
		close(g.haltedCh)
		g.cfg.Logger.Error("replica stopped; its data is left as it is and it takes part in nothing until it is replaced: "+
			"move the partition off this member (peeklock partition move), and back if it is to be here",
			"error", err, "index", g.applied.Load())
	})
}

// halted says why the replica stopped.
func (g *Group) halted() error {
	if err := g.haltErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Accept takes a raft stream that the same group of another member has dialled.
func (g *Group) Accept(conn net.Conn) { g.instance.Load().streams.enqueue(conn) }

// View calls f with the machine as it is here, perhaps behind the leader. f must not
// change the machine, keep it, or call the group.
func (g *Group) View(f func(Machine)) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f(g.machine)
}

// ReadBodies fills in Payload and Patches. A delivery whose message has gone meanwhile
// is left out. Bytes that are damaged stop the replica.
func (g *Group) ReadBodies(ds []fsm.Delivery) ([]fsm.Delivery, error) {
	out, err := g.bodies.readBodies(ds)
	if errors.Is(err, errUnwritten) {
		return nil, fmt.Errorf("read bodies of group %d: %w (%w)", g.cfg.ID, fsm.ServerBusy, err)
	}
	if err != nil {
		g.halt(err)
		return nil, fmt.Errorf("read bodies of group %d: %w", g.cfg.ID, err)
	}
	return out, nil
}

// Status returns the group as this replica sees it.
func (g *Group) Status() Status {
	r := g.instance.Load().raft
	s := Status{ID: g.cfg.ID, Term: r.CurrentTerm(), Applied: g.applied.Load(), Halted: g.halted()}
	addr, _ := r.LeaderWithID()
	s.Leader = fsm.MemberID(addr)
	g.proposer.addStatus(&s)
	s.BodyBytes, s.LiveBytes = g.bodies.usage()
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
	for _, v := range r.GetConfiguration().Configuration().Servers {
		x := Voter{Replica: string(v.ID), Member: fsm.MemberID(v.Address)}
		if v.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, x)
		} else {
			s.Nonvoters = append(s.Nonvoters, x)
		}
	}
	return s
}
