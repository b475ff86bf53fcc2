package bodystore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// FillFromTail fills in deliveries from the cached tail of the active segment, without a system call, if all
// their bodies are there, and reports whether it did. The caller holds the machine.
func (b *Store) FillFromTail(ds []fsm.Delivery) bool {
	total := 0
	for i := range ds {
		for _, ref := range [2]fsm.Ref{ds[i].Body, ds[i].Patch} {
			if ref.Segment == 0 {
				continue
			}
			if _, ok := b.inTail(ref); !ok {
				return false
			}
			total += int(ref.Size)
		}
	}
	buf := make([]byte, 0, total)
	fill := func(ref fsm.Ref) []byte {
		if ref.Segment == 0 {
			return nil
		}
		body, _ := b.inTail(ref)
		start := len(buf)
		buf = append(buf, body...)
		return buf[start:len(buf):len(buf)]
	}
	for i := range ds {
		ds[i].Payload, ds[i].Patches = fill(ds[i].Body), fill(ds[i].Patch)
	}
	return true
}

// bodyRead is one body to read: into dst, a field of the delivery with that index.
type bodyRead struct {
	ref      fsm.Ref
	delivery int
	dst      *[]byte
}

// ReadBodies fills in Payload and Patches from the files. It reads adjacent records with one system call. It
// drops a delivery whose segment was deleted: the message was settled, or its lock ended, meanwhile.
func (b *Store) ReadBodies(ds []fsm.Delivery) ([]fsm.Delivery, error) {
	reads := make([]bodyRead, 0, len(ds))
	for i := range ds {
		if ds[i].Body.Segment != 0 {
			reads = append(reads, bodyRead{ds[i].Body, i, &ds[i].Payload})
		}
		if ds[i].Patch.Segment != 0 {
			reads = append(reads, bodyRead{ds[i].Patch, i, &ds[i].Patches})
		}
	}
	var gone map[int]bool
	for len(reads) > 0 {
		n, size := rangeLength(reads, func(r bodyRead) fsm.Ref { return r.ref }, readRangeBytesMax)
		buf := make([]byte, size)
		err := b.readAt(reads[0].ref, buf)
		switch {
		case errors.Is(err, errSegmentDeleted):
			if gone == nil {
				gone = make(map[int]bool)
			}
			for _, w := range reads[:n] {
				gone[w.delivery] = true
			}
		case err != nil:
			return nil, err
		default:
			if err := splitRange(buf, reads[:n]); err != nil {
				return nil, err
			}
		}
		reads = reads[n:]
	}
	if gone == nil {
		return ds, nil
	}
	i := -1
	return slices.DeleteFunc(ds, func(fsm.Delivery) bool { i++; return gone[i] }), nil
}

// rangeLength returns the number of reads at the front that are adjacent in a segment, and their bytes
// together: at most bytesMax, unless the first record is larger.
func rangeLength[T any](reads []T, refOf func(T) fsm.Ref, bytesMax int64) (n int, size int64) {
	prev := refOf(reads[0])
	size = RecordBytes(prev)
	for n = 1; n < len(reads); n++ {
		ref := refOf(reads[n])
		if ref.Segment != prev.Segment || int64(ref.Offset) != int64(prev.Offset)+RecordBytes(prev) ||
			size+RecordBytes(ref) > bytesMax {
			break
		}
		size += RecordBytes(ref)
		prev = ref
	}
	return n, size
}

// splitRange splits the bytes of adjacent records into their bodies.
func splitRange(buf []byte, run []bodyRead) error {
	for _, w := range run {
		_, body, err := recordBody(buf, w.ref.Size)
		if err != nil {
			return fmt.Errorf("segment %d at %d: %w", w.ref.Segment, w.ref.Offset, err)
		}
		*w.dst = body
		buf = buf[RecordBytes(w.ref):]
	}
	return nil
}

// SendRecords writes the records of bodies as stored in the segments, and verifies their checksums. It reads
// adjacent records with one system call into scratch, which it grows if needed and returns for the next call.
func (b *Store) SendRecords(w io.Writer, refs []fsm.Ref, scratch []byte) ([]byte, error) {
	for len(refs) > 0 {
		n, size := rangeLength(refs, func(ref fsm.Ref) fsm.Ref { return ref }, sendRangeBytesMax)
		if int64(len(scratch)) < size {
			scratch = make([]byte, size)
		}
		buf := scratch[:size]
		if err := b.readAt(refs[0], buf); err != nil {
			return scratch, fmt.Errorf("send bodies: %w", err)
		}
		rest := buf
		for _, ref := range refs[:n] {
			if _, _, err := recordBody(rest, ref.Size); err != nil {
				return scratch, fmt.Errorf("send bodies: segment %d at %d: %w", ref.Segment, ref.Offset, err)
			}
			rest = rest[RecordBytes(ref):]
		}
		if _, err := w.Write(buf); err != nil {
			return scratch, err
		}
		refs = refs[n:]
	}
	return scratch, nil
}

// Read implements fsm.Bodies. The caller holds the machine, so the tail does not change.
func (b *Store) Read(ref fsm.Ref) []byte {
	if ref.Segment == 0 {
		return nil
	}
	if body, ok := b.inTail(ref); ok {
		return slices.Clone(body)
	}
	buf := make([]byte, RecordBytes(ref))
	body, err := b.read(ref, buf)
	if err != nil {
		panic(Failure{fmt.Errorf("read body: %w", err)})
	}
	return body
}

// inTail returns a body from the tail.
func (b *Store) inTail(ref fsm.Ref) ([]byte, bool) {
	if b.active == nil || ref.Segment != b.active.Number || int64(ref.Offset) < b.tailStart {
		return nil, false
	}
	at := int64(ref.Offset) - b.tailStart + RecordHeaderBytes
	if at+int64(ref.Size) > int64(len(b.tail)) {
		return nil, false
	}
	return b.tail[at : at+int64(ref.Size)], true
}

// read reads one flushed record into buf and verifies it.
func (b *Store) read(ref fsm.Ref, buf []byte) ([]byte, error) {
	if err := b.readAt(ref, buf); err != nil {
		return nil, err
	}
	_, body, err := recordBody(buf, ref.Size)
	if err != nil {
		return nil, fmt.Errorf("segment %d at %d: %w", ref.Segment, ref.Offset, err)
	}
	return body, nil
}

// readAt fills buf from the offset of ref. It returns errSegmentDeleted for a segment that was deleted.
func (b *Store) readAt(ref fsm.Ref, buf []byte) error {
	b.mu.Lock()
	s := b.segments[ref.Segment]
	if s == nil {
		for _, d := range b.deleting {
			if d.segment.Number == ref.Segment {
				s = d.segment
			}
		}
	}
	unwritten := s != nil && s == b.active && int64(ref.Offset)+int64(len(buf)) > s.size
	b.mu.Unlock()
	switch {
	case s == nil:
		return errSegmentDeleted
	case unwritten:
		return ErrUnwritten
	}
	err := disk.ReadAt(s.file, buf, int64(ref.Offset))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrClosed):
		return errSegmentDeleted
	}
	return fmt.Errorf("read segment %s: %w", s.path, err)
}
