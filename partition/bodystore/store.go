package bodystore

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// SegmentBytesDefault is the default size of a segment: it is closed when the next record would exceed it.
const SegmentBytesDefault = 64 << 20

const (
	cachedTailBytes   = 256 << 10
	flushBytesMin     = 128 << 10 // of records that gather in memory before they are written
	readRangeBytesMax = 4 << 20   // of adjacent records, read at once
	sendRangeBytesMax = 1 << 20
	importBufferBytes = 256 << 10
	// unflushedBytesMax bounds the bodies kept in memory while the disk is full. Far less is committed before
	// the log runs out of space too, except at a start with a long log behind the snapshot: then the replica
	// stops, and a later start replays the log again.
	unflushedBytesMax = 256 << 20
)

// ErrUnwritten means that bodies are still in memory: Flush writes them, unless the disk is full.
var ErrUnwritten = fmt.Errorf("bodies wait in memory for disk space: %w", syscall.ENOSPC)

// Failure is the panic value with which a method that cannot return an error unwinds to the group, which
// stops.
type Failure struct{ Err error }

// Store stores the message bodies of one replica in append-only segment files. It is the fsm.Bodies of
// the machine.
//
//	Append -> tail (memory) -- flush, once 128 KiB have gathered --> active segment (file)
//
// The caller of Append, Release, Read, FlushFull, Flush and Freeze holds the lock of the machine for writing (for Read,
// for reading is enough). The other methods may be called concurrently.
//
// Appends are not synced: the raft log provides durability. A snapshot syncs its segments before it becomes
// valid. After a crash the segments are truncated to the sizes in the newest snapshot, and the log is
// replayed from there. So a segment that a snapshot refers to stays, even without live records, until a newer
// snapshot is on disk.
type Store struct {
	files        disk.FS
	dir          string
	segmentBytes int64
	// fail stops the group: a replica that cannot write to its disk must not continue.
	fail func(error)
	// disk is told when the disk is full; closing is closed when waiting for space is pointless. Both may be
	// nil.
	disk    *disk.Monitor
	closing <-chan struct{}

	unlistedSegments []string // segment files found at open that no snapshot lists

	// tail mirrors the end of the active segment from tailStart on: the bytes not flushed yet, and before
	// them up to cachedTailBytes of flushed ones, because messages just sent are delivered next.
	tail      []byte
	tailStart int64
	// Records and bytes appended since the counts were last merged into the active segment.
	newLive  int
	newBytes int64

	mu       sync.Mutex
	active   *Segment
	segments map[uint32]*Segment
	next     uint32 // number of the next segment
	// A delivery that is read beside apply pins every segment that existed when it was requested: segments
	// that become dead meanwhile wait in deleting.
	pinsIssued   uint64
	pinsReleased uint64
	deleting     []deletingSegment
	created      uint64 // files created since open
	named        uint64 // of these, the first so many have a durable name
	closed       bool
}

// deletingSegment is deleted when all pins up to afterPin are released.
type deletingSegment struct {
	segment  *Segment
	afterPin uint64
}

// Open opens the segments that the newest snapshot lists. It changes nothing on disk:
// TruncateToSnapshot does, after the snapshot was loaded and verified.
func Open(files disk.FS, dir string, segBytes int64, listed []SegmentSize, fail func(error)) (*Store, error) {
	if err := files.MkdirAll(dir, disk.FolderMode); err != nil {
		return nil, fmt.Errorf("open bodies: %w", err)
	}
	b := &Store{files: files, dir: dir, segmentBytes: segBytes, fail: fail, segments: make(map[uint32]*Segment), next: 1}
	for _, s := range listed {
		seg, err := openSegment(files, dir, s)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.segments[s.Number] = seg
	}
	names, err := files.ReadDir(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open bodies: %w", err), b.Close())
	}
	for _, f := range names {
		var number uint32
		if _, err := fmt.Sscanf(f.Name(), "%d.seg", &number); err != nil || !strings.HasSuffix(f.Name(), ".seg") {
			continue
		}
		b.next = max(b.next, number+1)
		if b.segments[number] == nil {
			b.unlistedSegments = append(b.unlistedSegments, filepath.Join(dir, f.Name()))
		}
	}
	return b, nil
}

