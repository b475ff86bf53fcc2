package raftlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/histogram"
	"github.com/peeklock/peeklock/partition/journal"
)

// The limits of the shared log.
const (
	logIndexBits           = 40                  // of a key; the 24 bits above are the group
	IndexMax               = 1<<logIndexBits - 1 // entries of one group in its lifetime
	groupMax               = 1<<24 - 1
	logDeleteEntriesMax    = 512     // deleted in one transaction: appends wait for it
	logCommitBytesMax      = 8 << 20 // appended in one transaction
	logAppendBytesMax      = 1 << 20 // of one group in one transaction, unless one entry is larger: other groups wait for it
	logMapBytes            = 1 << 30 // address space reserved at once, so that growth rarely remaps
	concurrentSnapshotsMax = 1       // of all groups of a member: each writes in bulk
	logLockTimeout         = time.Second
	EntryOverhead          = 64 // bytes of an entry besides its data, approximately
)

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

// logWrite is one append or one deletion that waits for its transaction.
type logWrite struct {
	entries []*raft.Log // keys already shifted
	bytes   int
	min     uint64 // deletion, when entries is nil
	max     uint64
	last    uint64 // index of the last entry
	err     error
	// turn receives true when this write must run the next transaction, false when another writer has done
	// it. It is nil if nobody waits for the write.
	turn chan bool
	// behind is the group to which the end of a write is reported for which nobody waits.
	behind *Group
}

// Config configures a log.
type Config struct {
	Path string
	// FS holds the folder of the log and all that the groups store beside it; nil means the operating system's.
	FS disk.FS
	// OpenStore opens the store of entries; nil means a bbolt file, for which FS is not used.
	OpenStore OpenStore
	// Kind is where the entries are; empty means Journal. A log keeps the kind that it was created with.
	Kind Kind
	// SegmentBytes is the size of a segment of a journal; 0 means journal.SegmentBytesDefault.
	SegmentBytes int
	// Logger gets later events, as of a full disk.
	Logger *slog.Logger

	cutUndecided bool // see CutUndecided
}

// Open opens the log and creates it if needed. It returns an error within a second if another process has it
// open, and one that wraps ErrOtherKind if its entries are elsewhere.
func Open(cfg Config) (*Log, error) {
	dir := filepath.Dir(cfg.Path)
	values, ranges, err := openValues(&cfg)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", cfg.Path, err)
	}
	store, ranges, err := openKind(&cfg, values, ranges)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", cfg.Path, err), values.Close())
	}
	l := &Log{
		path:          cfg.Path,
		files:         cfg.FS,
		store:         store,
		diskSpace:     disk.NewMonitor(cfg.FS, dir, cfg.Logger),
		snapshotSlots: make(chan struct{}, concurrentSnapshotsMax), checkSlot: make(chan struct{}, 1),
		groups: make(map[fsm.PartitionID]*Group),
		failed: make(map[*Group]error),
		ranges: ranges,
	}
	if s, ok := store.(*journalStore); ok {
		l.journal = s.journal
	}
	if err := l.acceptLoss(); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", cfg.Path, err), l.Close())
	}
	return l, nil
}

