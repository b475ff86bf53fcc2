package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
)

const (
	// SegmentBytesDefault is the size of a segment: half of the default ballast, so that deleting the ballast makes
	// space for one.
	SegmentBytesDefault = 32 << 20
	segmentBytesMin     = 4 * sectorBytes
	batchBytesMax       = 1 << 30 // of one append
	batchKeptBytesMax   = 1 << 20 // of memory kept from one batch to the next
	// markDelay is how long nothing must have been appended before a mark is written: it says that the batch before
	// it was synced, so that damage to that batch is not taken for a write that was under way.
	markDelay = 100 * time.Millisecond
)

var (
	// ErrNotFound means that the journal holds no entry at an index.
	ErrNotFound = errors.New("entry not found")
	// ErrUndecided means that the newest batch was written whole and cannot be read, and that it is unknown whether it
	// was confirmed, and which groups have entries in it. It wraps disk.ErrDamaged.
	ErrUndecided = fmt.Errorf("the newest batch cannot be read, and may have been confirmed: "+
		"other replicas take the place of those of this member when the other members have a quorum; "+
		"otherwise \"peeklock raft-log cut\" cuts it, and what it confirmed is lost: %w", disk.ErrDamaged)
	errClosed = errors.New("journal is closed")
)

// Range is the range of a group: the first and last index, both 0 when it has no entries.
type Range struct{ First, Last uint64 }

// Config configures a journal.
type Config struct {
	FS      disk.FS
	Dir     string // folder of the segments
	Catalog Catalog
	// SegmentBytes is the size of a segment; 0 means SegmentBytesDefault. It may change between two opens.
	SegmentBytes int
	// CutUndecided cuts a batch for which Open would return ErrUndecided. What it confirmed is lost.
	CutUndecided bool
	Logger       *slog.Logger
}

// Journal is the log of all groups of a member. All methods may be called concurrently.
type Journal struct {
	files        disk.FS
	dir          string
	catalog      Catalog
	segmentBytes int
	logger       *slog.Logger
	id           [idBytes]byte

	// turn is held to write, also during syncs: a channel, because a goroutine that waits for a mutex stops the time
	// of a simulation. It guards the fields up to mu.
	turn       chan struct{}
	buffer     []byte
	end        uint64 // position of the next batch
	synced     uint64 // position up to which the disk was synced
	partial    bool   // a write has failed behind end: the next batch begins a new segment
	marked     bool   // the newest batch is a mark
	spareAsked bool   // the preparer knows that the newest segment is half full
	failed     error  // why nothing more is written
	mark       *time.Timer

	spareTurn chan struct{} // held to create the next segment, taken behind turn. It guards spare
	spare     *spareFile    // nil while none is prepared
	prepare   chan struct{} // wakes the preparer

	mu       sync.RWMutex
	segments []*segment // from the oldest on; the newest is written. Changed with the turn and mu, read with either
	groups   map[uint32]*groupIndex

	lost      error           // why entries of any group may be missing, nil if the whole journal could be read; guarded by mu
	forgotten map[uint32]bool // groups that were forgotten behind what is lost; guarded by mu
	hold      atomic.Bool     // nothing is freed: Accept was not called since something was found lost

	damaged      []placed // entries with a wrong checksum, while the journal is opened
	cutUndecided bool     // of the configuration
	hasCut       bool     // Open has cut an undecided batch

	clean   chan struct{} // wakes the cleaner
	closing chan struct{}
	done    sync.WaitGroup
}

