package snapshots

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition/disk"
)

// The stream of a snapshot to another member:
//
//	magic    4 bytes  "PKSN"
//	version  1 byte   streamVersion
//	digest   1 byte   version of the rolling digest, 0 when it is not known
//	applied  8 bytes
//	clock    8 bytes
//	image    8 bytes  its size
//	bodies   8 bytes  their number
//	digest   8 bytes  rolling digest up to applied
//	term     8 bytes  of the entry at applied
//	checksum 4 bytes  CRC-32C of the header before it
//	image
//	checksum 4 bytes  CRC-32C of the image
//	records of the bodies, as in a segment, in the order of Machine.Refs
const (
	streamMagic            = "PKSN"
	streamVersion     byte = 1
	streamHeaderBytes      = 4 + 2 + 6*8 + crc32.Size
)

// snapshotStream reads a snapshot for sending. It does nothing before the first Read, because raft also opens
// snapshots for its own replica, which loads them from the folder.
type snapshotStream struct {
	store  *Store
	snap   *Snapshot
	send   *snapshotSend // nil before the first Read
	pipe   *io.PipeReader
	done   chan struct{}
	closed bool
}

// Sent returns the snapshot that a reader of Store.Open reads, which may be wrapped by raft.
func Sent(r io.ReadCloser) (*Snapshot, error) {
	for {
		switch x := r.(type) {
		case *snapshotStream:
			return x.snap, nil
		case raft.ReadCloserWrapper:
			r = x.WrappedReadCloser()
		default:
			return nil, errors.New("restore: the reader is not a snapshot of this group")
		}
	}
}

func (s *snapshotStream) Read(p []byte) (int, error) {
	if s.pipe == nil {
		r, w := io.Pipe()
		s.pipe, s.done = r, make(chan struct{})
		s.send = s.store.sends.begin(s.snap.Index, s.store.LogBytes(), s.snap.meta().Size)
		go func() {
			defer close(s.done)
			buf := bufio.NewWriterSize(w, copyBufferBytes)
			err := s.write(buf)
			if err == nil {
				err = buf.Flush()
			}
			if errors.Is(err, disk.ErrDamaged) {
				s.store.Fail(err)
			}
			w.CloseWithError(err)
		}()
	}
	return s.pipe.Read(p)
}

func (s *snapshotStream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.pipe != nil {
		_ = s.pipe.Close()
		<-s.done
		s.store.sends.end(s.send)
	}
	s.store.release(s.snap)
	return nil
}

// write writes the stream.
func (s *snapshotStream) write(w io.Writer) error {
	if _, err := w.Write(appendStreamHeader(nil, &s.snap.Manifest)); err != nil {
		return err
	}
	if err := s.sendImage(w); err != nil {
		return err
	}
	return s.sendBodies(w)
}

// headerFields lists the fields of the header of a stream between its magic and its checksum.
func (m *Manifest) headerFields(x *fields.Codec) {
	fields.Version(x, streamVersion)
	fields.Uint8(x, &m.DigestVersion)
	fields.Fixed64(x, &m.Applied)
	fields.Fixed64(x, &m.Clock)
	fields.Fixed64(x, &m.ImageBytes)
	fields.Fixed64(x, &m.Bodies)
	fields.Fixed64(x, &m.Digest)
	fields.Fixed64(x, &m.DigestTerm)
}

// appendStreamHeader appends the header of the stream of a snapshot.
func appendStreamHeader(h []byte, m *Manifest) []byte {
	x := fields.Encoder(append(h, streamMagic...))
	m.headerFields(&x)
	return binary.LittleEndian.AppendUint32(x.Buf, crc32.Checksum(x.Buf[len(h):], disk.Castagnoli))
}

// readStreamHeader reads what appendStreamHeader appends.
func readStreamHeader(r io.Reader) (m Manifest, err error) {
	var h [streamHeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return m, err
	}
	named, sum := h[:len(h)-crc32.Size], h[len(h)-crc32.Size:]
	if string(h[:len(streamMagic)]) != streamMagic || crc32.Checksum(named, disk.Castagnoli) != binary.LittleEndian.Uint32(sum) {
		return m, fmt.Errorf("header: %w", disk.ErrDamaged)
	}
	x := fields.Decoder(named[len(streamMagic):])
	if m.headerFields(&x); x.End() != nil {
		return m, fmt.Errorf("header: %w", x.Err())
	}
	return m, nil
}

func (s *snapshotStream) sendImage(w io.Writer) error {
	f, err := disk.Open(s.snap.files, filepath.Join(s.snap.Dir, imageFile))
	if err != nil {
		return fmt.Errorf("send snapshot: %w", err)
	}
	sum := crc32.New(disk.Castagnoli)
	n, err := io.Copy(io.MultiWriter(w, sum), disk.Reader(f))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n != s.snap.ImageBytes || sum.Sum32() != s.snap.ImageSum {
		return fmt.Errorf("send snapshot %s: image: checksum: %w", s.snap.Dir, disk.ErrDamaged)
	}
	_, err = w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// sendBodies loads the image once more to find the bodies that belong to it: this costs the memory of the
// image while a snapshot is sent, and saves writing a list with every snapshot.
func (s *snapshotStream) sendBodies(w io.Writer) error {
	machine := s.store.Machine(noBodies{})
	if err := s.snap.Load(machine); err != nil {
		return err
	}
	refs := make([]fsm.Ref, 0, s.snap.Bodies)
	machine.Refs(func(_ fsm.Owner, ref fsm.Ref) fsm.Ref {
		if ref.Segment != 0 {
			refs = append(refs, ref)
		}
		return ref
	})
	if uint64(len(refs)) != s.snap.Bodies {
		return fmt.Errorf("send snapshot %s: %d bodies where the manifest has %d: %w",
			s.snap.Dir, len(refs), s.snap.Bodies, disk.ErrDamaged)
	}
	_, err := s.store.Bodies.SendRecords(w, refs, nil)
	return err
}

func (s *Snapshot) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version:            raft.SnapshotVersionMax,
		ID:                 s.id,
		Index:              s.Index,
		Term:               s.Term,
		Configuration:      raft.DecodeConfiguration(s.Configuration),
		ConfigurationIndex: s.ConfigurationIndex,
		Size:               streamHeaderBytes + s.ImageBytes + 4 + s.BodyBytes,
	}
}
