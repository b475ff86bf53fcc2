package partition

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/snapshots"
)

// A state that no replica can load is found by no checksum: it is written as it is, and the replicas read it only when they start. So
// one follower in turn loads every tenth snapshot of its partition, and at least one in an hour. The snapshot before and
// the log behind it are kept until that has passed.
const (
	snapshotsPerCheck  = 10
	snapshotCheckEvery = time.Hour
	// checkMemoryFactor is how many bytes of memory a state takes for each byte of its image, see BenchmarkSnapshotCheck.
	checkMemoryFactor = 4
	// checkLogFactorMax bounds the log that is kept behind the snapshot before a checked one, as a multiple of Sizes.Snapshot. Beyond
	// that the check ends, and the snapshot before and its log are deleted.
	checkLogFactorMax = 2 * snapshotLogFactorMax
	// checkMemoryPercent is the part of the memory limit of the process that may be used while a snapshot is loaded.
	checkMemoryPercent = 90
	// sentSnapshotPause is the time between two attempts to replace a snapshot that cannot be loaded and is being sent.
	sentSnapshotPause = time.Second
)

// errCheckLog means that the log behind the snapshot before exceeds its bound.
var errCheckLog = errors.New("the log behind the snapshot before has become too long")

// snapshotChecks decides which snapshots of a replica are loaded, and counts them. The snapshotter uses it, and others read the counters.
type snapshotChecks struct {
	since  int           // snapshots since the last check
	at     time.Duration // Config.Monotonic of the last check, or of the opening
	failed bool          // the last one failed, and the next snapshot is checked too

	// due is set while a snapshot is written that is checked: its digest is needed, and the log is kept.
	due      atomic.Bool
	passedAt uint64 // snapshotter.total at the newest snapshot that was not replaced after a failed check

	fits func(bytes int64) bool // fitsMemory, except in tests

	done, skipped, failures, unprotected atomic.Uint64
}

// isDue reports whether the next snapshot is checked. position is that of this replica among so many replicas that take turns.
func (c *snapshotChecks) isDue(now time.Duration, position, replicas int) bool {
	first := 1 + position // the turns of the replicas do not coincide
	if c.done.Load() > 0 {
		first = replicas
	}
	return c.failed || c.since >= snapshotsPerCheck*first || now-c.at >= snapshotCheckEvery*time.Duration(first)
}

// checkTurn returns the position of this replica among those that take turns in loading snapshots: the followers, or a
// voter without followers. ok is false for others.
func (g *Group) checkTurn() (position, replicas int, ok bool) {
	var voters []string
	_, leader := g.instance.Load().raft.LeaderWithID()
	for _, s := range *g.configuration.Load() {
		if s.Suffrage == raft.Voter && s.ID != leader {
			voters = append(voters, string(s.ID))
		}
	}
	if len(voters) == 0 && string(leader) == g.cfg.Replica {
		return 0, 1, true
	}
	slices.SortFunc(voters, strings.Compare)
	position = slices.Index(voters, g.cfg.Replica)
	return position, len(voters), position >= 0
}

// snapshotAndCheck writes a snapshot, and checks it if it is its turn and no other one of the member is being checked. A snapshot that cannot
// be loaded is replaced by the one before, if the log reaches back to that.
func (g *Group) snapshotAndCheck(ctx context.Context) error {
	c := &g.snapshotter.checks
	now := g.cfg.Monotonic()
	position, replicas, ok := g.checkTurn()
	c.since++
	// A member that is short of space keeps neither a second snapshot nor more log.
	if !ok || !c.isDue(now, position, replicas) || g.cfg.Log.Disk().IsReadOnly() {
		return g.Snapshot(ctx)
	}
	release, ok := g.cfg.Log.AcquireSnapshotCheck()
	if !ok {
		return g.Snapshot(ctx)
	}
	defer release()
	before, _ := g.snapshots.Newest()
	if !c.failed {
		c.passedAt = g.snapshotter.totalAtSnapshot.Load()
	}
	hold := g.snapshots.Hold()
	c.due.Store(true)
	err := g.Snapshot(ctx)
	c.due.Store(false)
	written, _ := g.snapshots.Newest()
	if err != nil || written == before || written.Remapped {
		hold.Release()
		return err // nothing new, or one that the leader has sent and that was loaded
	}
	err = g.checkSnapshot(ctx, hold, written)
	if ctx.Err() != nil {
		return ctx.Err() // the snapshot before stays on disk: the next Open loads the new one, or that
	}
	hold.Release()
	if err == nil || !disk.IsShortage(err) {
		c.since, c.at = 0, now
	}
	return err
}

