package image

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// Generation counts the images of a state machine. Data with an older generation than the state
// machine may be shared with an image and is copied before it is written.
type Generation uint64

// Digest returns a hash of what write writes without references, which differ between replicas: two replicas that applied the
// same entries have the same digest.
func Digest(write func(w io.Writer, refs bool) (int64, error)) uint64 {
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
const settingsBytesMax = fsm.UserMetadataBytesMax + 2*(fsm.EntityNameBytesMax+fsm.DestinationBaseBytesMax) + 256

// recordBytesMax is an upper bound for an encoded member, partition, namespace or list of access rules,
// the largest of which has some 16 KiB.
const recordBytesMax = 32 << 10

// locationBytesMax is an upper bound for the segment and the offset of a body.
const locationBytesMax = 2 * binary.MaxVarintLen32

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

// Writer writes an image in pieces of about streamBytes. The first error stays.
type Writer struct {
	w    io.Writer
	buf  []byte
	n    int64
	sum  uint32
	err  error
	refs bool // write the locations of bodies; without them, images of all replicas are equal
}

// NewWriter returns a Writer for an image of a state machine. Without refs the locations of bodies are written as 0.
func NewWriter(w io.Writer, machine byte, refs bool) *Writer {
	iw := &Writer{w: w, buf: make([]byte, 0, streamBytes+streamBytes/4), refs: refs}
	iw.Byte(imageVersion)
	iw.Byte(machine)
	return iw
}

// Failed reports whether writing has failed.
func (w *Writer) Failed() bool { return w.err != nil }

// Bytes writes bytes without their length.
func (w *Writer) Bytes(b []byte) { w.buf = append(w.buf, b...) }

// Byte writes a byte.
func (w *Writer) Byte(v byte) { w.buf = append(w.buf, v) }

// Uvarint writes a number in its shortest form.
func (w *Writer) Uvarint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }

// Count writes the number of items that follow.
func (w *Writer) Count(n int) { w.Uvarint(uint64(n)) }

// Fixed64 writes a number in 8 bytes.
func (w *Writer) Fixed64(v uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }

// Instant writes a time.
func (w *Writer) Instant(t fsm.Instant) { w.Uvarint(uint64(t)) }

// Times writes the times of a state machine.
func (w *Writer) Times(t fsm.Times) {
	w.Instant(t.Wall)
	w.Instant(t.Serving)
}

// Text writes a text with its length before it.
func (w *Writer) Text(s string) { w.buf = fields.AppendText(w.buf, s) }

// Bool writes a byte, 0 or 1.
func (w *Writer) Bool(v bool) { w.buf = fields.AppendBool(w.buf, v) }

// Settings writes settings with their length before them.
func (w *Writer) Settings(s *fsm.EntitySettings) { w.sized(s.Fields) }

// Address writes an address.
func (w *Writer) Address(a fsm.Address) {
	w.Uvarint(uint64(a.Entity))
	w.Byte(byte(a.Sub))
}

// LockID writes the id of a lock.
func (w *Writer) LockID(l fsm.LockID) {
	w.Uvarint(uint64(l.Sequence))
	w.Uvarint(uint64(l.Epoch))
}

// Fields writes a record by the list of its fields.
func (w *Writer) Fields(list func(x *fields.Codec)) {
	x := fields.Encoder(w.buf)
	list(&x)
	w.buf = x.Buf
}

// sized writes a record with its length before it.
func (w *Writer) sized(list func(x *fields.Codec)) {
	x := fields.Encoder(nil)
	list(&x)
	w.Count(len(x.Buf))
	w.buf = append(w.buf, x.Buf...)
}

// Ref writes the location of a body, if the Writer writes locations, and its size.
func (w *Writer) Ref(r fsm.Ref) {
	if !w.refs {
		r.Segment, r.Offset = 0, 0
	}
	w.Uvarint(uint64(r.Segment))
	w.Uvarint(uint64(r.Offset))
	w.Uvarint(uint64(r.Size))
}

