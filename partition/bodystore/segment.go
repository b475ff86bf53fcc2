package bodystore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// A segment file:
//
//	magic    4 bytes  "PKSG"
//	version  1 byte   segmentVersion
//	zero     3 bytes
//	number   4 bytes
//	checksum 4 bytes  CRC-32C of the 12 bytes before it
//	records
//
// A record:
//
//	checksum 4 bytes  CRC-32C of all that follows, the body included
//	length   4 bytes  of the body
//	entity   8 bytes
//	sequence 8 bytes
//	sub      1 byte
//	flags    1 byte   recordPatch
//	body
//
// Numbers are little endian. The offset of a fsm.Ref is that of the checksum of its record.
const (
	segmentVersion     byte = 1
	HeaderBytes             = 16
	RecordHeaderBytes       = 26
	recordBodyBytesMax      = 256 << 20 // a larger body in a snapshot stream is damage
	recordPatch        byte = 1
)

var segmentMagic = [4]byte{'P', 'K', 'S', 'G'} //nolint:gochecknoglobals // a constant in all but name

// errSegmentDeleted means that the segment of a body was deleted.
var errSegmentDeleted = errors.New("segment is deleted")

// Segment is one file of bodies. The body store guards it.
type Segment struct {
	Number uint32
	path   string
	file   disk.File // nil while the active segment could not be created for lack of space or a file descriptor
	size   int64     // bytes written to the file
	synced int64     // the part known to be on disk
	// closed: no more records are appended.
	closed bool
	// live counts the records that the machine refers to, liveBytes their bytes.
	live      int
	liveBytes int64
	// retained counts the images, snapshots and streams that refer to the segment. The file is deleted when
	// live and retained are both zero.
	retained int
	// compacted: compaction has processed it; records still live in it cannot be moved.
	compacted bool
}

// SegmentSize is a segment as the manifest of a snapshot lists it.
type SegmentSize struct {
	Number uint32 `json:"Number"`
	Size   int64  `json:"Size"`
}

// Path returns the path of a segment file in the folder of a store.
func Path(dir string, number uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.seg", number))
}

// createSegment creates a new file. The folder is synced before a snapshot relies on it.
func createSegment(files disk.FS, dir string, number uint32) (*Segment, error) {
	path := Path(dir, number)
	f, err := disk.Create(files, path)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	h := make([]byte, 0, HeaderBytes)
	h = append(h, segmentMagic[:]...)
	h = append(h, segmentVersion, 0, 0, 0)
	h = binary.LittleEndian.AppendUint32(h, number)
	h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, disk.Castagnoli))
	if _, err := f.WriteAt(h, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("create segment %s: %w", path, err), f.Close(), files.Remove(path))
	}
	return &Segment{Number: number, path: path, file: f, size: HeaderBytes}, nil
}

// openSegment opens a file that a snapshot lists with a size. Bytes behind that size are newer than the
// snapshot and are ignored. A shorter file is damaged.
func openSegment(files disk.FS, dir string, s SegmentSize) (*Segment, error) {
	path := Path(dir, s.Number)
	f, err := disk.OpenWritable(files, path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", disk.AsDamage(err))
	}
	if err := checkSegment(f, s); err != nil {
		return nil, errors.Join(fmt.Errorf("open segment %s: %w", path, err), f.Close())
	}
	return &Segment{Number: s.Number, path: path, file: f, size: s.Size, synced: s.Size, closed: true}, nil
}

func checkSegment(f disk.File, s SegmentSize) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < s.Size || s.Size < HeaderBytes {
		return fmt.Errorf("%d bytes where the snapshot has %d: %w", info.Size(), s.Size, disk.ErrDamaged)
	}
	var h [HeaderBytes]byte
	if err := disk.ReadAt(f, h[:], 0); err != nil {
		return err
	}
	switch {
	case crc32.Checksum(h[:12], disk.Castagnoli) != binary.LittleEndian.Uint32(h[12:]),
		[4]byte(h[:4]) != segmentMagic, binary.LittleEndian.Uint32(h[8:]) != s.Number:
		return fmt.Errorf("header: %w", disk.ErrDamaged)
	case h[4] != segmentVersion:
		return fmt.Errorf("segment version %d is not known to this binary", h[4])
	}
	return nil
}

// appendRecord appends a record to dst.
func appendRecord(dst []byte, owner fsm.Owner, body []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(owner.Entity))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(owner.Sequence))
	var flags byte
	if owner.Patch {
		flags = recordPatch
	}
	dst = append(dst, byte(owner.Sub), flags)
	dst = append(dst, body...)
	binary.LittleEndian.PutUint32(dst[start:], crc32.Checksum(dst[start+4:], disk.Castagnoli))
	return dst
}

// RecordBytes returns the size of the record of a body in a segment.
func RecordBytes(ref fsm.Ref) int64 { return RecordHeaderBytes + int64(ref.Size) }

// recordBody verifies the record at the start of b, which must hold a body of size bytes, and returns the
// body as a slice of b.
func recordBody(b []byte, size uint32) (fsm.Owner, []byte, error) {
	if len(b) < RecordHeaderBytes+int(size) {
		return fsm.Owner{}, nil, fmt.Errorf("record of %d bytes: %w", size, io.ErrUnexpectedEOF)
	}
	end := RecordHeaderBytes + int(size)
	if binary.LittleEndian.Uint32(b[4:]) != size ||
		crc32.Checksum(b[4:end], disk.Castagnoli) != binary.LittleEndian.Uint32(b) {
		return fsm.Owner{}, nil, fmt.Errorf("record of %d bytes: checksum: %w", size, disk.ErrDamaged)
	}
	return recordOwner(b), b[RecordHeaderBytes:end:end], nil
}

// recordSize returns the size of the record at the start of b, header included. It does not verify the
// checksum.
func recordSize(b []byte) (int, error) {
	if len(b) < RecordHeaderBytes {
		return 0, io.ErrUnexpectedEOF
	}
	return RecordHeaderBytes + int(binary.LittleEndian.Uint32(b[4:])), nil
}

// recordOwner decodes the owner from a record header.
func recordOwner(b []byte) fsm.Owner {
	return fsm.Owner{
		Address: fsm.Address{
			Entity: fsm.EntityID(binary.LittleEndian.Uint64(b[8:])),
			Sub:    fsm.SubQueue(b[24]),
		},
		Sequence: fsm.SequenceNumber(binary.LittleEndian.Uint64(b[16:])),
		Patch:    b[25]&recordPatch != 0,
	}
}
