package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of the shared log.
const (
	logIndexBits           = 40                  // of a key; the group takes the 24 above
	logIndexMax            = 1<<logIndexBits - 1 // entries of one group in its whole life
	logGroupMax            = 1<<24 - 1
	logDeleteEntriesMax    = 512     // deleted in one transaction: appends wait for it
	logCommitBytesMax      = 8 << 20 // appended in one transaction
	logAppendBytesMax      = 1 << 20 // of one group in one transaction, unless one entry is larger: the others wait for it
	logMapBytes            = 1 << 30 // address space taken at once, so that growing rarely remaps
	logFileMode            = 0o600   // nobody but the member reads its log
	logFolderMode          = 0o700   //
	concurrentSnapshotsMax = 1       // of all groups of a member: they write in bulk
	logLockTimeout         = time.Second
	logEntryOverhead       = 64 // bytes an entry takes beside its data, about
)

// errFolderInUse says that another process holds the file lock of the log.
var errFolderInUse = errors.New("data folder is in use by another process")

// Log is the one raft-boltdb file of a member, shared by all its groups. Entry i of
// group g lies under index g<<40 | i. Appends of groups that come at the same time
// share one transaction and thus one fsync (3.8 times the commits of one file per
// group at 64 groups).
//
// There is no committer goroutine: whoever comes while nobody writes does the
// transaction itself, for itself; those who come meanwhile wait in a row, and the
// first of them does the next transaction for all of them. At low load an append
// thus costs no change of goroutine at all.
//
// All methods may be called concurrently.
type Log struct {
	path      string
	store     logStore
	logger    *slog.Logger
	diskSpace *diskSpace
	writeErr  atomic.Pointer[error] // why nothing more is written

	// snapshots has room for those that may write a snapshot now.
	snapshotSlots chan struct{}

	mu      sync.Mutex
	writing bool
	waiting []*logWrite
	groups  map[fsm.PartitionID]*groupLog
	ranges  map[fsm.PartitionID]logRange // found on disk, not yet opened
	closed  bool

	started     atomic.Int64 // unix nanoseconds of the running transaction, 0 when none runs
	commits     atomic.Uint64
	entries     atomic.Uint64
	bytes       atomic.Uint64
	slowest     atomic.Int64
	commitTimes Histogram // of transactions
}

// logStore is what the log needs of raft-boltdb.
type logStore interface {
	GetLog(index uint64, out *raft.Log) error
	StoreLogs(entries []*raft.Log) error
	DeleteRange(low, high uint64) error
	Set(key, value []byte) error
	Get(key []byte) ([]byte, error)
	Close() error
}

// logRange is what a group has in the file: the first and last index, 0 when nothing.
type logRange struct{ first, last uint64 }

// LogStats are the figures a watchdog looks at.
type LogStats struct {
	Commits uint64        // transactions since OpenLog
	Entries uint64        // entries appended since OpenLog
	Bytes   uint64        // bytes appended since OpenLog
	Slowest time.Duration // longest transaction since OpenLog
	// Stalled is how long the running transaction has been running, 0 when none is.
	// Over two seconds the disk is in trouble: leaders here should move away.
	Stalled time.Duration
	// Took is how long transactions took, the sync of the disk included.
	CommitTimes Durations
	// FileBytes is the size of the file, which never shrinks: room inside is used again.
	FileBytes int64
}

// logWrite is one append or one deletion that waits for its transaction.
type logWrite struct {
	entries []*raft.Log // keys already shifted
	bytes   int
	min     uint64 // deletion, when entries is nil
	max     uint64
	err     error
	// turn gets true when this write leads the next transaction, false when another
	// has done it.
	turn chan bool
}

// OpenLog opens the log file, or makes it. A file that another process has open is an
// error within a second. The logger is for what goes wrong later.
func OpenLog(path string, logger *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), logFolderMode); err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	extents, err := scanLog(path)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		Timeout:         logLockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true,
		InitialMmapSize: logMapBytes,
	}})
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, explainLockError(err))
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", path, err), store.Close())
	}
	return &Log{
		path:          path,
		store:         store,
		logger:        logger,
		diskSpace:     newDiskSpace(filepath.Dir(path), logger),
		snapshotSlots: make(chan struct{}, concurrentSnapshotsMax),
		groups:        make(map[fsm.PartitionID]*groupLog),
		ranges:        extents,
	}, nil
}

