package bodystore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// Import writes segments beside the active one. They are retained for the snapshot to which they
// belong.
type Import struct {
	bodies *Store
	seg    *Segment
	w      *bufio.Writer
	list   []SegmentSize
	buf    []byte // of one record
}

// NewImport begins an import of records that come with a snapshot.
func (b *Store) NewImport() *Import {
	return &Import{bodies: b, buf: make([]byte, 0, importBufferBytes)}
}

// Record reads one record, verifies it and writes it to a new segment.
func (w *Import) Record(r io.Reader) (fsm.Ref, error) {
	record := w.buf[:RecordHeaderBytes]
	if _, err := io.ReadFull(r, record); err != nil {
		return fsm.Ref{}, err
	}
	size := binary.LittleEndian.Uint32(record[4:])
	if uint64(RecordHeaderBytes)+uint64(size) > uint64(cap(record)) {
		if size > recordBodyBytesMax {
			return fsm.Ref{}, fmt.Errorf("record of %d bytes: %w", size, disk.ErrDamaged)
		}
		record = append(make([]byte, 0, RecordHeaderBytes+int(size)), record...)
		w.buf = record
	}
	record = record[:RecordHeaderBytes+int(size)]
	if _, err := io.ReadFull(r, record[RecordHeaderBytes:]); err != nil {
		return fsm.Ref{}, err
	}
	if _, _, err := recordBody(record, size); err != nil {
		return fsm.Ref{}, err
	}
	ref, err := w.add(record)
	ref.Size = size
	return ref, err
}

func (w *Import) add(record []byte) (fsm.Ref, error) {
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
		w.seg, w.w = seg, bufio.NewWriterSize(io.NewOffsetWriter(seg.file, seg.size), importBufferBytes)
		w.list = append(w.list, SegmentSize{Number: seg.Number, Size: seg.size})
	}
	at := w.list[len(w.list)-1].Size
	if _, err := w.w.Write(record); err != nil {
		return fsm.Ref{}, fmt.Errorf("write segment %s: %w", w.seg.path, err)
	}
	w.list[len(w.list)-1].Size += int64(len(record))
	w.bodies.setSize(w.seg, at+int64(len(record)))
	return fsm.Ref{Segment: w.seg.Number, Offset: uint32(at)}, nil
}

// finishSegment flushes and closes the current segment.
func (w *Import) finishSegment() error {
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

// Finish ends the import and returns its segments, which are retained, also after an error.
func (w *Import) Finish(err error) ([]SegmentSize, error) {
	return w.list, errors.Join(err, w.finishSegment())
}
