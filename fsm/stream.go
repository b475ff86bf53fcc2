package fsm

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm/fields"
)

// generation counts the images of a state machine. Data with an older generation than the state
// machine may be shared with an image and is copied before it is written.
type generation uint64

// digest returns a hash of what write writes without references, which differ between replicas: two replicas that applied the
// same entries have the same digest.
func digest(write func(w io.Writer, refs bool) (int64, error)) uint64 {
	h := xxhash.New()
	_, _ = write(h, false) // a hash never fails
	return h.Sum64()
}

// The layout of an image:
//
//	version   1 byte   imageVersion
//	machine   1 byte   which state machine wrote it
//	state              depends on the state machine
//	checksum  4 bytes  CRC-32 (Castagnoli) of everything before, little endian
//
// and nothing follows it.
//
// The formats of both state machines have the same version.
const imageVersion byte = 0xA1

// settingsBytesMax is an upper bound for encoded settings.
const settingsBytesMax = userMetadataBytesMax + 2*(entityNameBytesMax+destinationBaseBytesMax) + 256

// recordBytesMax is an upper bound for an encoded member, partition, namespace or list of access rules,
// the largest of which has some 16 KiB.
const recordBytesMax = 32 << 10

// streamBytes is the size of the pieces in which an image is read and written.
const streamBytes = 64 << 10

var (
	errChecksum = errors.New("checksum does not match")
	errMachine  = errors.New("image of another state machine")
	errState    = errors.New("contradictory state")
)

func checksum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}

// streamWriter writes an image in pieces of about streamBytes. The first error stays.
type streamWriter struct {
	w    io.Writer
	buf  []byte
	n    int64
	sum  uint32
	err  error
	refs bool // write the locations of bodies; without them, images of all replicas are equal
}

func newStreamWriter(w io.Writer, machine byte, refs bool) *streamWriter {
	iw := &streamWriter{w: w, buf: make([]byte, 0, streamBytes+streamBytes/4), refs: refs}
	iw.byte(imageVersion)
	iw.byte(machine)
	return iw
}

// failed reports whether writing has failed.
func (w *streamWriter) failed() bool { return w.err != nil }

func (w *streamWriter) bytes(b []byte)    { w.buf = append(w.buf, b...) }
func (w *streamWriter) byte(v byte)       { w.buf = append(w.buf, v) }
func (w *streamWriter) uvarint(v uint64)  { w.buf = binary.AppendUvarint(w.buf, v) }
func (w *streamWriter) count(n int)       { w.uvarint(uint64(n)) }
func (w *streamWriter) fixed64(v uint64)  { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }
func (w *streamWriter) instant(t Instant) { w.uvarint(uint64(t)) }

// times writes the times of a state machine.
func (w *streamWriter) times(t Times) {
	w.instant(t.Wall)
	w.instant(t.Serving)
}

func (w *streamWriter) string(s string) { w.buf = fields.AppendText(w.buf, s) }
func (w *streamWriter) bool(v bool)     { w.buf = fields.AppendBool(w.buf, v) }

func (w *streamWriter) settings(s *EntitySettings) { w.sized(s.fields) }

func (w *streamWriter) address(a Address) {
	w.uvarint(uint64(a.Entity))
	w.byte(byte(a.Sub))
}

func (w *streamWriter) lockID(l LockID) {
	w.uvarint(uint64(l.Sequence))
	w.uvarint(uint64(l.Epoch))
}

// fields writes a record by the list of its fields.
func (w *streamWriter) fields(list func(x *fields.Codec)) {
	x := fields.Encoder(w.buf)
	list(&x)
	w.buf = x.Buf
}

// sized writes a record with its length before it.
func (w *streamWriter) sized(list func(x *fields.Codec)) {
	x := fields.Encoder(nil)
	list(&x)
	w.count(len(x.Buf))
	w.buf = append(w.buf, x.Buf...)
}

func (w *streamWriter) ref(r Ref) {
	if !w.refs {
		r.Segment, r.Offset = 0, 0
	}
	w.uvarint(uint64(r.Segment))
	w.uvarint(uint64(r.Offset))
	w.uvarint(uint64(r.Size))
}

// flushIfFull writes the buffer if it is full. Call it between items: an item is far smaller than
// the reserve beyond streamBytes.
func (w *streamWriter) flushIfFull() {
	if len(w.buf) >= streamBytes {
		w.flush()
	}
}

func (w *streamWriter) flush() {
	if w.err == nil {
		w.sum = checksum(w.sum, w.buf)
		var n int
		n, w.err = w.w.Write(w.buf)
		w.n += int64(n)
	}
	w.buf = w.buf[:0]
}

// rule writes a rule with its length before it.
func (w *streamWriter) rule(x *Rule) { w.sized(x.fields) }

// finish writes the checksum.
func (w *streamWriter) finish() (int64, error) {
	w.flush()
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(binary.LittleEndian.AppendUint32(nil, w.sum))
		w.n += int64(n)
	}
	return w.n, w.err
}

// streamReader reads an image. Like reader it keeps the first error and returns zeros from then on;
// unlike it, it does not know how many bytes follow, so lists grow as their items are read.
type streamReader struct {
	r           io.Reader
	buf         []byte
	pos, end    int
	summed      int // buf[:summed] is in sum
	sum         uint32
	err, endErr error // endErr: why there are no more bytes
}

