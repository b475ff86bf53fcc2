package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/snapshots"
)

const (
	// logMarkBytes is the distance, in bytes of log, between two marks that the snapshotter keeps.
	logMarkBytes = 1 << 20
	// lowDiskSnapshotInterval is the interval at which a read-only member writes snapshots of groups from
	// which messages were consumed: bodies are deleted only with the next snapshot.
	lowDiskSnapshotInterval = 5 * time.Second
	lowDiskSnapshotBytesMin = 1 << 20 // of dead bodies or log that make a snapshot worthwhile
	// snapshotLogFactorMax bounds the bytes of log between two snapshots of a group whose image is large, as a
	// multiple of Sizes.Snapshot.
	snapshotLogFactorMax = 4
)

// snapshotter decides when a snapshot is due: after as many bytes of log as dueAfter returns, or after
// Timing.SnapshotEvery with changes. Raft counts entries instead, and entries here have between 100 B and 512
// KiB.
type snapshotter struct {
	g    *Group
	wake chan struct{}
	late chan struct{} // has a value if a follower has refused a snapshot because it has a newer one

	total           atomic.Uint64 // bytes of log applied since open
	totalAtSnapshot atomic.Uint64 // total when the newest snapshot was frozen

	checks snapshotChecks

	mu    sync.Mutex
	marks []logMark // one per logMarkBytes, oldest first
}

// logMark records that the log up to index has total bytes.
type logMark struct{ index, total uint64 }

func (k *snapshotter) init(g *Group) {
	k.g, k.wake, k.late, k.checks.fits = g, make(chan struct{}, 1), make(chan struct{}, 1), fitsMemory
}

// noteRefused is called with the error of a follower that has not taken a snapshot. If it has a newer one, and raft asks for entries
// before both, raft would send it the older one again and again: a snapshot of now is at least as new.
func (k *snapshotter) noteRefused(err error) {
	if snapshots.IsOlder(err) {
		notify(k.late)
	}
}

// countEntry counts an applied entry and wakes run when a snapshot is due.
func (k *snapshotter) countEntry(index uint64, size int) {
	before := k.total.Load()
	total := before + uint64(size) + raftlog.EntryOverhead
	k.total.Store(total)
	if before/logMarkBytes != total/logMarkBytes {
		k.mu.Lock()
		k.marks = append(k.marks, logMark{index, total})
		if keep := int(k.g.cfg.Sizes.Trailing/logMarkBytes) + 2; len(k.marks) > 2*keep {
			k.marks = append(k.marks[:0], k.marks[len(k.marks)-keep:]...)
		}
		k.mu.Unlock()
	}
	if total-k.totalAtSnapshot.Load() >= k.dueAfter() {
		notify(k.wake)
	}
}

// dueAfter returns the bytes of log after which a snapshot is due.
func (k *snapshotter) dueAfter() uint64 {
	return snapshotDueAfter(k.g.cfg.Sizes.Snapshot, k.g.snapshots.ImageBytes())
}

// snapshotDueAfter returns the bytes of log after which a snapshot is due: least (Sizes.Snapshot), or as many as the newest
// image has, so that images are not written much faster than the log, but at most snapshotLogFactorMax times least, because a
// restart replays them.
func snapshotDueAfter(least, image int64) uint64 {
	return uint64(min(max(least, image), snapshotLogFactorMax*least))
}

// mark returns the argument for saved.
func (k *snapshotter) mark() uint64 { return k.total.Load() }

// saved records that a snapshot frozen at that mark is on disk.
func (k *snapshotter) saved(mark uint64) { k.totalAtSnapshot.Store(mark) }

