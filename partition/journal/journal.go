package journal

import (
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

func (j *Journal) newest() *segment { return j.segments[len(j.segments)-1] }

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

// groupsInOrder returns the numbers of the groups in order.
func groupsInOrder(groups map[uint32]*groupIndex) []uint32 { return slices.Sorted(maps.Keys(groups)) }

func (j *Journal) path(seg uint32) string { return filepath.Join(j.dir, segmentName(seg)) }

// isLost reports whether entries of a group may be missing.
func (j *Journal) isLost(group uint32) bool { return j.lost != nil && !j.forgotten[group] }

func (j *Journal) wakeCleaner() {
	select {
	case j.clean <- struct{}{}:
	default:
	}
}
