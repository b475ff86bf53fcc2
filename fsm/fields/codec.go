package fields

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Errors of bytes that do not decode.
var (
	ErrShort     = errors.New("unexpected end")
	ErrVersion   = errors.New("unknown version")
	ErrTrailing  = errors.New("trailing bytes")
	ErrNumber    = errors.New("number is too large or not in its shortest form")
	ErrCount     = errors.New("count exceeds the bytes that follow")
	ErrFlag      = errors.New("unknown flag")
	ErrOverLimit = errors.New("over the limit")
)

// UnknownVersion returns an error that names the version byte found and the one that is read. It wraps [ErrVersion].
func UnknownVersion(found, known byte) error {
	return fmt.Errorf("%w 0x%02x: this build reads 0x%02x", ErrVersion, found, known)
}

// Codec runs a list of fields in one of two directions: it appends them to Buf, or reads them from Buf.
//
// When reading, the first error stays and every later read returns zeros, so callers check once, at the end.
type Codec struct {
	Buf      []byte // encoded so far, or still to be decoded
	err      error  // of decoding
	encoding bool
}

// Encoder returns a codec that appends to dst.
func Encoder(dst []byte) Codec { return Codec{Buf: dst, encoding: true} }

// Decoder returns a codec that reads b. Bytes that it returns alias b.
func Decoder(b []byte) Codec { return Codec{Buf: b} }

// Encoding reports whether the codec encodes.
func (x *Codec) Encoding() bool { return x.encoding }

// Err returns the first error.
func (x *Codec) Err() error { return x.err }

// Fail records an error, unless there is one already, and drops the bytes that remain.
func (x *Codec) Fail(err error) {
	if x.err == nil {
		x.err = err
	}
	x.Buf = nil
}

// End returns the first error; trailing bytes are one.
func (x *Codec) End() error {
	if x.err == nil && len(x.Buf) != 0 {
		x.Fail(ErrTrailing)
	}
	return x.err
}

// Limit fails with [ErrOverLimit] unless ok.
func (x *Codec) Limit(ok bool) {
	if !ok {
		x.Fail(ErrOverLimit)
	}
}

// Byte reads a byte.
func (x *Codec) Byte() byte {
	if len(x.Buf) == 0 {
		x.Fail(ErrShort)
		return 0
	}
	v := x.Buf[0]
	x.Buf = x.Buf[1:]
	return v
}

// Bool reads a byte that is 0 or 1.
func (x *Codec) Bool() bool {
	v := x.Byte()
	if v > 1 {
		x.Fail(ErrFlag)
	}
	return v == 1
}

// Fixed64 reads 8 bytes.
func (x *Codec) Fixed64() uint64 {
	if len(x.Buf) < 8 {
		x.Fail(ErrShort)
		return 0
	}
	v := binary.LittleEndian.Uint64(x.Buf)
	x.Buf = x.Buf[8:]
	return v
}

// Fixed32 reads 4 bytes.
func (x *Codec) Fixed32() uint32 {
	if len(x.Buf) < 4 {
		x.Fail(ErrShort)
		return 0
	}
	v := binary.LittleEndian.Uint32(x.Buf)
	x.Buf = x.Buf[4:]
	return v
}

// Uvarint reads a number in its shortest form only: a second encoding of the same record would break the comparison
// of bytes.
func (x *Codec) Uvarint() uint64 {
	if len(x.Buf) > 0 && x.Buf[0] < 0x80 {
		v := x.Buf[0]
		x.Buf = x.Buf[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(x.Buf)
	switch {
	case n == 0:
		x.Fail(ErrShort)
		return 0
	case n < 0 || x.Buf[n-1] == 0:
		x.Fail(ErrNumber)
		return 0
	}
	x.Buf = x.Buf[n:]
	return v
}

// Uint32 reads a uvarint of at most 32 bits.
func (x *Codec) Uint32() uint32 {
	v := x.Uvarint()
	if v > math.MaxUint32 {
		x.Fail(ErrNumber)
		return 0
	}
	return uint32(v)
}

// Int64 reads a uvarint of at most 63 bits.
func (x *Codec) Int64() int64 {
	v := x.Uvarint()
	if v > math.MaxInt64 {
		x.Fail(ErrNumber)
		return 0
	}
	return int64(v)
}

// Bytes reads bytes with their length before them. They alias the input, with a capacity that makes an append copy
// them.
func (x *Codec) Bytes() []byte {
	n := x.Uvarint()
	if n > uint64(len(x.Buf)) {
		x.Fail(ErrShort)
		return nil
	}
	v := x.Buf[:n:n]
	x.Buf = x.Buf[n:]
	return v
}

// Take reads so many bytes, which alias the input; nil if there are none to read.
func (x *Codec) Take(n int) []byte {
	if n > len(x.Buf) {
		x.Fail(ErrShort)
	}
	if n == 0 || x.err != nil {
		return nil
	}
	v := x.Buf[:n:n]
	x.Buf = x.Buf[n:]
	return v
}

// Count reads the number of following items, each of at least so many bytes. A count that exceeds the rest of the
// input is an error, so no memory is allocated for it.
func (x *Codec) Count(least int) int {
	n := x.Uvarint()
	if n > uint64(len(x.Buf)/least) {
		x.Fail(ErrCount)
		return 0
	}
	return int(n)
}

// AppendText appends a text with its length before it.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendBool appends a byte that is 0 or 1.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
