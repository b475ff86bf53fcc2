package fsm

import (
	"encoding/binary"
	"math"
)

// reader takes an encoding apart. The first error stays and every later read gives
// zeros, so callers check once, at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// end returns the first error; bytes left over are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail(errTrailing)
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(errFlag)
	}
	return v == 1
}

func (r *reader) fixed64() uint64 {
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
func (r *reader) uvarint() uint64 {
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

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail(errNumber)
		return 0
	}
	return uint32(v)
}

func (r *reader) instant() Instant {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail(errNumber)
		return 0
	}
	return Instant(v)
}

// bytes returns a piece of the input, capped so that an append copies it.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes()) }

// count reads how many items follow, each of at least least bytes. A count that the
// rest of the input cannot back is an error, so nothing is allocated for it.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.fail(errCount)
		return 0
	}
	return int(n)
}

func (r *reader) millis() Millis { return Millis(r.instant()) }

// limit fails with errOverLimit unless ok.
func (r *reader) limit(ok bool) {
	if !ok {
		r.fail(errOverLimit)
	}
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
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

func appendAddress(dst []byte, a Address) []byte {
	return append(binary.AppendUvarint(dst, uint64(a.Entity)), byte(a.Sub))
}

func (r *reader) address() Address {
	return Address{Entity: EntityID(r.uvarint()), Sub: SubQueue(r.byte())}
}

func appendLockID(dst []byte, l LockID) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.Sequence))
	return binary.AppendUvarint(dst, uint64(l.Epoch))
}

func (r *reader) lockID() LockID {
	return LockID{Sequence: SequenceNumber(r.uvarint()), Epoch: r.uint32()}
}

func appendNumbers(dst []byte, numbers []SequenceNumber) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(numbers)))
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func (r *reader) numbers() []SequenceNumber {
	list := make([]SequenceNumber, r.count(1))
	for i := range list {
		list[i] = SequenceNumber(r.uvarint())
	}
	return list
}

func appendDestination(dst []byte, d Destination) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(d.Partition)), uint64(d.Entity))
}

func (r *reader) destination() Destination {
	return Destination{Partition: PartitionID(r.uint32()), Entity: EntityID(r.uvarint())}
}

// The fewest bytes an item takes: what a count is checked against.
const (
	messageBytesMin    = 6 // four empty texts, two numbers
	lockBytesMin       = 2 // sequence, epoch
	settlementBytesMin = lockBytesMin + 5
)
