package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
)

// The limits of frames between members.
const (
	FrameBytesMax        = 32 << 20 // of one frame, without its length
	FrameHeaderBytes     = 9        // kind and id
	frameLengthBytes     = 4
	readChunkBytes       = 64 << 10
	writeBufferKeepBytes = 1 << 20 // a larger write buffer is not kept for reuse
	requestBufferBytes   = 32 << 20
	answerBufferBytes    = 256 << 20
	longFrameBytes       = 64 << 10         // the body of a reply that is written alone has more
	writeChunkBytes      = 64 << 10         // written with one deadline
	writeChunkTimeout    = 10 * time.Second // for one chunk, to a member that stopped reading
)

// frameKind is the kind of a frame.
type frameKind byte

// The kinds of frames. The asking member sends the first group, the serving one the second.
const (
	frameSubmit frameKind = 1 // requestHead, command
	frameLock   frameKind = 2 // requestHead, command: a LockMessages or AcceptSession
	frameCancel frameKind = 3 // ends the wait of the lock with the same id
	frameQuery  frameKind = 4 // QueryKind, arguments
	framePing   frameKind = 5

	frameAnswer frameKind = 33 // answerHead, result: to submit and lock
	frameReply  frameKind = 34 // fields of a Reply, its body: to query
	framePong   frameKind = 35 // pongHead
)

var (
	// ErrFrame means that a frame is malformed; the stream can no longer be used.
	ErrFrame      = errors.New("frame cannot be read")
	errBufferFull = errors.New("too many bytes wait to be written")
	// ErrClosed means that the stream is closed, by either side.
	ErrClosed = errors.New("stream is closed")
)

// A frame on the wire:
//
//	length  4 bytes, little endian, of what follows: 9 to frameBytesMax
//	kind    1 byte
//	id      8 bytes, little endian: given by the asking member, returned in the answer
//	body

// frameWriter collects frames; one goroutine (writeTo) writes all collected frames with one
// write, and long ones one at a time between these. Its other methods are safe for concurrent use.
type frameWriter struct {
	limit int // bytes that may be collected; a frame may exceed it

	mu         sync.Mutex
	pending    []byte
	frameStart int      // where the frame being built begins
	long       [][]byte // frames that are written one at a time
	longBytes  int
	closed     bool
	wake       chan struct{} // holds one
}

func newFrameWriter(limit int) *frameWriter {
	return &frameWriter{limit: limit, wake: make(chan struct{}, 1)}
}

// begin locks the writer and returns the buffer with the header of a frame; the caller appends the
// body and passes the buffer to end. After an error nothing is locked.
func (o *frameWriter) begin(kind frameKind, id uint64) ([]byte, error) {
	o.mu.Lock()
	if err := o.check(); err != nil {
		o.mu.Unlock()
		return nil, err
	}
	o.frameStart = len(o.pending)
	return appendFrameHeader(o.pending, kind, id), nil
}

// check returns why no frame can be added. mu is held.
func (o *frameWriter) check() error {
	switch {
	case o.closed:
		return ErrClosed
	case len(o.pending)+o.longBytes > o.limit:
		return errBufferFull
	}
	return nil
}

// appendFrameHeader appends the header of a frame, without its length.
func appendFrameHeader(b []byte, kind frameKind, id uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 0, 0, 0, 0, byte(kind)), id)
}

// addLong adds a frame that was built from its header on. It is written behind the frames that begin and end have added, also
// those added later until its turn: these do not wait for a copy of it, and each for one long frame at most.
func (o *frameWriter) addLong(frame []byte) error {
	size := len(frame) - frameLengthBytes
	if size > FrameBytesMax {
		return errBufferFull
	}
	binary.LittleEndian.PutUint32(frame, uint32(size))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.check(); err != nil {
		return err
	}
	o.long, o.longBytes = append(o.long, frame), o.longBytes+len(frame)
	notify.WakeUp(o.wake)
	return nil
}

