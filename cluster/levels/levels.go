package levels

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/bootstrap"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// raiseTimeout bounds one attempt to raise the level of the cluster.
const raiseTimeout = 5 * time.Second

// Members gives access to the members of the cluster. Its methods may be called concurrently.
type Members interface {
	// Lookup returns what gossip knows about a member, and false when it knows nothing.
	Lookup(id fsm.MemberID) (gossip.Member, bool)
	// Hello asks a member for its identity and state.
	Hello(ctx context.Context, member fsm.MemberID, request bootstrap.HelloRequest) (bootstrap.Hello, error)
}

// Config is what Levels need.
type Config struct {
	Self     fsm.MemberID
	Readable uint32 // the highest level that the binary of this member can read, at least 1
	Dir      *datadir.Dir
	Members  Members
	Settle   time.Duration // how long all members must be able to read a level before it is raised
	// Command submits a command to a partition and waits for its result.
	Command func(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error)
	// Fail is called once, before Outdated is closed, with an error that wraps bootstrap.ErrOutdated.
	Fail func(error)
	// Groups returns the open replicas of this member.
	Groups func() map[fsm.PartitionID]*partition.Group
	Logger *slog.Logger
}

// Levels knows the level of the cluster and that of the binary. Its methods may be called concurrently, except where they
// say otherwise.
type Levels struct {
	Config

	adopted  atomic.Uint32 // of the catalog, 0 before it is loaded
	outdated chan struct{} // closed when the cluster needs a higher level than this binary can read
	proposal proposal      // used by Raise and Withdraw only
}

// proposal is the level that the leader of the catalog is about to raise to, and since when every member
// can read it.
type proposal struct {
	level uint32
	since time.Time
}

// New returns Levels that have adopted none.
func New(config *Config) *Levels { return &Levels{Config: *config, outdated: make(chan struct{})} }

// Adopted returns the level of the catalog, 0 before it is loaded.
func (l *Levels) Adopted() uint32 { return l.adopted.Load() }

// Current is the level of the cluster, at least 1. It may rise a moment before this member learns it.
func (l *Levels) Current() uint32 { return max(1, l.adopted.Load()) }

// Outdated returns a channel that is closed when this member learns that its binary is too old for the cluster.
func (l *Levels) Outdated() <-chan struct{} { return l.outdated }

// Adopt adopts the level of the catalog. It returns false when this binary cannot read that level. The
// level is recorded on disk before this member writes anything of that level, so that an old binary fails at its next
// start before it opens a log that it cannot read. A record that fails is tried again at the next call. Calls
// must not overlap.
func (l *Levels) Adopt(ctx context.Context, level uint32) bool {
	if l.Dir.Identity().Level < level {
		if err := l.Dir.Update(func(id *datadir.Identity) { id.Level = level }); err != nil {
			l.Logger.ErrorContext(ctx, "failed to record the format level of the cluster, will retry", "level", level, "error", err)
		}
	}
	if l.adopted.Swap(level) == level {
		return level <= l.Readable
	}
	if level <= l.Readable {
		l.Logger.InfoContext(ctx, "format level of the cluster was adopted", "level", level, "known", l.Readable)
		return true
	}
	l.Fail(bootstrap.OutdatedError(level, l.Readable))
	close(l.outdated) // closed once: the level only rises, and the catalog is not followed after this
	return false
}

// Raise raises the cluster to the highest level that every member can read and an operator permits, when that has
// been so for Settle; a new cluster at once. A dead member counts with the level that it last announced. The level does not
// rise while the version of any member is unknown. group is the catalog, which this member leads, and members are those that
// hold its data. Calls must not overlap, also with Withdraw.
func (l *Levels) Raise(ctx context.Context, group *partition.Group, members []fsm.MemberID) {
	level := l.Readable
	if most := Max(group); most != 0 {
		level = min(level, most)
	}
	for _, id := range members {
		m, known := l.Members.Lookup(id)
		if !known {
			level = 0
		}
		level = min(level, m.Level)
	}
	if level <= l.Current() {
		l.Withdraw()
		return
	}
	if l.proposal.level != level {
		l.proposal = proposal{level, time.Now()}
	}
	if time.Since(l.proposal.since) < l.Settle && !l.isNew(group, members) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	for _, id := range members { // gossip may describe a process that has ended, or be forged
		if id == l.Self || !l.isAlive(id) {
			continue
		}
		if hello, err := l.Members.Hello(ctx, id, bootstrap.HelloRequest{}); err != nil || hello.ReadableLevel < level {
			l.Withdraw()
			return
		}
	}
	if _, err := l.Command(ctx, fsm.CatalogPartition, fsm.RaiseLevel{Level: level}); err != nil {
		l.Logger.WarnContext(ctx, "failed to raise the format level of the cluster, will retry", "level", level, "error", err)
		return
	}
	l.Logger.InfoContext(ctx, "format level of the cluster was raised: every member can read it", "level", level)
}

// Withdraw ends the wait of Raise: this member no longer leads the catalog.
func (l *Levels) Withdraw() { l.proposal = proposal{} }

// Max returns the level above which a replica of the catalog does not rise, 0 for none.
func Max(group rpc.Group) (most uint32) {
	group.View(func(m partition.Machine) { most = raftgroup.Catalog(m).FormatLevelMax() })
	return most
}

// isNew reports whether the cluster has no entity yet and all of its members are alive. Its level rises at once, so
// that the first clients find every feature.
func (l *Levels) isNew(group *partition.Group, members []fsm.MemberID) (isNew bool) {
	if slices.ContainsFunc(members, func(id fsm.MemberID) bool { return id != l.Self && !l.isAlive(id) }) {
		return false
	}
	group.View(func(m partition.Machine) { isNew = raftgroup.Catalog(m).Entities() == 0 })
	return isNew
}

func (l *Levels) isAlive(id fsm.MemberID) bool {
	m, ok := l.Members.Lookup(id)
	return ok && m.Alive
}

// RaisePartitions writes the level of the cluster into the logs of the partitions that this member leads
// and whose state machines have a lower level: they know only the level in their log. It is called repeatedly,
// so a command that is lost is written the next time.
func (l *Levels) RaisePartitions(ctx context.Context) {
	level := min(l.Current(), l.Readable)
	for id, group := range l.Groups() {
		if id == fsm.CatalogPartition || !group.Status().IsLeader {
			continue
		}
		below := false
		group.View(func(m partition.Machine) { below = raftgroup.Queues(m).FormatLevel() < level })
		if !below {
			continue
		}
		l.Logger.DebugContext(ctx, "requested a higher format level for a partition", "partition", id, "level", level)
		command := fsm.AppendCommand(nil, fsm.Header{}, fsm.RaiseLevel{Level: level})
		group.Submit(command, func(partition.Answer) {})
	}
}