// Open opens the journal and creates it if the catalog has none. It cuts what a crash has left of a batch that
// was never confirmed. Damage reports which groups have entries that cannot be read.
func Open(cfg Config) (*Journal, error) {
	j := &Journal{
		files: cfg.FS, dir: cfg.Dir, catalog: cfg.Catalog, segmentBytes: cfg.SegmentBytes, logger: cfg.Logger, cutUndecided: cfg.CutUndecided,
		forgotten: make(map[uint32]bool),
		turn:      make(chan struct{}, 1), groups: make(map[uint32]*groupIndex),
		spareTurn: make(chan struct{}, 1), prepare: make(chan struct{}, 1), clean: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	if j.segmentBytes == 0 {
		j.segmentBytes = SegmentBytesDefault
	}
	j.segmentBytes = roundUp(max(j.segmentBytes, segmentBytesMin))
	if err := j.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", cfg.Dir, err), j.closeSegments())
	}
	j.mark = time.AfterFunc(markDelay, j.writeMark)
	j.done.Go(j.runCleaner)
	j.done.Go(j.runPreparer)
	j.wakeCleaner()
	return j, nil
}

func (j *Journal) open() error {
	id, err := j.catalog.Get(KeyID)
	if err != nil {
		return err
	}
	if len(id) == 0 {
		return j.create()
	}
	if _, err := j.files.Stat(j.dir); err != nil {
		return err
	}
	if len(id) != idBytes {
		return fmt.Errorf("the id of the journal has %d bytes: %w", len(id), disk.ErrDamaged)
	}
	j.id = [idBytes]byte(id)
	return j.recover()
}

// create gives a new journal its id, before anything else is written.
func (j *Journal) create() error {
	if err := j.files.MkdirAll(j.dir, disk.FolderMode); err != nil {
		return err
	}
	names, err := j.listSegments()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("the folder holds %d segments that the log beside it does not know: restore the log that belongs to them", len(names))
	}
	_, _ = rand.Read(j.id[:]) // never fails
	if err := j.files.SyncFolder(filepath.Dir(j.dir)); err != nil {
		return err
	}
	return j.catalog.Set(KeyID, j.id[:])
}

// Append appends entries of any groups, each at the next index of its group, and returns when they are on disk.
// A shortage of space or file descriptors (disk.IsRetriableWrite) has changed nothing; after any other error the journal
// accepts no more writes.
func (j *Journal) Append(entries []Entry) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if err := j.checkNext(entries); err != nil {
		return err
	}
	batch := beginBatch(j.buffer)
	places := make([]place, len(entries))
	for i := range entries {
		places[i] = place{offset: uint32(len(batch)), bytes: uint32(len(entries[i].Data) + len(entries[i].Extensions))}
		batch = appendRecord(batch, kindAppend, &entries[i])
	}
	s, offset, err := j.write(batch, len(entries))
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range entries {
		places[i].segment, places[i].offset = s.seg, places[i].offset+offset
		if err := j.setPlace(&entries[i], places[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkNext checks that the entries continue their groups.
func (j *Journal) checkNext(entries []Entry) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var group uint32
	var next uint64
	size := 0
	for i := range entries {
		e := &entries[i]
		if size += recordHeadBytes + len(e.Data) + len(e.Extensions); size > batchBytesMax {
			return fmt.Errorf("append: more than %d bytes at once", batchBytesMax)
		}
		if i == 0 || e.Group != group {
			group, next = e.Group, e.Index
			if g := j.groups[group]; g != nil && len(g.places) > 0 {
				next = g.rangeOf().Last + 1
			}
		}
		if e.Index != next || e.Index == 0 {
			return fmt.Errorf("append %d to group %d: the next is %d", e.Index, group, next)
		}
		next++
	}
	return nil
}

// setPlace enters the place of an entry into the index. Called with mu held.
func (j *Journal) setPlace(e *Entry, at place) error {
	g := j.groups[e.Group]
	if g == nil {
		g = &groupIndex{}
		j.groups[e.Group] = g
	}
	before, err := g.set(e.Index, at)
	if err != nil {
		return fmt.Errorf("group %d: %w", e.Group, err)
	}
	j.count(before, -1)
	j.count(at, 1)
	return nil
}

// count counts an entry of a segment, if the segment is held. Called with mu held.
func (j *Journal) count(at place, by int) {
	if s := j.segment(at.segment); s != nil {
		s.live += by
		s.liveBytes += int64(by) * at.recordBytes()
	}
}

// segment returns a segment by its number, nil if it was freed. Called with mu held.
func (j *Journal) segment(seg uint32) *segment {
	if len(j.segments) == 0 || seg < j.segments[0].seg || seg-j.segments[0].seg >= uint32(len(j.segments)) {
		return nil
	}
	return j.segments[seg-j.segments[0].seg]
}

// DeleteRange deletes the entries of a group from low to high, which must be at either end of the group, and
// returns when that is on disk. Errors are those of Append.
func (j *Journal) DeleteRange(group uint32, low, high uint64) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.mu.RLock()
	var held Range
	if g := j.groups[group]; g != nil {
		held = g.rangeOf()
	}
	j.mu.RUnlock()
	switch {
	case held.Last == 0 || low > held.Last || high < held.First:
		return nil
	case low > held.First && high < held.Last:
		return fmt.Errorf("delete %d to %d of group %d: a range inside the log", low, high, group)
	}
	batch := appendRecord(beginBatch(j.buffer), kindDelete, &Entry{Group: group, Index: low, Term: high})
	if _, _, err := j.write(batch, 1); err != nil {
		return err
	}
	j.mu.Lock()
	err := j.deletePlaces(group, low, high)
	j.mu.Unlock()
	j.wakeCleaner()
	return err
}

// Forget deletes all entries of a group, also those that cannot be read, and returns when that is on disk: Damage reports
// nothing of the group anymore. Errors are those of Append.
func (j *Journal) Forget(group uint32) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	batch := appendRecord(beginBatch(j.buffer), kindForget, &Entry{Group: group})
	if _, _, err := j.write(batch, 1); err != nil {
		return err
	}
	j.mu.Lock()
	j.dropPlaces(group)
	j.forgotten[group] = true
	j.mu.Unlock()
	j.wakeCleaner()
	return nil
}