// TruncateToSnapshot truncates the listed segments to their listed sizes and removes the unlisted ones: their
// records are newer than the snapshot, and replay of the log appends them again.
func (b *Store) TruncateToSnapshot(listed []SegmentSize) error {
	for _, l := range listed {
		if err := b.segments[l.Number].file.Truncate(l.Size); err != nil {
			return fmt.Errorf("truncate segment: %w", err)
		}
	}
	for _, path := range b.unlistedSegments {
		if err := b.files.Remove(path); err != nil {
			return fmt.Errorf("remove segment: %w", err)
		}
	}
	b.unlistedSegments = nil
	return nil
}

// Close closes the files. It does not flush, because the log has all records.
func (b *Store) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	for _, s := range b.segments {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	for _, d := range b.deleting {
		errs = append(errs, d.segment.file.Close(), b.files.Remove(d.segment.path))
	}
	b.deleting = nil
	return errors.Join(errs...)
}

// Append implements fsm.Bodies.
func (b *Store) Append(owner fsm.Owner, body []byte) fsm.Ref {
	size := int64(RecordHeaderBytes + len(body))
	if b.active == nil || (b.end()+size > b.segmentBytes && b.end() > HeaderBytes) {
		if err := b.rotate(); err != nil {
			if !disk.IsShortage(err) {
				// Apply cannot return an error; the panic unwinds to the group, which stops.
				panic(Failure{err})
			}
			if b.active == nil {
				b.beginInMemory()
			}
		}
	}
	at := b.end()
	if at > math.MaxUint32 || len(body) > math.MaxUint32-RecordHeaderBytes {
		panic(Failure{fmt.Errorf("body of %d bytes at %d: too large for a segment", len(body), at)})
	}
	b.tail = appendRecord(b.tail, owner, body)
	b.newLive++
	b.newBytes += size
	return fsm.Ref{Segment: b.active.Number, Offset: uint32(at), Size: uint32(len(body))}
}

// end returns the offset of the next record in the active segment.
func (b *Store) end() int64 { return b.tailStart + int64(len(b.tail)) }

// HasSegment reports whether there is a file for the records of the next Append.
func (b *Store) HasSegment() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active != nil && b.active.file != nil
}

// OpenSegment creates the file for the next Append unless there is one. It does not wait when there is a shortage
// (disk.IsShortage), but fails. The caller holds the machine.
func (b *Store) OpenSegment() error {
	switch {
	case b.active == nil:
		return b.rotate()
	case b.active.file == nil:
		return b.createActive()
	}
	return nil
}

// WaitForSpace waits a short time during a shortage of space or file descriptors; it returns false when the replica is closing.
func (b *Store) WaitForSpace() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitForSpace()
}

// rotate flushes and closes the active segment and creates the next one. Without space or a file descriptor for it the
// active segment, if there is one, stays open and grows beyond its size.
func (b *Store) rotate() error {
	if err := b.flushAll(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.create(b.next)
	if err != nil {
		return err
	}
	if b.active != nil {
		b.active.closed = true
		b.active = nil
		b.collectDead()
	}
	b.next++
	b.begin(s)
	return nil
}

// create creates the file of a segment. During a shortage it tries again after each relief, and does not wait. Called with mu held.
func (b *Store) create(number uint32) (*Segment, error) {
	s, err := createSegment(b.files, b.dir, number)
	for disk.IsShortage(err) && b.disk.Relieve(err) {
		s, err = createSegment(b.files, b.dir, number)
	}
	if err == nil {
		b.created++
	}
	return s, err
}

// begin makes an empty segment the active one. Called with mu held.
func (b *Store) begin(s *Segment) {
	b.segments[s.Number] = s
	b.active = s
	b.tail, b.tailStart = b.tail[:0], HeaderBytes
}

// beginInMemory makes a segment the active one whose file cannot be created yet. Its records stay in the tail until a flush has
// created the file: nobody waits for the file with the lock of the machine.
func (b *Store) beginInMemory() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(&Segment{Number: b.next, path: Path(b.dir, b.next), size: HeaderBytes})
	b.next++
}

// createActive creates the file of a segment that was begun in memory.
func (b *Store) createActive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.create(b.active.Number)
	if err == nil {
		b.active.file = s.file
	}
	return err
}

// waitForSpace releases mu and waits a short time during a shortage; it returns false when the replica
// is closing. Called with mu held.
func (b *Store) waitForSpace() bool {
	if b.disk == nil {
		return false
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	t := time.NewTimer(disk.RetryInterval)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.closing:
		return false
	}
}

// FlushFull calls Flush if enough records have gathered for a write. The others stay in memory: the raft log has them.
func (b *Store) FlushFull() error {
	if b.active == nil || b.end()-b.active.size < flushBytesMin {
		return nil
	}
	return b.Flush()
}