// explainLockError turns bbolt's "timeout" into words that say what to do.
func explainLockError(err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return errFolderInUse
	}
	return err
}

// Close closes the file. The groups must have been closed before.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.diskSpace.close()
	if err := l.store.Close(); err != nil {
		return fmt.Errorf("close log %s: %w", l.path, err)
	}
	return nil
}

// Stats returns the figures.
func (l *Log) Stats() LogStats {
	s := LogStats{
		Commits:     l.commits.Load(),
		Entries:     l.entries.Load(),
		Bytes:       l.bytes.Load(),
		Slowest:     time.Duration(l.slowest.Load()),
		CommitTimes: l.commitTimes.Durations(),
	}
	if info, err := os.Stat(l.path); err == nil {
		s.FileBytes = info.Size()
	}
	if at := l.started.Load(); at != 0 {
		s.Stalled = time.Since(time.Unix(0, at))
	}
	return s
}

// Forget removes everything of a group: its entries, its term and its vote. The group
// must be closed, and its replica number must never come back. A Forget that was
// interrupted is simply repeated.
func (l *Log) Forget(id fsm.PartitionID) error {
	g, err := l.group(id)
	if err != nil {
		return err
	}
	if err := g.clear(); err != nil {
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
	return nil
}

// group returns the part of one group.
func (l *Log) group(id fsm.PartitionID) (*groupLog, error) {
	if id > logGroupMax {
		return nil, fmt.Errorf("group %d: the log holds groups up to %d", id, logGroupMax)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[id]
	if g == nil {
		x := l.ranges[id]
		delete(l.ranges, id)
		g = &groupLog{log: l, id: id, first: x.first, last: x.last}
		l.groups[id] = g
	}
	return g, nil
}

// acquireSnapshot waits for the right to write a snapshot; release gives it back.
func (l *Log) acquireSnapshot(ctx context.Context) (release func(), err error) {
	select {
	case l.snapshotSlots <- struct{}{}:
		return func() { <-l.snapshotSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write performs w: in a transaction of its own, or in one with others.
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
	batch := l.nextBatch()
	l.mu.Unlock()

	err := l.commit(batch)
	for _, o := range batch {
		o.err = err
	}

	l.mu.Lock()
	if len(l.waiting) > 0 {
		l.waiting[0].turn <- true
	} else {
		l.writing = false
	}
	l.mu.Unlock()
	for _, o := range batch {
		if o != w {
			o.turn <- false
		}
	}
	return err
}

// nextBatch removes from the row what goes into the next transaction: appends together, a
// deletion alone. Called with mu held.
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
		if int64(took) > l.slowest.Load() {
			l.slowest.Store(int64(took))
		}
	}()
	l.commits.Add(1)
	if batch[0].entries == nil {
		return l.transact(func() error { return l.store.DeleteRange(batch[0].min, batch[0].max) })
	}
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

// transact does one transaction, a second time if that got it room. When one ends with
// anything but a full disk, what lies in the file is not known any more: no other follows,
// and all groups stop.
func (l *Log) transact(run func() error) error {
	if err := l.writeErr.Load(); err != nil {
		return *err
	}
	err := run()
	if isRetriable(err) && l.diskSpace.releaseBallast() {
		err = run()
	}
	if err != nil && !isRetriable(err) {
		err = fmt.Errorf("log %s takes nothing more: %w", l.path, err)
		l.writeErr.CompareAndSwap(nil, &err)
	}
	return err
}

// scanLog reads which groups have entries, straight from the file: raft-boltdb knows
// only one log. Keys are big endian, so each group is one range.
func scanLog(path string) (map[fsm.PartitionID]logRange, error) {
	found := make(map[fsm.PartitionID]logRange)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	db, err := bbolt.Open(path, logFileMode, &bbolt.Options{ReadOnly: true, Timeout: logLockTimeout})
	if err != nil {
		return nil, explainLockError(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("logs"))
		if b == nil {
			return nil
		}
		c := b.Cursor()
		k, _ := c.First()
		for k != nil {
			first := keyIndex(k)
			group := first >> logIndexBits
			next, _ := c.Seek(indexKey((group + 1) << logIndexBits))
			var last []byte
			if next == nil {
				last, _ = c.Last()
			} else {
				last, _ = c.Prev()
			}
			found[fsm.PartitionID(group)] = logRange{first & logIndexMax, keyIndex(last) & logIndexMax}
			k = next
		}
		return nil
	})
	return found, errors.Join(err, db.Close())
}