func newStreamReader(r io.Reader, machine byte) *streamReader {
	ir := &streamReader{r: r, buf: make([]byte, streamBytes)}
	if version := ir.byte(); version != imageVersion {
		ir.fail(fields.UnknownVersion(version, imageVersion))
	}
	if ir.byte() != machine {
		ir.fail(errMachine)
	}
	return ir
}

// failed reports whether reading has failed.
func (r *streamReader) failed() bool { return r.err != nil }

func (r *streamReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// require fails with errState unless ok.
func (r *streamReader) require(ok bool) {
	if !ok {
		r.fail(errState)
	}
}

// fill reads more bytes; it returns false if there are none.
func (r *streamReader) fill() bool {
	if r.endErr != nil {
		return false
	}
	r.sum = checksum(r.sum, r.buf[r.summed:r.pos])
	r.end = copy(r.buf, r.buf[r.pos:r.end])
	r.pos, r.summed = 0, 0
	n, err := io.ReadAtLeast(r.r, r.buf[r.end:], 1)
	r.end += n
	r.endErr = err
	return n > 0
}

func (r *streamReader) byte() byte {
	if r.err != nil {
		return 0
	}
	if r.pos == r.end && !r.fill() {
		if errors.Is(r.endErr, io.EOF) {
			r.fail(fields.ErrShort)
		} else {
			r.fail(r.endErr)
		}
		return 0
	}
	v := r.buf[r.pos]
	r.pos++
	return v
}

func (r *streamReader) bool() bool {
	v := r.byte()
	r.require(v <= 1)
	return v == 1
}

func (r *streamReader) uvarint() uint64 {
	if r.err == nil && r.pos < r.end && r.buf[r.pos] < 0x80 {
		v := r.buf[r.pos]
		r.pos++
		return uint64(v)
	}
	v := uint64(0)
	for shift := 0; ; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		if shift == 63 && b > 1 || shift > 0 && b == 0 {
			r.fail(fields.ErrNumber)
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// uvarintMax reads a number that is at most limit.
func (r *streamReader) uvarintMax(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail(fields.ErrNumber)
		return 0
	}
	return v
}

func (r *streamReader) uint32() uint32   { return uint32(r.uvarintMax(math.MaxUint32)) }
func (r *streamReader) instant() Instant { return Instant(r.uvarintMax(math.MaxInt64)) }

// times reads the times of a state machine.
func (r *streamReader) times() Times { return Times{Wall: r.instant(), Serving: r.instant()} }

func (r *streamReader) fixed64() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = r.byte()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// string reads a text of at most limit bytes.
func (r *streamReader) string(limit int) string {
	n := int(r.uvarintMax(uint64(limit)))
	var b []byte
	for range n {
		if r.err != nil {
			return ""
		}
		b = append(b, r.byte())
	}
	return string(b)
}

// repeat reads a count, at most limit, and calls item as often, until the first error.
func (r *streamReader) repeat(limit uint64, item func()) {
	for n := r.uvarintMax(limit); n > 0 && r.err == nil; n-- {
		item()
	}
}

// fields reads a record by the list of its fields. The record has at most recordBytesMax bytes, and
// none of its fields aliases the input.
func (r *streamReader) fields(list func(x *fields.Codec)) {
	for r.err == nil && r.end-r.pos < recordBytesMax && r.fill() {
	}
	if r.err != nil {
		return
	}
	x := fields.Decoder(r.buf[r.pos:r.end])
	if list(&x); x.Err() != nil {
		r.fail(x.Err())
		return
	}
	r.pos = r.end - len(x.Buf)
}

// sized reads a record with its length, at most limit, before it.
func (r *streamReader) sized(limit int, list func(x *fields.Codec)) {
	x := fields.Decoder([]byte(r.string(limit)))
	list(&x)
	r.require(x.End() == nil)
}

// settings reads complete and valid settings.
func (r *streamReader) settings() (s EntitySettings) {
	r.sized(settingsBytesMax, s.fields)
	r.require(s == s.WithDefaults() && s.Validate() == nil)
	return s
}

// rule reads a rule.
func (r *streamReader) rule() (x Rule) {
	r.sized(ruleBytesMax+binary.MaxVarintLen64, x.fields)
	return x
}

func (r *streamReader) address() Address {
	a := Address{Entity: EntityID(r.uvarint()), Sub: SubQueue(r.byte())}
	r.require(a.valid() || a.canForward())
	return a
}

func (r *streamReader) lockID() LockID {
	return LockID{Sequence: SequenceNumber(r.uvarint()), Epoch: r.uint32()}
}

func (r *streamReader) ref() Ref {
	return Ref{Segment: r.uint32(), Offset: r.uint32(), Size: r.uint32()}
}

// finish checks the checksum and that nothing follows it.
func (r *streamReader) finish() error {
	if r.err != nil {
		return r.err
	}
	sum := checksum(r.sum, r.buf[r.summed:r.pos])
	var b [4]byte
	for i := range b {
		b[i] = r.byte()
	}
	switch {
	case r.err != nil:
	case binary.LittleEndian.Uint32(b[:]) != sum:
		r.fail(errChecksum)
	case r.pos < r.end || r.fill():
		r.fail(fields.ErrTrailing)
	case !errors.Is(r.endErr, io.EOF):
		r.fail(r.endErr)
	}
	return r.err
}
