package partition

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
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
	// that the check goes on, and a snapshot that cannot be loaded is not replaced by the one before.
	checkLogFactorMax = 2 * snapshotLogFactorMax
	// checkMemoryPercent is the part of the memory limit of the process that may be used while a snapshot is loaded.
	checkMemoryPercent = 90
)

// snapshotChecks decides which snapshots of a replica are loaded, and counts them. The snapshotter uses it, and others read the counters.
type snapshotChecks struct {
	since  int           // snapshots since the last check
	at     time.Duration // Config.Monotonic of the last check, or of the opening
	failed bool          // the last one failed, and the next snapshot is checked too

	// due is set while a snapshot is written that is checked: its digest is needed, and the log is kept.
	due      atomic.Bool
	passedAt uint64 // snapshotter.total at the newest snapshot that was not replaced after a failed check

	done, skipped, failures atomic.Uint64
}

// isDue reports whether the next snapshot is checked. position is that of this replica among so many replicas that take turns.
func (c *snapshotChecks) isDue(now time.Duration, position, replicas int) bool {
	first := 1 + position // the turns of the replicas do not coincide
	if c.done.Load()+c.skipped.Load() > 0 {
		first = replicas
	}
	return c.failed || c.since+1 >= snapshotsPerCheck*first || now-c.at >= snapshotCheckEvery*time.Duration(first)
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

// snapshotAndCheck writes a snapshot, and loads it if it is its turn. A snapshot that cannot be loaded is replaced by the one before, if the log
// reaches back to that.
func (g *Group) snapshotAndCheck(ctx context.Context) error {
	c := &g.snapshotter.checks
	now := g.cfg.Monotonic()
	position, replicas, ok := g.checkTurn()
	if !ok || !c.isDue(now, position, replicas) {
		c.since++
		return g.Snapshot(ctx)
	}
	before, _ := g.snapshots.Newest()
	if !c.failed {
		c.passedAt = g.snapshotter.totalAtSnapshot.Load()
	}
	hold := g.snapshots.Hold()
	defer hold.Release()
	c.due.Store(true)
	err := g.Snapshot(ctx)
	c.due.Store(false)
	written, _ := g.snapshots.Newest()
	if err != nil || written == before || written.Remapped {
		return err // nothing new, or one that the leader has sent and that was loaded
	}
	release, err := g.cfg.Log.AcquireSnapshotCheck(ctx)
	if err != nil {
		return err
	}
	defer release()
	c.since, c.at = 0, now
	if !fitsMemory(checkMemoryFactor * written.ImageBytes) {
		c.skipped.Add(1)
		err = g.snapshots.CheckBytes(written)
	} else {
		c.done.Add(1)
		err = g.snapshots.Check(written)
	}
	c.failed = err != nil
	if err == nil {
		return nil
	}
	c.failures.Add(1)
	first, _ := g.log.FirstIndex()
	restored, restoreErr := hold.Restore(written, first)
	g.cfg.Logger.ErrorContext(ctx, "failed to load a snapshot that was just written: keep the member running, back up the partition and report this",
		"error", err, "index", written.Index, "former_snapshot_kept", restored)
	return restoreErr
}

// keepsLog reports whether the next snapshot leaves the log as it is, for the snapshot before it.
func (k *snapshotter) keepsLog() bool {
	return k.checks.due.Load() && k.total.Load()-k.checks.passedAt <= checkLogFactorMax*uint64(k.g.cfg.Sizes.Snapshot)
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