// Flush writes the records appended since the last flush, in one write. During a shortage of space or file descriptors they
// stay in the tail until the next flush, which is no error: the log has them.
func (b *Store) Flush() error {
	err := b.flushAll()
	if disk.IsShortage(err) && b.end()-b.active.size <= unflushedBytesMax {
		return nil
	}
	return err
}

// WriteOut is Flush for callers that need the bytes in the file: during a shortage it fails.
func (b *Store) WriteOut() error { return b.flushAll() }

func (b *Store) flushAll() error {
	if b.active == nil || b.end() == b.active.size {
		return nil
	}
	if b.active.file == nil {
		if err := b.createActive(); err != nil {
			return err
		}
	}
	from := b.active.size
	_, err := b.active.file.WriteAt(b.tail[from-b.tailStart:], from)
	if disk.IsNoSpace(err) && b.disk.ReleaseBallast() {
		_, err = b.active.file.WriteAt(b.tail[from-b.tailStart:], from)
	}
	if err != nil {
		return fmt.Errorf("write segment %s: %w", b.active.path, err)
	}
	b.mu.Lock()
	b.active.size = b.end()
	b.mergeCounts()
	b.mu.Unlock()
	if len(b.tail) > 2*cachedTailBytes {
		cut := len(b.tail) - cachedTailBytes
		b.tailStart += int64(cut)
		if cap(b.tail) > 8*cachedTailBytes {
			b.tail = append(make([]byte, 0, 2*cachedTailBytes), b.tail[cut:]...)
		} else {
			b.tail = b.tail[:copy(b.tail, b.tail[cut:])]
		}
	}
	return nil
}

// mergeCounts adds the appended records to the counts of the active segment. Called with mu held by the
// holder of the machine, so Append itself needs no lock.
func (b *Store) mergeCounts() {
	if b.newLive > 0 {
		b.active.live += b.newLive
		b.active.liveBytes += b.newBytes
		b.newLive, b.newBytes = 0, 0
	}
}

// Release implements fsm.Bodies.
func (b *Store) Release(ref fsm.Ref) {
	if ref.Segment == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mergeCounts()
	s := b.segments[ref.Segment]
	if s == nil || s.live == 0 {
		panic(Failure{fmt.Errorf("release of segment %d at %d, which has no live records", ref.Segment, ref.Offset)})
	}
	s.live--
	s.liveBytes -= RecordBytes(ref)
	if s.live == 0 {
		b.collectDead()
	}
}

// collectDead schedules closed segments without live records and references for deletion. Called with mu
// held.
func (b *Store) collectDead() {
	for n, s := range b.segments {
		if s.closed && s.live == 0 && s.retained == 0 {
			delete(b.segments, n)
			b.deleting = append(b.deleting, deletingSegment{s, b.pinsIssued})
		}
	}
	b.deleteCollected()
}

// deleteCollected deletes the scheduled files that no pin covers. The next open removes a file that could not
// be deleted.
func (b *Store) deleteCollected() {
	b.deleting = slices.DeleteFunc(b.deleting, func(d deletingSegment) bool {
		if d.afterPin > b.pinsReleased {
			return false
		}
		_ = d.segment.file.Close()
		_ = b.files.Remove(d.segment.path)
		return true
	})
}

// createImported creates a segment for bodies received with a snapshot, retained for that snapshot.
func (b *Store) createImported() (*Segment, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := createSegment(b.files, b.dir, b.next)
	if err != nil {
		return nil, err
	}
	b.next++
	b.created++
	s.retained = 1
	b.segments[s.Number] = s
	return s, nil
}

// setSize records the size of an imported segment.
func (b *Store) setSize(s *Segment, size int64) {
	b.mu.Lock()
	s.size = size
	b.mu.Unlock()
}

// closeSegment marks an imported segment as complete.
func (b *Store) closeSegment(s *Segment) {
	b.mu.Lock()
	s.closed = true
	b.mu.Unlock()
}

// Usage returns the bytes of all segments and of the live records in them.
func (b *Store) Usage() (total, live int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.segments {
		total += s.size
		live += s.liveBytes
	}
	return total, live
}

// SegmentCount returns the number of segment files.
func (b *Store) SegmentCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.segments) + len(b.deleting)
}

// OnFullDisk sets the monitor that is told of a full disk, and the channel that is closed when waiting
// for space is pointless.
func (b *Store) OnFullDisk(monitor *disk.Monitor, closing <-chan struct{}) {
	b.disk, b.closing = monitor, closing
}
