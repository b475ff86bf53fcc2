package fsm

import (
	"encoding/binary"
	"math"
)

// codec runs a list of fields in one of two directions: it appends them to b, or reads them from b.
// Types have a method fields that lists their fields once for both.
//
// When reading, the first error stays and every later read returns zeros, so callers check once, at
// the end.
type codec struct {
	b        []byte // encoded so far, or still to be decoded
	err      error  // of decoding
	encoding bool
}

// encoder returns a codec that appends to dst.
func encoder(dst []byte) codec { return codec{b: dst, encoding: true} }

func (r *codec) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// end returns the first error; trailing bytes are one.
func (r *codec) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail(errTrailing)
	}
	return r.err
}

func (r *codec) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *codec) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(errFlag)
	}
	return v == 1
}

func (r *codec) fixed64() uint64 {
	if len(r.b) < 8 {
		r.fail(errShort)
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// uvarint reads a number in its shortest form only: a second encoding of the same
// command would break the comparison of bytes.
func (r *codec) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.fail(errShort)
		return 0
	case n < 0 || r.b[n-1] == 0:
		r.fail(errNumber)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *codec) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail(errNumber)
		return 0
	}
	return uint32(v)
}

func (r *codec) instant() Instant {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail(errNumber)
		return 0
	}
	return Instant(v)
}

// bytes returns a slice of the input, with a capacity that makes an append copy it.
func (r *codec) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// count reads the number of following items, each of at least least bytes. A count that exceeds the
// rest of the input is an error, so no memory is allocated for it.
func (r *codec) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.fail(errCount)
		return 0
	}
	return int(n)
}

func (r *codec) millis() Millis { return Millis(r.instant()) }

// limit fails with errOverLimit unless ok.
func (r *codec) limit(ok bool) {
	if !ok {
		r.fail(errOverLimit)
	}
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// The minimum sizes of items, against which counts are checked.
const (
	messageBytesMin    = 6 // four empty texts, two numbers
	lockBytesMin       = 2 // sequence, epoch
	settlementBytesMin = lockBytesMin + 5
)

// The following functions are the elements of a list of fields. They append a field to x.b, or read it
// from there.

func field64[T ~uint64](x *codec, v *T) {
	if x.encoding {
		x.b = binary.AppendUvarint(x.b, uint64(*v))
		return
	}
	*v = T(x.uvarint())
}

func field32[T ~uint32](x *codec, v *T) {
	if x.encoding {
		x.b = binary.AppendUvarint(x.b, uint64(*v))
		return
	}
	*v = T(x.uint32())
}

func field8[T ~uint8](x *codec, v *T) {
	if x.encoding {
		x.b = append(x.b, byte(*v))
		return
	}
	*v = T(x.byte())
}

// fieldTime is a time or a duration.
func fieldTime[T ~int64](x *codec, v *T) {
	if x.encoding {
		x.b = binary.AppendUvarint(x.b, uint64(*v))
		return
	}
	*v = T(x.instant())
}

func fieldText[T ~string](x *codec, v *T) {
	if x.encoding {
		x.b = appendString(x.b, string(*v))
		return
	}
	*v = T(x.bytes())
}

// fieldBytes reads a slice of the input.
func fieldBytes(x *codec, v *[]byte) {
	if x.encoding {
		x.b = append(binary.AppendUvarint(x.b, uint64(len(*v))), *v...)
		return
	}
	*v = x.bytes()
}

func fieldBool(x *codec, v *bool) {
	if x.encoding {
		x.b = appendBool(x.b, *v)
		return
	}
	*v = x.bool()
}

func fieldFixed64(x *codec, v *uint64) {
	if x.encoding {
		x.b = binary.LittleEndian.AppendUint64(x.b, *v)
		return
	}
	*v = x.fixed64()
}

func fieldKey(x *codec, key *[16]byte) {
	switch {
	case x.encoding:
		x.b = append(x.b, key[:]...)
	case len(x.b) < len(key):
		x.fail(errShort)
	default:
		x.b = x.b[copy(key[:], x.b):]
	}
}

// fieldFlags is a byte with a bit for each flag, the lowest for the first. Encoding only reads the flags: an image
// is written while others read the same settings.
func fieldFlags(x *codec, flags ...*bool) {
	if x.encoding {
		var set byte
		for i, flag := range flags {
			if *flag {
				set |= 1 << i
			}
		}
		x.b = append(x.b, set)
		return
	}
	set := x.byte()
	if set>>len(flags) != 0 {
		x.fail(errFlag)
	}
	for i, flag := range flags {
		*flag = set&(1<<i) != 0
	}
}

// fieldVersion is a byte that must be the version.
func fieldVersion(x *codec, version byte) {
	found := version
	if field8(x, &found); found != version {
		x.fail(unknownVersion(found, version, version))
	}
}

// fieldLen is the length of a list whose items have at least so many bytes each. Decoding makes the
// list, in the memory that it has if that is large enough; the caller continues with the items.
func fieldLen[T any](x *codec, list *[]T, least int) int {
	if x.encoding {
		x.b = binary.AppendUvarint(x.b, uint64(len(*list)))
		return len(*list)
	}
	n := x.count(least)
	if n > cap(*list) {
		*list = make([]T, n)
	}
	*list = (*list)[:n]
	return n
}

func fieldNumbers(x *codec, list *[]SequenceNumber) {
	for i := range fieldLen(x, list, 1) {
		field64(x, &(*list)[i])
	}
}

func fieldCodes(x *codec, list *[]Code) {
	for i := range fieldLen(x, list, 1) {
		field8(x, &(*list)[i])
	}
}

func (a *Address) fields(x *codec) {
	field64(x, &a.Entity)
	field8(x, &a.Sub)
}

func (l *LockID) fields(x *codec) {
	field64(x, &l.Sequence)
	field32(x, &l.Epoch)
}

func (d *Destination) fields(x *codec) {
	field32(x, &d.Partition)
	field64(x, &d.Entity)
}
