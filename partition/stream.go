package partition

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// The stream of a snapshot to another member:
//
//	magic    4 bytes  "PKST"
//	version  1 byte   streamVersion
//	digest   1 byte   version of the rolling digest, 0 when it is not known
//	zero     2 bytes
//	applied  8 bytes
//	clock    8 bytes
//	image    8 bytes  its size
//	bodies   8 bytes  their number
//	digest   8 bytes  rolling digest up to applied
//	term     8 bytes  of the entry at applied
//	checksum 4 bytes  CRC-32C of the 56 bytes before it
//	image
//	checksum 4 bytes  CRC-32C of the image
//	records of the bodies, as in a segment, in the order of Machine.Refs
const (
	streamVersion       byte = 2
	streamHeaderBytes        = 60
	streamRangeBytesMax      = 1 << 20
)

var streamMagic = [4]byte{'P', 'K', 'S', 'T'} //nolint:gochecknoglobals // a constant in all but name

// noBodies is for a machine whose references are only listed.
type noBodies struct{}

func (noBodies) Append(fsm.Owner, []byte) fsm.Ref {
	panic("partition: append to a machine that is only read")
}

func (noBodies) Read(fsm.Ref) []byte { panic("partition: body read from a machine that is only read") }

func (noBodies) Release(fsm.Ref) { panic("partition: release in a machine that is only read") }

// snapshotStream reads a snapshot for sending. It does nothing before the first Read, because raft also opens
// snapshots for its own replica, which loads them from the folder.
type snapshotStream struct {
	store  *snapshotStore
	snap   *storedSnapshot
	pipe   *io.PipeReader
	done   chan struct{}
	closed bool
}

func (s *snapshotStream) Read(p []byte) (int, error) {
	if s.pipe == nil {
		r, w := io.Pipe()
		s.pipe, s.done = r, make(chan struct{})
		go func() {
			defer close(s.done)
			buf := bufio.NewWriterSize(w, copyBufferBytes)
			err := s.send(buf)
			if err == nil {
				err = buf.Flush()
			}
			if errors.Is(err, disk.ErrDamaged) {
				s.store.fail(err)
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
	}
	s.store.release(s.snap)
	return nil
}

// send writes the stream.
func (s *snapshotStream) send(w io.Writer) error {
	if _, err := w.Write(appendStreamHeader(nil, &s.snap.manifest)); err != nil {
		return err
	}
	if err := s.sendImage(w); err != nil {
		return err
	}
	return s.sendBodies(w)
}

// appendStreamHeader appends the header of the stream of a snapshot.
func appendStreamHeader(h []byte, m *manifest) []byte {
	from := len(h)
	h = append(h, streamMagic[:]...)
	h = append(h, streamVersion, m.DigestVersion, 0, 0)
	h = binary.LittleEndian.AppendUint64(h, m.Applied)
	h = binary.LittleEndian.AppendUint64(h, uint64(m.Clock))
	h = binary.LittleEndian.AppendUint64(h, uint64(m.ImageBytes))
	h = binary.LittleEndian.AppendUint64(h, m.Bodies)
	h = binary.LittleEndian.AppendUint64(h, m.Digest)
	h = binary.LittleEndian.AppendUint64(h, m.DigestTerm)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h[from:], disk.Castagnoli))
}