// end completes the frame and unlocks the writer.
func (o *frameWriter) end(buf []byte) error {
	size := len(buf) - o.frameStart - frameLengthBytes
	if size > FrameBytesMax {
		o.pending = buf[:o.frameStart]
		o.mu.Unlock()
		return errBufferFull
	}
	binary.LittleEndian.PutUint32(buf[o.frameStart:], uint32(size))
	o.pending = buf
	o.mu.Unlock()
	notify.WakeUp(o.wake)
	return nil
}

// close makes every later begin fail and ends writeTo.
func (o *frameWriter) close() {
	o.mu.Lock()
	o.closed = true
	o.pending, o.long, o.longBytes = nil, nil, 0
	o.mu.Unlock()
	notify.WakeUp(o.wake)
}

// writeTo writes the collected frames until the writer is closed or a write fails. The deadline is for progress,
// not for the whole: what was collected may take minutes on a slow network.
func (o *frameWriter) writeTo(conn net.Conn) error {
	var spare []byte
	for {
		<-o.wake
		o.mu.Lock()
		buf, closed := o.pending, o.closed
		o.pending = spare
		var long []byte
		if len(o.long) > 0 {
			long = o.long[0]
			o.long, o.longBytes = slices.Delete(o.long, 0, 1), o.longBytes-len(long)
		}
		if len(o.long) > 0 {
			notify.WakeUp(o.wake)
		}
		o.mu.Unlock()
		if closed {
			return nil
		}
		if err := writeChunks(conn, buf); err != nil {
			return err
		}
		if err := writeChunks(conn, long); err != nil {
			return err
		}
		spare = nil
		if cap(buf) <= writeBufferKeepBytes {
			spare = buf[:0]
		}
	}
}

// writeChunks writes with a deadline for each chunk.
func writeChunks(conn net.Conn, buf []byte) error {
	for chunk := range slices.Chunk(buf, writeChunkBytes) {
		if err := conn.SetWriteDeadline(time.Now().Add(writeChunkTimeout)); err != nil {
			return err
		}
		if _, err := conn.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// frameReader reads frames without copying them: bodies point into the chunk that was read, and
// it never overwrites bytes of a returned body.
type frameReader struct {
	from  io.Reader
	part  func() error // called after a read that left a frame incomplete; an error ends the stream
	chunk []byte
	start int // of the bytes that were read and not yet returned
	end   int
}

// next returns one frame. The body stays valid and belongs to the caller.
func (r *frameReader) next() (kind frameKind, id uint64, body []byte, err error) {
	if err := r.readAtLeast(frameLengthBytes); err != nil {
		return 0, 0, nil, err
	}
	size := int(binary.LittleEndian.Uint32(r.chunk[r.start:]))
	if size < FrameHeaderBytes || size > FrameBytesMax {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes long", ErrFrame, size)
	}
	if err := r.readAtLeast(frameLengthBytes + size); err != nil {
		return 0, 0, nil, err
	}
	frame := r.chunk[r.start+frameLengthBytes : r.start+frameLengthBytes+size : r.start+frameLengthBytes+size]
	r.start += frameLengthBytes + size
	return frameKind(frame[0]), binary.LittleEndian.Uint64(frame[1:]), frame[FrameHeaderBytes:], nil
}

// readAtLeast reads until n bytes are buffered. It allocates as bytes arrive, at most twice their
// number, so a length without following bytes allocates nothing.
func (r *frameReader) readAtLeast(n int) error {
	for r.end-r.start < n {
		if r.end == len(r.chunk) {
			have := r.end - r.start
			chunk := make([]byte, max(readChunkBytes, min(n, 2*have)))
			copy(chunk, r.chunk[r.start:r.end])
			r.chunk, r.start, r.end = chunk, 0, have
		}
		got, err := r.from.Read(r.chunk[r.end:])
		r.end += got
		switch {
		case r.end-r.start >= n:
			return nil
		case err != nil:
			return err
		}
		if err := r.part(); err != nil {
			return err
		}
	}
	return nil
}
