package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/partition/disk"
)

const (
	segmentSuffix      = ".seg"
	catalogRecordBytes = 20
)

// errForeign means that a segment belongs to another journal.
var errForeign = errors.New("the folder has another journal")

// segment is a file of the journal.
type segment struct {
	segmentHead

	live      int   // entries of the index that are here; guarded by the journal's mu
	liveBytes int64 // of their records

	mu   sync.RWMutex // held to read: the file is closed when nobody reads
	file disk.File    // nil if it is lost: the index has no entry of it
}

// capacity is how many bytes of batches the segment can hold.
func (s *segment) capacity() uint64 { return s.size - segmentHeadBytes }

func (s *segment) offsetOf(position uint64) int64 { return int64(position-s.base) + segmentHeadBytes }

func (s *segment) readAt(b []byte, offset int64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return disk.ReadAt(s.file, b, offset)
}

func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func segmentName(seg uint32) string { return fmt.Sprintf("%08x", seg) + segmentSuffix }

func (j *Journal) path(seg uint32) string { return filepath.Join(j.dir, segmentName(seg)) }

// openSegment opens a segment of the catalog. It returns an error that wraps errForeign for a segment of another journal, and
// one that wraps fs.ErrNotExist or disk.ErrDamaged if the segment is lost.
func (j *Journal) openSegment(head segmentHead) (*segment, error) {
	path := j.path(head.seg)
	file, err := disk.OpenWritable(j.files, path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	b := make([]byte, segmentHeadBytes)
	info, err := file.Stat()
	if err == nil && uint64(info.Size()) < head.size {
		err = fmt.Errorf("%s has %d bytes and should have %d: %w", path, info.Size(), head.size, disk.ErrDamaged)
	}
	if err == nil {
		err = disk.ReadAt(file, b, 0)
	}
	if want := head.encode(); err == nil && !bytes.Equal(b[:segmentHeadEnd], want[:segmentHeadEnd]) {
		if isSegmentHead(b) {
			err = fmt.Errorf("%s is not segment %d of journal %x: %w", path, head.seg, head.id, errForeign)
		} else { // the catalog has all that it says
			j.logger.Warn("head of a segment of the journal was damaged, and is written again", "segment", path)
			_, err = file.WriteAt(want, 0)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment: %w", err), file.Close())
	}
	return &segment{segmentHead: head, file: file}, nil
}

// createSegment creates the segment that follows and enters it into the catalog. Everything that the newest
// segment holds is synced. Called with the turn.
func (j *Journal) createSegment(batch int) error {
	j.spareTurn <- struct{}{}
	defer func() { <-j.spareTurn }()
	head := segmentHead{id: j.id, seg: 1, base: j.end}
	if n := len(j.segments); n > 0 {
		head.seg = j.segments[n-1].seg + 1
	}
	spare, err := j.takeSpare(head.seg, uint64(max(j.segmentBytes, segmentHeadBytes+batch)))
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	head.size = spare.size
	s := &segment{segmentHead: head, file: spare.file}
	if _, err = s.file.WriteAt(head.encode(), 0); err == nil {
		err = disk.SyncData(s.file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create segment: %w", err), s.close())
	}
	all := append(j.segments[:len(j.segments):len(j.segments)], s)
	if err := j.catalog.Set(keySegments, encodeCatalog(all)); err != nil {
		return errors.Join(fmt.Errorf("enter segment %d into the catalog: %w", head.seg, err), s.close())
	}
	j.mu.Lock()
	j.segments = all
	j.mu.Unlock()
	j.partial, j.spareAsked = false, false
	return nil
}

// encodeCatalog returns the value of the catalog for segments: number, base and size of each.
func encodeCatalog(all []*segment) []byte {
	b := make([]byte, 0, 1+len(all)*catalogRecordBytes)
	b = append(b, formatVersion)
	for _, s := range all {
		b = binary.LittleEndian.AppendUint32(b, s.seg)
		b = binary.LittleEndian.AppendUint64(b, s.base)
		b = binary.LittleEndian.AppendUint64(b, s.size)
	}
	return b
}

// decodeCatalog reads the heads of the segments, in order.
func decodeCatalog(id [idBytes]byte, b []byte) ([]segmentHead, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != formatVersion || (len(b)-1)%catalogRecordBytes != 0 {
		return nil, fmt.Errorf("catalog of segments: version %d, %d bytes: not of this binary", b[0], len(b))
	}
	var all []segmentHead
	for b = b[1:]; len(b) > 0; b = b[catalogRecordBytes:] {
		head := segmentHead{id, binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])}
		if n := len(all); n > 0 && (head.seg != all[n-1].seg+1 || head.base < all[n-1].base) {
			return nil, fmt.Errorf("catalog of segments: %d follows %d: %w", head.seg, all[n-1].seg, disk.ErrDamaged)
		}
		all = append(all, head)
	}
	return all, nil
}

// listSegments returns the names of the files of segments in the folder.
func (j *Journal) listSegments() ([]string, error) {
	entries, err := j.files.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), segmentSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
