package partition

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// bodyImport writes segments beside the active one. They are retained for the snapshot to which they
// belong.
type bodyImport struct {
	bodies *bodyStore
	seg    *segment
	w      *bufio.Writer
	list   []segmentSize
	buf    []byte // of one record
}

// newImport begins an import of records that come with a snapshot.
func (b *bodyStore) newImport() *bodyImport {
	return &bodyImport{bodies: b, buf: make([]byte, 0, importBufferBytes)}
}

// record reads one record, verifies it and writes it to a new segment.
func (w *bodyImport) record(r io.Reader) (fsm.Ref, error) {
	record := w.buf[:recordHeaderBytes]
	if _, err := io.ReadFull(r, record); err != nil {
		return fsm.Ref{}, err
	}
	size := binary.LittleEndian.Uint32(record[4:])
	if uint64(recordHeaderBytes)+uint64(size) > uint64(cap(record)) {
		if size > recordBodyBytesMax {
			return fsm.Ref{}, fmt.Errorf("record of %d bytes: %w", size, disk.ErrDamaged)
		}
		record = append(make([]byte, 0, recordHeaderBytes+int(size)), record...)
		w.buf = record
	}
	record = record[:recordHeaderBytes+int(size)]
	if _, err := io.ReadFull(r, record[recordHeaderBytes:]); err != nil {
		return fsm.Ref{}, err
	}
	if _, _, err := recordBody(record, size); err != nil {
		return fsm.Ref{}, err
	}
	ref, err := w.add(record)
	ref.Size = size
	return ref, err
}

func (w *bodyImport) add(record []byte) (fsm.Ref, error) {
	if w.seg != nil && w.seg.size+int64(len(record)) > w.bodies.segmentBytes {
		if err := w.finishSegment(); err != nil {
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
		w.seg, w.w = seg, bufio.NewWriterSize(seg.file, importBufferBytes)
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

// finishSegment flushes and closes the current segment.
func (w *bodyImport) finishSegment() error {
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

// finish ends the import and returns its segments, which are retained, also after an error.
func (w *bodyImport) finish(err error) ([]segmentSize, error) {
	return w.list, errors.Join(err, w.finishSegment())
}