// Accept says that no group needs what Lost reports. Until then no segment is freed: the next open finds what was lost again,
// and with it the groups that are not to be opened.
func (j *Journal) Accept() {
	j.hold.Store(false)
	j.wakeCleaner()
}

// Lost returns why entries of any group may be missing, nil if Open could read the whole journal. It wraps disk.ErrDamaged.
func (j *Journal) Lost() error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.lost
}

// dropPlaces removes all entries of a group from the index. Called with mu held.
func (j *Journal) dropPlaces(group uint32) {
	if g := j.groups[group]; g != nil {
		for _, at := range g.places {
			j.count(at, -1)
		}
		delete(j.groups, group)
	}
}

// deletePlaces removes entries from the index. Called with mu held.
func (j *Journal) deletePlaces(group uint32, low, high uint64) error {
	g := j.groups[group]
	if g == nil {
		return nil
	}
	removed, err := g.delete(low, high)
	if err != nil {
		return fmt.Errorf("group %d: %w", group, err)
	}
	for _, at := range removed {
		j.count(at, -1)
	}
	if len(g.places) == 0 {
		delete(j.groups, group)
	}
	return nil
}

// write writes a batch and syncs it. Called with the turn. It returns the segment and the offset of the batch.
func (j *Journal) write(batch []byte, records int) (*segment, uint32, error) {
	if cap(batch) <= batchKeptBytesMax {
		j.buffer = batch
	}
	if j.failed != nil {
		return nil, 0, j.failed
	}
	s, offset, err := j.writeAndSync(batch, records)
	if err != nil && !disk.IsRetriableWrite(err) {
		j.failed = fmt.Errorf("journal %s accepts no more writes: %w", j.dir, err)
	}
	return s, offset, err
}