// FlushIfFull writes the buffer if it is full. Call it between items: an item is far smaller than
// the reserve beyond streamBytes.
func (w *Writer) FlushIfFull() {
	if len(w.buf) >= streamBytes {
		w.flush()
	}
}

func (w *Writer) flush() {
	if w.err == nil {
		w.sum = checksum(w.sum, w.buf)
		var n int
		n, w.err = w.w.Write(w.buf)
		w.n += int64(n)
	}
	w.buf = w.buf[:0]
}

// Rule writes a rule with its length before it.
func (w *Writer) Rule(x *fsm.Rule) { w.sized(x.Fields) }

// Finish writes the checksum.
func (w *Writer) Finish() (int64, error) {
	w.flush()
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(binary.LittleEndian.AppendUint32(nil, w.sum))
		w.n += int64(n)
	}
	return w.n, w.err
}

// Reader reads an image. Like reader it keeps the first error and returns zeros from then on;
// unlike it, it does not know how many bytes follow, so lists grow as their items are read.
type Reader struct {
	r           io.Reader
	buf         []byte
	pos, end    int
	summed      int // buf[:summed] is in sum
	sum         uint32
	digest      *stateDigest // nil unless it is computed, and after Finish
	finalDigest uint64
	err, endErr error // endErr: why there are no more bytes
}

// stateDigest computes the digest of a state while its image is read.
type stateDigest struct {
	hash   *xxhash.Digest
	sum    uint32
	hashed int // Reader.buf[:hashed] is in hash, or left out
}

func (d *stateDigest) add(b []byte) {
	_, _ = d.hash.Write(b) // a hash never fails
	d.sum = checksum(d.sum, b)
}

// NewReader returns a Reader of an image of a state machine: MachineQueues or MachineCatalog.
func NewReader(r io.Reader, machine byte) *Reader { return newReader(r, machine, nil) }

// NewDigestReader is NewReader for a Reader that also computes the digest of the state.
func NewDigestReader(r io.Reader, machine byte) *Reader {
	return newReader(r, machine, &stateDigest{hash: xxhash.New()})
}

func newReader(r io.Reader, machine byte, digest *stateDigest) *Reader {
	ir := &Reader{r: r, buf: make([]byte, streamBytes), digest: digest}
	if version := ir.Byte(); version != imageVersion {
		ir.fail(fields.UnknownVersion(version, imageVersion))
	}
	if ir.Byte() != machine {
		ir.fail(errMachine)
	}
	return ir
}

// StateDigest returns the [Digest] of the state that was read. The Reader is from NewDigestReader, and Finish has returned nil.
func (r *Reader) StateDigest() uint64 { return r.finalDigest }

// digestRead adds what was read since the last call to the digest.
func (r *Reader) digestRead() {
	if d := r.digest; d != nil {
		d.add(r.buf[d.hashed:r.pos])
		d.hashed = r.pos
	}
}

// Failed reports whether reading has failed.
func (r *Reader) Failed() bool { return r.err != nil }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Require fails with errState unless ok.
func (r *Reader) Require(ok bool) {
	if !ok {
		r.fail(errState)
	}
}

// fill reads more bytes; it returns false if there are none.
func (r *Reader) fill() bool {
	if r.endErr != nil {
		return false
	}
	r.sum = checksum(r.sum, r.buf[r.summed:r.pos])
	if r.digest != nil {
		r.digestRead()
		r.digest.hashed = 0
	}
	r.end = copy(r.buf, r.buf[r.pos:r.end])
	r.pos, r.summed = 0, 0
	n, err := io.ReadAtLeast(r.r, r.buf[r.end:], 1)
	r.end += n
	r.endErr = err
	return n > 0
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
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

// Bool reads a byte that is 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	r.Require(v <= 1)
	return v == 1
}

