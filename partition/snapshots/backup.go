package snapshots

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
)

// A backup:
//
//	magic    4 bytes  "PKBK"
//	version  1 byte   backupVersion
//	zero     3 bytes
//	size     4 bytes  of the description
//	checksum 4 bytes  CRC-32C of the 12 bytes before it and the description
//	description       JSON: BackupInfo
//	snapshot          as it is sent to a follower (stream.go), StreamBytes of it
//	hash     8 bytes  xxhash64 of everything before it
//
// Nothing follows. Numbers are little endian.
const (
	backupVersion      byte = 1
	backupHeaderBytes       = 16
	backupInfoBytesMax      = 64 << 10
	backupTrailerBytes      = 8
	backupRefsPerRead       = 4096 // bodies listed before they are copied
)

// BackupFirstTerm is the first term of a restored group.
const BackupFirstTerm = 1

var backupMagic = [4]byte{'P', 'K', 'B', 'K'} //nolint:gochecknoglobals // a constant in all but name

// BackupInfo describes a backup.
type BackupInfo struct {
	Draft     uint32          `json:"draft"` // see fsm.FormatDraft
	Partition fsm.PartitionID `json:"partition"`
	Replica   string          `json:"replica"` // that it was taken from
	Index     uint64          `json:"index"`   // the backup contains everything up to it and nothing behind it
	Term      uint64          `json:"term"`    // of the entry at Index
	Clock     fsm.Instant     `json:"clock"`   // the machine's, at Index
	Bodies    uint64          `json:"bodies"`
	// StreamBytes is the size of the snapshot stream; the backup has some hundred bytes more.
	StreamBytes int64 `json:"stream_bytes"`
	// State is the digest of the whole machine, 0 when it has none. It may differ between releases.
	State uint64 `json:"state"`
}

// MeasureBackup returns a backup of f, which must not be released before the backup is written. info names the partition and
// the replica; MeasureBackup fills in the rest.
func (f *Frozen) MeasureBackup(info BackupInfo) (*MeasuredBackup, error) {
	b := &MeasuredBackup{Info: info, image: f.Image, bodies: f.Bodies}
	b.Applied, b.Clock, b.Segments, b.State = f.Applied, f.Clock, f.Segments, f.Digest
	b.Info.Draft, b.Info.Index, b.Info.Term, b.Info.Clock = fsm.FormatDraft, f.Applied, f.Digest.DigestTerm, f.Clock
	if err := b.measure(); err != nil {
		return nil, err
	}
	return b, nil
}

// MeasuredBackup is a backup whose sizes and checksums are known and that is written next.
type MeasuredBackup struct {
	Manifest

	Info   BackupInfo
	image  fsm.Image
	bodies *bodystore.Store
}

// measure computes the sizes and checksums that are written before the data.
func (b *MeasuredBackup) measure() error {
	sum := &checksumWriter{sum: crc32.New(disk.Castagnoli)}
	if _, err := b.image.WriteTo(sum); err != nil {
		return err
	}
	b.ImageBytes, b.ImageSum = sum.size, sum.sum.Sum32()
	b.image.Refs(func(_ fsm.Owner, ref fsm.Ref) {
		if ref.Segment != 0 {
			b.Bodies++
			b.BodyBytes += bodystore.RecordBytes(ref)
		}
	})
	if d, ok := b.image.(digestible); ok {
		b.Info.State = d.Digest()
	}
	b.Info.Bodies, b.Info.StreamBytes = b.Bodies, streamHeaderBytes+b.ImageBytes+4+b.BodyBytes
	return nil
}

// checksumWriter counts the bytes and computes their checksum.
type checksumWriter struct {
	sum  hash.Hash32
	size int64
}

func (w *checksumWriter) Write(p []byte) (int, error) {
	w.size += int64(len(p))
	return w.sum.Write(p)
}

// Write writes the whole backup. It verifies the checksums of the bodies: damaged ones are disk.ErrDamaged.
func (b *MeasuredBackup) Write(ctx context.Context, to io.Writer) error {
	text, err := json.Marshal(b.Info)
	if err != nil {
		return err
	}
	whole := xxhash.New()
	w := bufio.NewWriterSize(io.MultiWriter(to, whole), copyBufferBytes)
	h := append(make([]byte, 0, backupHeaderBytes+len(text)), backupMagic[:]...)
	h = append(h, backupVersion, 0, 0, 0)
	h = binary.LittleEndian.AppendUint32(h, uint32(len(text)))
	h = binary.LittleEndian.AppendUint32(h, crc32.Update(crc32.Checksum(h, disk.Castagnoli), disk.Castagnoli, text))
	h = appendStreamHeader(append(h, text...), &b.Manifest)
	if _, err := w.Write(h); err != nil {
		return err
	}
	if _, err := b.image.WriteTo(w); err != nil {
		return err
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, b.ImageSum)); err != nil {
		return err
	}
	if err := b.writeBodies(ctx, w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = to.Write(binary.LittleEndian.AppendUint64(nil, whole.Sum64()))
	return err
}

// writeBodies copies the records, some thousand at a time.
func (b *MeasuredBackup) writeBodies(ctx context.Context, w io.Writer) error {
	var err error
	var scratch []byte
	refs := make([]fsm.Ref, 0, backupRefsPerRead)
	flush := func() {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			scratch, err = b.bodies.SendRecords(w, refs, scratch)
		}
		refs = refs[:0]
	}
	b.image.Refs(func(_ fsm.Owner, ref fsm.Ref) {
		if ref.Segment == 0 || err != nil {
			return
		}
		if refs = append(refs, ref); len(refs) == cap(refs) {
			flush()
		}
	})
	flush()
	return err
}

// ReadBackupInfo reads the description at the beginning of a backup.
func ReadBackupInfo(r io.Reader) (BackupInfo, error) {
	var h [backupHeaderBytes]byte
	var info BackupInfo
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return info, fmt.Errorf("read backup: %w (%w)", err, disk.ErrDamaged)
	}
	size := binary.LittleEndian.Uint32(h[8:])
	switch {
	case [4]byte(h[:4]) != backupMagic:
		return info, errors.New("read backup: not a backup of a partition")
	case h[4] != backupVersion:
		return info, fmt.Errorf("read backup: version %d is not known to this binary", h[4])
	case size > backupInfoBytesMax:
		return info, fmt.Errorf("read backup: description of %d bytes: %w", size, disk.ErrDamaged)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return info, fmt.Errorf("read backup: %w (%w)", err, disk.ErrDamaged)
	}
	if crc32.Update(crc32.Checksum(h[:12], disk.Castagnoli), disk.Castagnoli, text) != binary.LittleEndian.Uint32(h[12:]) {
		return info, fmt.Errorf("read backup: description: checksum: %w", disk.ErrDamaged)
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return info, fmt.Errorf("read backup: description: %w", err)
	}
	if info.Draft != fsm.FormatDraft {
		return info, fmt.Errorf("read backup: it has draft %d of the formats, this binary has draft %d, and before release 0.1.0 nothing converts between drafts: "+
			"restore it with the build that wrote it", info.Draft, fsm.FormatDraft)
	}
	return info, nil
}

// OpenBackup reads a backup up to the image of the machine, which follows in r with ImageBytes bytes.
func OpenBackup(r io.Reader) (BackupInfo, Manifest, error) {
	info, err := ReadBackupInfo(r)
	if err != nil {
		return info, Manifest{}, err
	}
	m, err := readStreamHeader(r)
	if err != nil {
		return info, m, fmt.Errorf("read backup: %w", err)
	}
	return info, m, nil
}
