package partition

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// Machine is the replicated state machine of a group: that of fsm/queue or of fsm/catalog. The group calls it from
// one goroutine at a time.
type Machine interface {
	// Apply executes one encoded command. It panics on bytes that it does not know, and the replica then
	// stops: skipping a command would make replicas diverge.
	Apply(env fsm.Env, command []byte) fsm.Result
	// Skip answers a command with Internal, without performing it, and remembers the answer. It does not panic on what
	// Apply panics on.
	Skip(env fsm.Env, command []byte) fsm.Result
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

// snapshotMachine returns a machine that a snapshot is loaded into.
func (c *Config) snapshotMachine(bodies fsm.Bodies) snapshots.Machine { return c.Machine(bodies) }

// Image is a frozen copy of the state of a machine.
type Image = fsm.Image

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
	// Refuses returns the code with which the leader refuses a command whose kind may make data grow, OK for most. It must be
	// cheap and must not block; nil refuses nothing.
	Refuses func(command []byte) fsm.Code
	// Namespace returns the namespace of a command, 0 if it has none or is not known. The leader composes entries by turns of the
	// namespaces, and keeps the order of the commands of one. It must be cheap and must not block; nil knows none.
	Namespace func(info *fsm.CommandInfo, command []byte) fsm.NamespaceID
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
// while a snapshot is being sent (snapshots/sends.go).
func DefaultSizes() Sizes {
	return Sizes{Segment: bodystore.SegmentBytesDefault, Snapshot: 64 << 20, Trailing: 32 << 20}
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

// raft returns raft's configuration.
func (c *Config) raft() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.Replica)
	conf.HeartbeatTimeout = c.Timing.Heartbeat
	conf.ElectionTimeout = c.Timing.Election
	conf.LeaderLeaseTimeout = c.Timing.Lease
	conf.CommitTimeout = c.Timing.Commit
	conf.MaxAppendEntries = entriesPerRequestMax
	conf.BatchApplyCh = false // true loses futures at shutdown and gains nothing
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.NoSnapshotRestoreOnStart = true // Open has loaded it
	conf.TrailingLogs = trailingEntriesUnknown
	conf.SnapshotInterval = snapshotNever
	conf.SnapshotThreshold = math.MaxUint64
	return conf
}

// firstConfiguration returns the configuration of the group that Bootstrap forms.
func (c *Config) firstConfiguration() raft.Configuration {
	var first raft.Configuration
	for _, v := range c.Bootstrap {
		first.Servers = append(first.Servers, raft.Server{
			Suffrage: raft.Voter,
			ID:       raft.ServerID(v.Replica),
			Address:  raft.ServerAddress(v.Member),
		})
	}
	return first
}
