package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/peeklock/peeklock/partition/disk"
)

// The format of segments, see DESIGN.md. All numbers are little endian.
const (
	sectorBytes      = 512 // the disk writes a sector as a whole or not at all
	idBytes          = 16
	segmentHeadBytes = sectorBytes
	segmentHeadEnd   = 52 // of what the head holds; zeros follow
	batchHeadBytes   = 64
	recordHeadBytes  = 48
	formatVersion    = 1
)

var (
	segmentMagic = []byte("PLKSEGMT") //nolint:gochecknoglobals // read only
	batchMagic   = []byte("PLKB")     //nolint:gochecknoglobals // read only
)

// The kinds of records. 0 is none, so that bytes that were never written are no record.
const (
	kindAppend byte = 1 + iota // an entry, at the end of its group
	kindCopy                   // an entry that was in an older segment
	kindDelete                 // of the entries from Index to Term (high), at either end of the group
	kindForget                 // of all entries of the group, those that cannot be read too
)

// Entry is an entry of one group.
type Entry struct {
	Group      uint32
	Type       uint8
	Index      uint64
	Term       uint64
	AppendedAt int64 // Unix nanoseconds, 0 when not known
	Data       []byte
	Extensions []byte
	// Sum is the CRC-32C of data and extensions, little endian, from where they were created; it is stored as it is. Without it
	// (nil) Append computes one. Of an entry that was read it is what was stored.
	Sum []byte
}

const entrySumBytes = 4

func checksum(b []byte) uint32 { return crc32.Checksum(b, disk.Castagnoli) }

// segmentHead is the first sector of a segment.
type segmentHead struct {
	id   [idBytes]byte // of the journal
	seg  uint32
	base uint64 // position of the first batch
	size uint64 // of the file
}

func (h *segmentHead) encode() []byte {
	b := make([]byte, 0, segmentHeadBytes)
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = append(b, h.id[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.seg)
	b = binary.LittleEndian.AppendUint64(b, h.base)
	b = binary.LittleEndian.AppendUint64(b, h.size)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	return append(b, make([]byte, segmentHeadBytes-len(b))...)
}

// isSegmentHead reports whether a sector is the head of any segment.
func isSegmentHead(b []byte) bool {
	const end = segmentHeadEnd - 4
	return bytes.Equal(b[:8], segmentMagic) && binary.LittleEndian.Uint32(b[end:]) == checksum(b[:end])
}

// batchHead is the start of a batch. A batch begins and ends at a sector, so no write touches a sector that was
// synced before.
type batchHead struct {
	id          [idBytes]byte
	position    uint64 // of the batch
	synced      uint64 // position up to which the journal was synced when the batch was written
	bytes       uint32 // of the records; padding follows, up to the next sector
	records     uint32
	zeroSectors uint32 // sectors of the batch that hold nothing but zeros: more zeros mean that some were not written
	crc         uint32 // of the records
}

func (h *batchHead) encode(b []byte) {
	copy(b, batchMagic)
	binary.LittleEndian.PutUint32(b[4:], formatVersion)
	copy(b[8:], h.id[:])
	binary.LittleEndian.PutUint64(b[24:], h.position)
	binary.LittleEndian.PutUint64(b[32:], h.synced)
	binary.LittleEndian.PutUint32(b[40:], h.bytes)
	binary.LittleEndian.PutUint32(b[44:], h.records)
	binary.LittleEndian.PutUint32(b[48:], h.zeroSectors)
	binary.LittleEndian.PutUint32(b[52:], h.crc)
	binary.LittleEndian.PutUint32(b[56:], 0)
	binary.LittleEndian.PutUint32(b[60:], checksum(b[:60]))
}

// decodeBatchHead returns false for anything but a head that was written whole.
func decodeBatchHead(b []byte) (h batchHead, ok bool) {
	if len(b) < batchHeadBytes || !bytes.Equal(b[:4], batchMagic) || binary.LittleEndian.Uint32(b[4:]) != formatVersion ||
		binary.LittleEndian.Uint32(b[60:]) != checksum(b[:60]) {
		return h, false
	}
	copy(h.id[:], b[8:])
	h.position = binary.LittleEndian.Uint64(b[24:])
	h.synced = binary.LittleEndian.Uint64(b[32:])
	h.bytes = binary.LittleEndian.Uint32(b[40:])
	h.records = binary.LittleEndian.Uint32(b[44:])
	h.zeroSectors = binary.LittleEndian.Uint32(b[48:])
	h.crc = binary.LittleEndian.Uint32(b[52:])
	return h, true
}

// length returns the bytes of the batch in the segment, padding included.
func (h *batchHead) length() int { return roundUp(batchHeadBytes + int(h.bytes)) }

func roundUp(n int) int { return (n + sectorBytes - 1) / sectorBytes * sectorBytes }

// appendRecord appends an entry, or a deletion, which is an entry without data.
func appendRecord(b []byte, kind byte, e *Entry) []byte {
	at := len(b)
	b = append(b, kind, e.Type, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, e.Group)
	b = binary.LittleEndian.AppendUint64(b, e.Index)
	b = binary.LittleEndian.AppendUint64(b, e.Term)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.AppendedAt))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Extensions)))
	if len(e.Sum) == entrySumBytes {
		b = append(b, e.Sum...)
	} else {
		b = binary.LittleEndian.AppendUint32(b, crc32.Update(checksum(e.Data), disk.Castagnoli, e.Extensions))
	}
	b = binary.LittleEndian.AppendUint32(b, checksum(b[at:]))
	b = append(b, e.Data...)
	return append(b, e.Extensions...)
}