// Uvarint reads a number, which must have its shortest form.
func (r *Reader) Uvarint() uint64 {
	if r.err == nil && r.pos < r.end && r.buf[r.pos] < 0x80 {
		v := r.buf[r.pos]
		r.pos++
		return uint64(v)
	}
	v := uint64(0)
	for shift := 0; ; shift += 7 {
		b := r.Byte()
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

// UvarintMax reads a number that is at most limit.
func (r *Reader) UvarintMax(limit uint64) uint64 {
	v := r.Uvarint()
	if v > limit {
		r.fail(fields.ErrNumber)
		return 0
	}
	return v
}

// Uint32 reads a number of 32 bits.
func (r *Reader) Uint32() uint32 { return uint32(r.UvarintMax(math.MaxUint32)) }

// Instant reads a time.
func (r *Reader) Instant() fsm.Instant { return fsm.Instant(r.UvarintMax(math.MaxInt64)) }

// Times reads the times of a state machine.
func (r *Reader) Times() fsm.Times { return fsm.Times{Wall: r.Instant(), Serving: r.Instant()} }

// Fixed64 reads a number of 8 bytes.
func (r *Reader) Fixed64() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = r.Byte()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// Text reads a text of at most limit bytes.
func (r *Reader) Text(limit int) string {
	n := int(r.UvarintMax(uint64(limit)))
	var b []byte
	for range n {
		if r.err != nil {
			return ""
		}
		b = append(b, r.Byte())
	}
	return string(b)
}

// Repeat reads a count, at most limit, and calls item as often, until the first error.
func (r *Reader) Repeat(limit uint64, item func()) {
	for n := r.UvarintMax(limit); n > 0 && r.err == nil; n-- {
		item()
	}
}

// Fields reads a record by the list of its fields. The record has at most recordBytesMax bytes, and
// none of its fields aliases the input.
func (r *Reader) Fields(list func(x *fields.Codec)) {
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
func (r *Reader) sized(limit int, list func(x *fields.Codec)) {
	x := fields.Decoder([]byte(r.Text(limit)))
	list(&x)
	r.Require(x.End() == nil)
}

// Settings reads complete and valid settings.
func (r *Reader) Settings() (s fsm.EntitySettings) {
	r.sized(settingsBytesMax, s.Fields)
	r.Require(s == s.WithDefaults() && s.Validate() == nil)
	return s
}

// Rule reads a rule.
func (r *Reader) Rule() (x fsm.Rule) {
	r.sized(fsm.RuleBytesMax+binary.MaxVarintLen64, x.Fields)
	return x
}

// Address reads an address of a sub-queue that exists.
func (r *Reader) Address() fsm.Address {
	a := fsm.Address{Entity: fsm.EntityID(r.Uvarint()), Sub: fsm.SubQueue(r.Byte())}
	r.Require(a.Valid() || a.CanForward())
	return a
}

// LockID reads the id of a lock.
func (r *Reader) LockID() fsm.LockID {
	return fsm.LockID{Sequence: fsm.SequenceNumber(r.Uvarint()), Epoch: r.Uint32()}
}

// Ref reads the location of a body.
func (r *Reader) Ref() fsm.Ref {
	if r.digest == nil {
		return fsm.Ref{Segment: r.Uint32(), Offset: r.Uint32(), Size: r.Uint32()}
	}
	for r.end-r.pos < locationBytesMax && r.fill() { // so that no later fill digests a part of the location
	}
	r.digestRead()
	ref := fsm.Ref{Segment: r.Uint32(), Offset: r.Uint32()}
	r.digest.add([]byte{0, 0}) // as a Writer without refs
	r.digest.hashed = r.pos
	ref.Size = r.Uint32()
	return ref
}

// Finish checks the checksum and that nothing follows it.
func (r *Reader) Finish() error {
	if r.err != nil {
		return r.err
	}
	sum := checksum(r.sum, r.buf[r.summed:r.pos])
	r.digestRead()
	if d := r.digest; d != nil {
		d.add(binary.LittleEndian.AppendUint32(nil, d.sum))
		r.finalDigest, r.digest = d.hash.Sum64(), nil // what follows is not part of it
	}
	var b [4]byte
	for i := range b {
		b[i] = r.Byte()
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
