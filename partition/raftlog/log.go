package raftlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/histogram"
	"github.com/peeklock/peeklock/partition/journal"
)

const concurrentSnapshotsMax = 1 // of all groups of a member: each writes in bulk

// Log is the log of a member, shared by all its groups: a raft-boltdb file, which holds the entries too unless
// they are in a journal (Kind). Entry i of group g is stored under
// index g<<40 | i. Concurrent appends of several groups share one transaction and thus one fsync (3.8 times
// the commits of one file per group, at 64 groups).
//
// There is no committer goroutine: a writer that finds no transaction running does its own; writers that
// arrive meanwhile queue, and the first of them does the next transaction for all of them. So an append at
// low load needs no switch of goroutines. Only the writes of leaders, which do not wait for them, need a goroutine, which ends
// when it has no more of them.
//
// All methods may be called concurrently.
type Log struct {
	path      string
	files     disk.FS
	store     Store
	journal   *journal.Journal // has the entries; nil if the store has them
	diskSpace *disk.Monitor
	writeErr  atomic.Pointer[error] // why nothing more is written

	// snapshotSlots is the semaphore of groups that may write a snapshot.
	snapshotSlots chan struct{}
	// checkSlot is the semaphore of groups that may load a snapshot to check it.
	checkSlot chan struct{}

	mu      sync.Mutex
	writing bool
	waiting []*logWrite
	failed  map[*Group]error // groups of which a write failed for which nobody waited
	groups  map[fsm.PartitionID]*Group
	ranges  map[fsm.PartitionID]IndexRange // ranges found on disk, of groups not yet opened
	closed  bool

	cached   atomic.Int64 // bytes of entries in the caches of all groups
	appended atomic.Int64 // bytes of entries that were put into them since Open
	trimming sync.Mutex   // held while trimCaches runs

	started     atomic.Int64 // start of the running transaction in Unix nanoseconds, 0 when none runs
	commits     atomic.Uint64
	entries     atomic.Uint64
	bytes       atomic.Uint64
	slowest     atomic.Int64
	commitTimes histogram.Histogram // of transactions, the sync included
	latencies   latencies           // of the same
}

// Stats are statistics of the log, for metrics and health checks.
type Stats struct {
	Commits uint64        // transactions since Open
	Entries uint64        // entries appended since Open
	Bytes   uint64        // bytes appended since Open
	Slowest time.Duration // longest transaction since Open
	// Stalled is the age of the running transaction, 0 when none runs.
	Stalled time.Duration
	// CommitTimes are the durations of transactions, the sync of the disk included.
	CommitTimes histogram.Durations
	// FileBytes is the size of the file, which never shrinks because free pages are reused, and of the segments of
	// the journal.
	FileBytes int64
}

// ErrDamaged means that entries of a group cannot be read. Its replica may have confirmed them, so another one, under another
// name, has to take its place. It wraps disk.ErrDamaged.
var ErrDamaged = fmt.Errorf("the log of the replica: %w", disk.ErrDamaged)

// FS returns the file system that holds the folder of the log.
func (l *Log) FS() disk.FS { return l.files }

// Disk returns the monitor of the disk space of the log's file system.
func (l *Log) Disk() *disk.Monitor { return l.diskSpace }

// WrapStore replaces the store of entries by a wrapper of it, before any group is opened. It is for
// tests that inject faults.
func (l *Log) WrapStore(wrap func(Store) Store) { l.store = wrap(l.store) }

// Stats returns the statistics of the log.
func (l *Log) Stats() Stats {
	s := Stats{
		Commits:     l.commits.Load(),
		Entries:     l.entries.Load(),
		Bytes:       l.bytes.Load(),
		Slowest:     time.Duration(l.slowest.Load()),
		CommitTimes: l.commitTimes.Durations(),
	}
	if info, err := l.files.Stat(l.path); err == nil {
		s.FileBytes = info.Size()
	}
	if l.journal != nil {
		s.FileBytes += l.journal.Bytes()
	}
	if at := l.started.Load(); at != 0 {
		s.Stalled = time.Since(time.Unix(0, at))
	}
	return s
}

// AcquireSnapshot waits for a slot to write a snapshot; release returns it.
func (l *Log) AcquireSnapshot(ctx context.Context) (release func(), err error) {
	select {
	case l.snapshotSlots <- struct{}{}:
		return func() { <-l.snapshotSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AcquireSnapshotCheck takes the slot in which one snapshot of the member is checked, if it is free; release returns it.
func (l *Log) AcquireSnapshotCheck() (release func(), ok bool) {
	select {
	case l.checkSlot <- struct{}{}:
		return func() { <-l.checkSlot }, true
	default:
		return nil, false
	}
}

// DiskSpace returns the disk space as measured within the last second; zeros before the first group is
// opened.
func (l *Log) DiskSpace() disk.Space { return l.diskSpace.Space() }

// SetLowMemory makes every leader of the log's groups refuse commands that make data grow, as if disk space
// were low: messages that wait in queues use memory on each replica.
func (l *Log) SetLowMemory(on bool) { l.diskSpace.SetLowMemory(on) }

// Latency returns how long writes take now.
func (l *Log) Latency() Latency {
	now := Latency{Median: l.latencies.median()}
	if at := l.started.Load(); at != 0 {
		now.Oldest = time.Since(time.Unix(0, at))
	}
	return now
}

// trimCaches drops entries when the caches of all groups exceed logCacheBytesMax: groups to which nothing was appended
// while that much was appended to others keep nothing, the others share half of it.
func (l *Log) trimCaches() {
	if l.cached.Load() <= logCacheBytesMax || !l.trimming.TryLock() {
		return
	}
	defer l.trimming.Unlock()
	l.mu.Lock()
	groups := slices.Collect(maps.Values(l.groups))
	l.mu.Unlock()
	now, busy := l.appended.Load(), 0
	isBusy := func(g *Group) bool { return now-g.appendedAt.Load() <= logCacheBytesMax }
	for _, g := range groups {
		if isBusy(g) {
			busy++
		}
	}
	for _, g := range groups {
		share := 0
		if isBusy(g) {
			share = logCacheBytesMax / 2 / busy
		}
		g.mu.Lock()
		g.cache.shrink(share, g.storedBelow.Load()) // what is not on disk yet is read from here
		g.mu.Unlock()
	}
}