// record is a record as it is read; the data of its entry shares the memory that it was read from.
type record struct {
	Entry

	kind    byte
	damaged bool // the data has another checksum
}

// decodeRecord reads the record at the start of b. It returns 0 bytes when its head is not whole.
func decodeRecord(b []byte) (r record, n int) {
	if len(b) < recordHeadBytes || binary.LittleEndian.Uint32(b[44:]) != checksum(b[:44]) {
		return r, 0
	}
	data, extensions := int(binary.LittleEndian.Uint32(b[32:])), int(binary.LittleEndian.Uint32(b[36:]))
	n = recordHeadBytes + data + extensions
	if b[0] < kindAppend || b[0] > kindForget || len(b) < n {
		return r, 0
	}
	r.kind, r.Type = b[0], b[1]
	r.Group = binary.LittleEndian.Uint32(b[4:])
	r.Index = binary.LittleEndian.Uint64(b[8:])
	r.Term = binary.LittleEndian.Uint64(b[16:])
	r.AppendedAt = int64(binary.LittleEndian.Uint64(b[24:]))
	r.Data = b[recordHeadBytes : recordHeadBytes+data : recordHeadBytes+data]
	r.Extensions = b[recordHeadBytes+data : n : n]
	r.Sum = b[40:44:44]
	r.damaged = binary.LittleEndian.Uint32(b[40:]) != checksum(b[recordHeadBytes:n])
	return r, n
}

// beginBatch returns an empty batch, in the memory of an earlier one.
func beginBatch(memory []byte) []byte { return append(memory[:0], make([]byte, batchHeadBytes)...) }

// endBatch fills in the head of a batch and pads it to whole sectors.
func endBatch(b []byte, h batchHead) []byte {
	h.bytes, h.crc = uint32(len(b)-batchHeadBytes), checksum(b[batchHeadBytes:])
	b = append(b, make([]byte, roundUp(len(b))-len(b))...)
	h.zeroSectors = zeroSectors(b[sectorBytes:]) // the first one holds the head
	h.encode(b)
	return b
}

// zeroSectors counts the sectors that hold nothing but zeros.
func zeroSectors(b []byte) (n uint32) {
	for ; len(b) >= sectorBytes; b = b[sectorBytes:] {
		if isZero(b[:sectorBytes]) {
			n++
		}
	}
	return n
}

func isZero(b []byte) bool {
	var zeros [sectorBytes]byte
	for ; len(b) > sectorBytes; b = b[sectorBytes:] {
		if !bytes.Equal(b[:sectorBytes], zeros[:]) {
			return false
		}
	}
	return bytes.Equal(b, zeros[:len(b)])
}