func (s *snapshotStream) sendImage(w io.Writer) error {
	f, err := os.Open(filepath.Join(s.snap.dir, imageFile))
	if err != nil {
		return fmt.Errorf("send snapshot: %w", err)
	}
	sum := crc32.New(disk.Castagnoli)
	n, err := io.Copy(io.MultiWriter(w, sum), f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n != s.snap.ImageBytes || sum.Sum32() != s.snap.ImageSum {
		return fmt.Errorf("send snapshot %s: image: checksum: %w", s.snap.dir, disk.ErrDamaged)
	}
	_, err = w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// sendBodies loads the image once more to find the bodies that belong to it: this costs the memory of the
// image while a snapshot is sent, and saves writing a list with every snapshot.
func (s *snapshotStream) sendBodies(w io.Writer) error {
	machine := s.store.machine(noBodies{})
	if err := s.snap.load(machine); err != nil {
		return err
	}
	reads := make([]bodyRead, 0, s.snap.Bodies)
	machine.Refs(func(_ fsm.Owner, ref fsm.Ref) fsm.Ref {
		if ref.Segment != 0 {
			reads = append(reads, bodyRead{ref: ref})
		}
		return ref
	})
	if uint64(len(reads)) != s.snap.Bodies {
		return fmt.Errorf("send snapshot %s: %d bodies where the manifest has %d: %w",
			s.snap.dir, len(reads), s.snap.Bodies, disk.ErrDamaged)
	}
	_, err := s.store.bodies.sendRecords(w, reads, nil)
	return err
}

// sendRecords writes the records of bodies as stored in the segments, and verifies their checksums. It reads
// adjacent records with one system call into scratch, which it grows if needed and returns for the next call.
func (b *bodyStore) sendRecords(w io.Writer, reads []bodyRead, scratch []byte) ([]byte, error) {
	for len(reads) > 0 {
		n, size := rangeLength(reads, streamRangeBytesMax)
		if int64(len(scratch)) < size {
			scratch = make([]byte, size)
		}
		buf := scratch[:size]
		if err := b.readAt(reads[0].ref, buf); err != nil {
			return scratch, fmt.Errorf("send bodies: %w", err)
		}
		rest := buf
		for _, read := range reads[:n] {
			if _, _, err := recordBody(rest, read.ref.Size); err != nil {
				return scratch, fmt.Errorf("send bodies: segment %d at %d: %w", read.ref.Segment, read.ref.Offset, err)
			}
			rest = rest[recordBytes(read.ref):]
		}
		if _, err := w.Write(buf); err != nil {
			return scratch, err
		}
		reads = reads[n:]
	}
	return scratch, nil
}

// receive reads a stream into the folder of the sink and into new segments.
func (s *snapshotSink) receive(r *bufio.Reader) error {
	h := make([]byte, streamHeaderBytes)
	if _, err := io.ReadFull(r, h); err != nil {
		return err
	}
	switch {
	case [4]byte(h[:4]) != streamMagic ||
		crc32.Checksum(h[:56], disk.Castagnoli) != binary.LittleEndian.Uint32(h[56:]):
		return fmt.Errorf("header: %w", disk.ErrDamaged)
	case h[4] != streamVersion:
		return fmt.Errorf("stream version %d is not known to this binary", h[4])
	}
	s.Applied = binary.LittleEndian.Uint64(h[8:])
	s.Clock = fsm.Instant(binary.LittleEndian.Uint64(h[16:]))
	s.ImageBytes = int64(binary.LittleEndian.Uint64(h[24:]))
	s.Bodies = binary.LittleEndian.Uint64(h[32:])
	s.digestState = digestState{binary.LittleEndian.Uint64(h[40:]), h[5], binary.LittleEndian.Uint64(h[48:])}
	s.Remapped = true
	if err := s.receiveImage(r); err != nil {
		return err
	}
	if err := s.receiveBodies(r); err != nil {
		return err
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("bytes left over: %w", disk.ErrDamaged)
	}
	return s.store.bodies.sync(s.Segments)
}

func (s *snapshotSink) receiveImage(r *bufio.Reader) error {
	out, err := createFile(filepath.Join(s.dir, imageFile))
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, r, s.ImageBytes)
	if err := out.finish(err); err != nil {
		return err
	}
	s.ImageSum = out.sum.Sum32()
	var sum [4]byte
	if _, err := io.ReadFull(r, sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(sum[:]) != s.ImageSum {
		return fmt.Errorf("image: checksum: %w", disk.ErrDamaged)
	}
	return nil
}

// receiveBodies copies the records into new segments and writes the reference of each to the file refs.
func (s *snapshotSink) receiveBodies(r *bufio.Reader) error {
	out, err := createFile(filepath.Join(s.dir, refsFile))
	if err != nil {
		return err
	}
	err = s.copyRecords(r, out)
	if err == nil {
		_, err = out.Write(binary.LittleEndian.AppendUint32(nil, out.sum.Sum32()))
	}
	return out.finish(err)
}

func (s *snapshotSink) copyRecords(r *bufio.Reader, refs io.Writer) (err error) {
	w := segmentImporter{bodies: s.store.bodies}
	defer func() {
		err = errors.Join(err, w.finish())
		s.Segments = w.list
	}()
	record := make([]byte, 0, copyBufferBytes)
	var ref [refBytes]byte
	for range s.Bodies {
		record = record[:recordHeaderBytes]
		if _, err := io.ReadFull(r, record); err != nil {
			return err
		}
		size := binary.LittleEndian.Uint32(record[4:])
		if uint64(recordHeaderBytes)+uint64(size) > uint64(cap(record)) {
			if size > recordBodyBytesMax {
				return fmt.Errorf("record of %d bytes: %w", size, disk.ErrDamaged)
			}
			record = append(make([]byte, 0, recordHeaderBytes+int(size)), record...)
		}
		record = record[:recordHeaderBytes+int(size)]
		if _, err := io.ReadFull(r, record[recordHeaderBytes:]); err != nil {
			return err
		}
		if _, _, err := recordBody(record, size); err != nil {
			return err
		}
		at, err := w.add(record)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(ref[0:], at.Segment)
		binary.LittleEndian.PutUint32(ref[4:], at.Offset)
		binary.LittleEndian.PutUint32(ref[8:], size)
		if _, err := refs.Write(ref[:]); err != nil {
			return err
		}
		s.BodyBytes += int64(len(record))
	}
	return nil
}

// segmentImporter writes segments beside the active one. They are retained for the snapshot to which they
// belong.
type segmentImporter struct {
	bodies *bodyStore
	seg    *segment
	w      *bufio.Writer
	list   []segmentSize
}

func (w *segmentImporter) add(record []byte) (fsm.Ref, error) {
	if w.seg != nil && w.seg.size+int64(len(record)) > w.bodies.segmentBytes {
		if err := w.finish(); err != nil {
			return fsm.Ref{}, err
		}
	}
	if w.seg == nil {
		seg, err := w.bodies.createImported()
		if err != nil {
			return fsm.Ref{}, err
		}
		if _, err := seg.file.Seek(seg.size, io.SeekStart); err != nil {
			return fsm.Ref{}, fmt.Errorf("write segment %s: %w", seg.path, err)
		}
		w.seg, w.w = seg, bufio.NewWriterSize(seg.file, copyBufferBytes)
		w.list = append(w.list, segmentSize{Number: seg.number, Size: seg.size})
	}
	at := w.list[len(w.list)-1].Size
	if _, err := w.w.Write(record); err != nil {
		return fsm.Ref{}, fmt.Errorf("write segment %s: %w", w.seg.path, err)
	}
	w.list[len(w.list)-1].Size += int64(len(record))
	w.bodies.setSize(w.seg, at+int64(len(record)))
	return fsm.Ref{Segment: w.seg.number, Offset: uint32(at)}, nil
}

// finish flushes and closes the current segment.
func (w *segmentImporter) finish() error {
	if w.seg == nil {
		return nil
	}
	err := w.w.Flush()
	w.bodies.closeSegment(w.seg)
	w.seg = nil
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}