// trailingEntries returns the number of entries in the last Sizes.Trailing bytes. If no more than that was applied
// since open, it is at least trailingEntriesUnknown: the sizes of the entries before are not known, but there are not
// more of them than fitted when they were written.
//
// It is never less than trailingEntriesMin. A follower whose log contradicts the leader's behind its last snapshot gets
// snapshots without end if the leader's log does not reach back to where the two agree (docs/raft-notes.md). The
// leader may have 4 commands in flight, the follower may have 4 of another leader, and each leadership adds an entry
// or two of raft's own.
func (k *snapshotter) trailingEntries() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	total, last := k.total.Load(), k.g.applied.Load()
	for i, m := range k.marks {
		if total-m.total > uint64(k.g.cfg.Sizes.Trailing) {
			continue
		}
		entries := max(trailingEntriesMin, last-min(last, m.index))
		if i == 0 && total <= uint64(k.g.cfg.Sizes.Trailing) {
			entries = max(entries, trailingEntriesUnknown)
		}
		return entries
	}
	if total <= uint64(k.g.cfg.Sizes.Trailing) {
		return trailingEntriesUnknown
	}
	return trailingEntriesMin
}

func (k *snapshotter) run(ctx context.Context) {
	timer := time.NewTimer(k.g.cfg.Timing.SnapshotEvery)
	defer timer.Stop()
	short := time.NewTicker(lowDiskSnapshotInterval)
	defer short.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-short.C:
			if err := k.g.log.DeleteKept(); err != nil {
				k.g.cfg.Logger.WarnContext(ctx, "failed to delete the log behind a sent snapshot", "error", err)
			}
			if !k.freesSpace() {
				continue
			}
		case <-k.wake:
			if k.total.Load()-k.totalAtSnapshot.Load() < k.dueAfter() {
				continue
			}
		case <-k.late:
		case <-timer.C:
			timer.Reset(k.g.cfg.Timing.SnapshotEvery)
			if k.total.Load() == k.totalAtSnapshot.Load() {
				continue
			}
		}
		if err := k.g.snapshotAndCheck(ctx); err != nil && ctx.Err() == nil && k.g.halted() == nil {
			k.g.cfg.Logger.WarnContext(ctx, "failed to write snapshot", "error", err)
			pause(ctx, time.Second)
		}
		k.g.compact(ctx)
		timer.Reset(k.g.cfg.Timing.SnapshotEvery)
	}
}

// freesSpace reports whether the member is low on disk space and a snapshot would free some: dead bodies stay
// until the next snapshot.
func (k *snapshotter) freesSpace() bool {
	if !k.g.cfg.Log.Disk().IsReadOnly() {
		return false
	}
	all, live := k.g.bodies.Usage()
	since := k.total.Load() - k.totalAtSnapshot.Load()
	return since >= lowDiskSnapshotBytesMin || since > 0 && all-live >= lowDiskSnapshotBytesMin
}

// Snapshot writes a snapshot now and lets raft compact its log up to it. One group of a member writes at a
// time; the others wait.
func (g *Group) Snapshot(ctx context.Context) error {
	release, err := g.cfg.Log.AcquireSnapshot(ctx)
	if err != nil {
		return fmt.Errorf("snapshot of group %d: %w", g.cfg.ID, err)
	}
	defer release()
	r := g.instance.Load().raft
	conf := r.ReloadableConfig()
	conf.TrailingLogs = g.snapshotter.trailingEntries()
	if g.snapshotter.keepsLog() {
		conf.TrailingLogs = allEntries
	}
	if err := r.ReloadConfig(conf); err != nil {
		return fmt.Errorf("snapshot of group %d: %w", g.cfg.ID, err)
	}
	err = r.Snapshot().Error()
	g.snapshots.EndOwn()
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) || snapshots.IsOlder(err) {
		return nil
	}
	return fmt.Errorf("snapshot of group %d: %w", g.cfg.ID, mapRaftError(err))
}

// logKeptFrom returns the index from which on the log must not be deleted yet, snapshots.LogKeptNone for none. A member that is
// short of disk space keeps nothing.
func (g *Group) logKeptFrom() uint64 {
	if g.cfg.Log.Disk().IsReadOnly() {
		return snapshots.LogKeptNone
	}
	return g.snapshots.LogKeptFrom(time.Now())
}
