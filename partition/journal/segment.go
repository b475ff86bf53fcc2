package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// spareFile is the file of the segment that comes next: it holds zeros, and the catalog does not know it yet.
type spareFile struct {
	seg  uint32
	size uint64
	file disk.File
}