// checkSnapshot checks a snapshot, and replaces it by the held one if it cannot be loaded.
func (g *Group) checkSnapshot(ctx context.Context, hold *snapshots.Hold, written *snapshots.Snapshot) error {
	c := &g.snapshotter.checks
	goOn := func() error {
		if !g.snapshotter.keepsLogOfCheck() {
			return errCheckLog
		}
		return ctx.Err()
	}
	if goOn() != nil { // checks have failed, and the log that was kept meanwhile has been deleted
		c.unprotected.Add(1)
		goOn = ctx.Err
	}
	build := c.fits(checkMemoryFactor * written.ImageBytes)
	err := g.snapshots.Check(written, build, goOn)
	switch {
	case errors.Is(err, errCheckLog):
		c.unprotected.Add(1)
		return nil
	case ctx.Err() != nil || disk.IsShortage(err):
		return err
	}
	if c.done.Add(1); !build {
		c.skipped.Add(1)
	}
	c.failed = err != nil
	if err == nil {
		return nil
	}
	c.failures.Add(1)
	first, _ := g.log.FirstIndex()
	restored, restoreErr := hold.Restore(written, first)
	for errors.Is(restoreErr, snapshots.ErrInUse) && goOn() == nil {
		pause(ctx, sentSnapshotPause)
		restored, restoreErr = hold.Restore(written, first)
	}
	g.cfg.Logger.ErrorContext(ctx, "failed to load a snapshot that was just written: keep the member running, back up the partition and report this",
		"error", err, "index", written.Index, "former_snapshot_kept", restored)
	return restoreErr
}

// openFormer opens the storage with the snapshot before the newest one, which cannot be loaded for the given reason, if there is one and
// the log reaches from it to the end of the newest one: a shorter log would lack entries that this replica has acknowledged.
func (g *Group) openFormer(newest *snapshots.Snapshot, serial uint64, reason error) error {
	if newest == nil || disk.IsShortage(reason) {
		return reason
	}
	former, err := snapshots.FindBefore(newest)
	if err != nil || former == nil || !g.log.Covers(former.Index+1, newest.Index, newest.Term) {
		return errors.Join(reason, err)
	}
	if err := g.openSnapshot(former, serial, newest); err != nil {
		return errors.Join(reason, err)
	}
	c := &g.snapshotter.checks
	c.failed = true
	c.failures.Add(1)
	g.cfg.Logger.Error("failed to load the newest snapshot, opened the one before and the log behind it: keep the member running, back up the partition and report this",
		"error", reason, "index", newest.Index, "former_index", former.Index)
	return nil
}

// keepsLog reports whether the next snapshot leaves the log as it is, for the snapshot before it.
func (k *snapshotter) keepsLog() bool { return k.checks.due.Load() && k.keepsLogOfCheck() }

// keepsLogOfCheck reports whether the log behind the snapshot before a checked one is within its bound.
func (k *snapshotter) keepsLogOfCheck() bool {
	return k.total.Load()-k.checks.passedAt <= checkLogFactorMax*uint64(k.g.cfg.Sizes.Snapshot)
}

// fitsMemory reports whether so many bytes more fit into the memory limit of the process.
func fitsMemory(bytes int64) bool {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return true
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())+bytes <= limit/100*checkMemoryPercent
}