func (j *Journal) writeAndSync(batch []byte, records int) (*segment, uint32, error) {
	length := roundUp(len(batch))
	if len(j.segments) == 0 || j.partial || j.end+uint64(length) > j.newest().base+j.newest().capacity() {
		if err := j.createSegment(length); err != nil {
			return nil, 0, err
		}
		j.wakeCleaner()
	}
	s := j.newest()
	batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: j.synced, records: uint32(records)})
	offset := s.offsetOf(j.end)
	if _, err := s.file.WriteAt(batch, offset); err != nil {
		j.partial = true
		return nil, 0, err
	}
	if err := disk.SyncData(s.file); err != nil {
		return nil, 0, err
	}
	j.end += uint64(len(batch))
	j.synced = j.end
	j.marked = records == 0
	if !j.marked {
		j.mark.Reset(markDelay)
	}
	j.askForSpare()
	return s, uint32(offset), nil
}

func (j *Journal) newest() *segment { return j.segments[len(j.segments)-1] }

// writeMark writes a batch without records, if the newest batch is none: it says that those before it were
// synced.
func (j *Journal) writeMark() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if j.marked || j.failed != nil || len(j.segments) == 0 {
		return
	}
	if _, _, err := j.write(beginBatch(nil), 0); err != nil {
		j.logger.Warn("failed to write a mark to the journal", "error", err)
	}
}

// Read reads an entry. Its data is a copy. Errors are ErrNotFound, or wrap disk.ErrDamaged.
func (j *Journal) Read(group uint32, index uint64, out *Entry) error {
	j.mu.RLock()
	var at place
	if g := j.groups[group]; g != nil {
		at = g.get(index)
	}
	s := j.segment(at.segment)
	if s == nil {
		j.mu.RUnlock()
		return ErrNotFound
	}
	s.mu.RLock() // before mu is free: the segment may be closed then
	j.mu.RUnlock()
	b := make([]byte, recordHeadBytes+int(at.bytes))
	err := disk.ReadAt(s.file, b, int64(at.offset))
	s.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("read entry %d of group %d: %w", index, group, err)
	}
	r, n := decodeRecord(b)
	if n != len(b) || r.damaged || r.Group != group || r.Index != index || r.kind > kindCopy {
		return fmt.Errorf("read entry %d of group %d in %s: %w", index, group, j.path(at.segment), disk.ErrDamaged)
	}
	*out = r.Entry
	return nil
}

// Ranges returns the ranges of all groups that have entries.
func (j *Journal) Ranges() map[uint32]Range {
	j.mu.RLock()
	defer j.mu.RUnlock()
	all := make(map[uint32]Range, len(j.groups))
	for id, g := range j.groups {
		if len(g.places) > 0 {
			all[id] = g.rangeOf()
		}
	}
	return all
}

// Damage returns why entries of a group cannot be read; nil if all could be so far. It wraps
// disk.ErrDamaged. Deleting all entries of the group ends it.
func (j *Journal) Damage(group uint32) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if g := j.groups[group]; g != nil && g.damaged != nil {
		return g.damaged
	}
	if j.isLost(group) {
		return j.lost
	}
	return nil
}

// HasCut reports whether Open has cut a batch that may have been confirmed.
func (j *Journal) HasCut() bool { return j.hasCut }

// Bytes returns the size of all segments.
func (j *Journal) Bytes() (n int64) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	for _, s := range j.segments {
		n += int64(s.size)
	}
	return n
}

// Close ends the journal; nothing more is written. It may be called once.
func (j *Journal) Close() error {
	close(j.closing)
	j.mark.Stop()
	j.done.Wait()
	j.turn <- struct{}{}
	j.failed = errClosed
	<-j.turn
	return j.closeSegments()
}

func (j *Journal) closeSegments() error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var err error
	for _, s := range j.segments {
		err = errors.Join(err, s.close())
	}
	if j.spare != nil { // the next open removes the file
		err = errors.Join(err, j.spare.file.Close())
	}
	return err
}

// groupsInOrder returns the numbers of the groups in order.
func groupsInOrder(groups map[uint32]*groupIndex) []uint32 { return slices.Sorted(maps.Keys(groups)) }