// openValues fills in the defaults of a configuration and opens the raft-boltdb file, or creates it. The ranges are those of the
// entries in it.
func openValues(cfg *Config) (Store, map[fsm.PartitionID]IndexRange, error) {
	if cfg.FS == nil {
		cfg.FS = disk.OS{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Kind = cmp.Or(cfg.Kind, Journal)
	dir := filepath.Dir(cfg.Path)
	if err := cfg.FS.MkdirAll(dir, disk.FolderMode); err != nil {
		return nil, nil, err
	}
	open := cfg.OpenStore
	if open == nil {
		open = func(string) (Store, map[fsm.PartitionID]IndexRange, error) { return openBolt(cfg) }
	}
	values, ranges, err := open(cfg.Path)
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.FS.SyncFolder(dir); err != nil {
		return nil, nil, errors.Join(err, values.Close())
	}
	return values, ranges, nil
}

// FS returns the file system that holds the folder of the log.
func (l *Log) FS() disk.FS { return l.files }

// Disk returns the monitor of the disk space of the log's file system.
func (l *Log) Disk() *disk.Monitor { return l.diskSpace }

// WrapStore replaces the store of entries by a wrapper of it, before any group is opened. It is for
// tests that inject faults.
func (l *Log) WrapStore(wrap func(Store) Store) { l.store = wrap(l.store) }

// Close closes the file. The groups must have been closed before.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.diskSpace.Close()
	if err := l.store.Close(); err != nil {
		return fmt.Errorf("close log %s: %w", l.path, err)
	}
	return nil
}

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

// Forget removes all data of a group: its entries, its term and its vote. The group must be closed, and its
// replica number must never be used again. An interrupted Forget can be repeated.
func (l *Log) Forget(id fsm.PartitionID) error {
	g, err := l.Group(id)
	if err != nil {
		return err
	}
	err = g.forgetDamage()
	if err == nil {
		err = g.clear()
	}
	if err != nil {
		return fmt.Errorf("forget group %d: %w", id, err)
	}
	for _, key := range []string{keyTerm, keyVote} {
		if err := g.put(key, nil); err != nil {
			return fmt.Errorf("forget group %d: %w", id, err)
		}
	}
	l.mu.Lock()
	delete(l.groups, id)
	l.mu.Unlock()
	// Last: from now on another replica of the group may use the range.
	if err := g.put(keyReplica, nil); err != nil {
		return fmt.Errorf("forget group %d: %w", id, err)
	}
	return l.acceptLoss()
}

// StopDamaged stops the replicas that run and of which entries were found damaged: not every entry is read by the replica.
func (l *Log) StopDamaged() {
	if l.journal == nil {
		return
	}
	l.mu.Lock()
	groups := maps.Clone(l.groups)
	l.mu.Unlock()
	for id, g := range groups {
		if err := l.journal.Damage(uint32(id)); err != nil && g.instanceClosed.Load() != nil {
			g.fail(fmt.Errorf("log of group %d: %w: %w", id, ErrDamaged, err))
		}
	}
}

// acceptLoss lets the journal free what it could not read, once no replica has a log there.
func (l *Log) acceptLoss() error {
	if l.journal == nil || l.journal.Lost() == nil {
		return nil
	}
	damaged, err := damagedOwners(l.store, l.journal)
	if err == nil && len(damaged) == 0 {
		l.journal.Accept()
	}
	return err
}

// Group returns the log of one group.
func (l *Log) Group(id fsm.PartitionID) (*Group, error) {
	if id > groupMax {
		return nil, fmt.Errorf("group %d: the log holds groups up to %d", id, groupMax)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[id]
	if g == nil {
		x := l.ranges[id]
		delete(l.ranges, id)
		g = &Group{log: l, id: id, first: x.First, last: x.Last, cache: entryCache{total: &l.cached}, deletes: make(chan struct{}, 1)}
		g.storedBelow.Store(math.MaxUint64)
		l.groups[id] = g
	}
	return g, nil
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

// AcquireSnapshotCheck waits for the slot in which one snapshot of the member is loaded to be checked; release returns it.
func (l *Log) AcquireSnapshotCheck(ctx context.Context) (release func(), err error) {
	select {
	case l.checkSlot <- struct{}{}:
		return func() { <-l.checkSlot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write executes w, in a transaction of its own or with other writes.
func (l *Log) write(w *logWrite) error {
	w.turn = make(chan bool, 1)
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	if l.writing {
		l.mu.Unlock()
		if lead := <-w.turn; !lead {
			return w.err
		}
		l.mu.Lock()
	}
	l.writing = true
	l.mu.Unlock()
	l.commitNext(w)
	return w.err
}

// enqueue queues a write for which nobody waits, or returns the error of an earlier one of its group.
func (l *Log) enqueue(w *logWrite) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failed[w.behind]; err != nil {
		return err
	}
	l.waiting = append(l.waiting, w)
	if !l.writing {
		l.writing = true
		go l.writeBehind()
	}
	return nil
}

// accept permits a group to write again after a write failed for which nobody waited.
func (l *Log) accept(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, g)
}

// writeBehind runs transactions until a writer that waits for one can run the next.
func (l *Log) writeBehind() {
	for l.commitNext(nil) {
	}
}

// commitNext runs the next transaction, which has the write of the caller, if that waits for one. It reports whether a caller
// that waits for none has to run one more.
func (l *Log) commitNext(own *logWrite) (again bool) {
	l.mu.Lock()
	batch := l.nextBatch()
	l.mu.Unlock()
	err := l.commit(batch)
	l.mu.Lock()
	if err != nil {
		batch = append(batch, l.dropBehind(batch, err)...)
	}
	switch {
	case len(l.waiting) == 0:
		l.writing = false
	case l.waiting[0].turn != nil:
		l.waiting[0].turn <- true
	case own == nil:
		again = true
	default:
		go l.writeBehind()
	}
	l.mu.Unlock()
	for _, w := range batch {
		w.err = err
		switch {
		case w.behind != nil:
			w.behind.wrote(w)
		case w != own:
			w.turn <- false
		}
	}
	return again
}

// dropBehind removes the queued writes of groups that had a write in the batch for which nobody waits, because a log has no
// gaps; these groups take no more. Called with mu held.
func (l *Log) dropBehind(batch []*logWrite, err error) (dropped []*logWrite) {
	for _, w := range batch {
		if w.behind != nil {
			l.failed[w.behind] = err
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w *logWrite) bool {
		drop := w.behind != nil && l.failed[w.behind] != nil
		if drop {
			dropped = append(dropped, w)
		}
		return drop
	})
	return dropped
}

// nextBatch removes the writes of the next transaction from the queue: appends together, a deletion alone.
// Called with mu held.
func (l *Log) nextBatch() []*logWrite {
	n, size := 0, 0
	for n < len(l.waiting) {
		w := l.waiting[n]
		if n > 0 && (w.entries == nil || size+w.bytes > logCommitBytesMax) {
			break
		}
		n++
		size += w.bytes
		if w.entries == nil {
			break
		}
	}
	batch := append([]*logWrite(nil), l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// commit runs one transaction.
func (l *Log) commit(batch []*logWrite) error {
	start := time.Now()
	l.started.Store(start.UnixNano())
	defer func() {
		l.started.Store(0)
		took := time.Since(start)
		l.commitTimes.Observe(took)
		l.latencies.add(start.Add(took), took)
		if int64(took) > l.slowest.Load() {
			l.slowest.Store(int64(took))
		}
	}()
	l.commits.Add(1)
	if batch[0].entries == nil {
		return l.transact(func() error { return l.store.DeleteRange(batch[0].min, batch[0].max) })
	}
	// A leader that does not wait can have several writes in a batch, and the journal takes the entries of a group one after the other.
	slices.SortStableFunc(batch, func(a, b *logWrite) int {
		return cmp.Compare(a.entries[0].Index>>logIndexBits, b.entries[0].Index>>logIndexBits)
	})
	entries := batch[0].entries
	size := batch[0].bytes
	for _, w := range batch[1:] {
		entries = append(entries, w.entries...)
		size += w.bytes
	}
	l.entries.Add(uint64(len(entries)))
	l.bytes.Add(uint64(size))
	return l.transact(func() error { return l.store.StoreLogs(entries) })
}

// transact runs one transaction, and once more if deleting the ballast has freed space. After any error other
// than a full disk the content of the file is unknown: the log accepts no further writes, and all groups
// stop.
func (l *Log) transact(run func() error) error {
	if err := l.writeErr.Load(); err != nil {
		return *err
	}
	err := run()
	if disk.IsRetriableWrite(err) && l.diskSpace.Relieve(err) {
		err = run()
	}
	if err != nil && !disk.IsRetriableWrite(err) {
		err = fmt.Errorf("log %s accepts no more writes: %w", l.path, err)
		l.writeErr.CompareAndSwap(nil, &err)
	}
	return err
}

// DiskSpace returns the disk space as measured within the last second; zeros before the first group is
// opened.
func (l *Log) DiskSpace() disk.Space { return l.diskSpace.Space() }

// SetLowMemory makes every leader of the log's groups refuse commands that make data grow, as if disk space
// were low: messages that wait in queues use memory on each replica.
func (l *Log) SetLowMemory(on bool) { l.diskSpace.SetLowMemory(on) }
