package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// Char is an AMQP char: one UTF-32 code point (part 1, 1.6.16).
type Char rune

// Raw is one encoded value with its constructor. AppendValue copies it unchanged. DecodeValue returns Raw for
// the decimal types (part 1, 1.6.13 to 1.6.15), which Go has no type for, so that they can be passed on bit
// for bit, and for arrays of described elements.
type Raw []byte

// AppendValue appends v in the shortest encoding of its type (part 1, 1.6) and returns the extended slice. The
// Go types are those that DecodeValue returns, and *Received, *Accepted, *Rejected, *Released, *Modified,
// *Declared, *TransactionalState, *Declare, *Discharge, *Error, and []Symbol, which is written as "multiple"
// (part 1, 1.4): null if empty, otherwise an array. int is written as long. A value of any other type, and a
// nil pointer, is written as null. An empty list is written as list8, never as list0.
func AppendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, codeNull)
	case bool:
		return appendBool(dst, v)
	case string:
		return AppendString(dst, v)
	case Symbol:
		return AppendSymbol(dst, v)
	case []byte:
		return AppendBinary(dst, v)
	case uint32:
		return appendUint(dst, v)
	case uint64:
		return appendUlong(dst, v)
	case int32:
		return AppendInt(dst, v)
	case int64:
		return AppendLong(dst, v)
	case int:
		return AppendLong(dst, int64(v))
	case time.Time:
		return appendTimestamp(dst, v)
	case UUID:
		return AppendUUID(dst, v)
	case Map:
		return AppendMap(dst, v)
	case []any:
		return appendListValue(dst, v)
	case Array:
		return appendArray(dst, v)
	case []Symbol:
		return appendMultiple(dst, v)
	case Raw:
		return append(dst, v...)
	case Described:
		dst = append(dst, codeDescribed)
		dst = AppendValue(dst, v.Descriptor)
		return AppendValue(dst, v.Value)
	}
	return appendOther(dst, v)
}

// appendOther continues AppendValue for types that are rare.
func appendOther(dst []byte, v any) []byte {
	switch v := v.(type) {
	case uint8:
		return append(dst, codeUbyte, v)
	case uint16:
		return appendUshort(dst, v)
	case int8:
		return append(dst, codeByte, byte(v))
	case int16:
		return AppendShort(dst, v)
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, codeFloat), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, codeDouble), math.Float64bits(v))
	case Char:
		return binary.BigEndian.AppendUint32(append(dst, codeChar), uint32(v))
	}
	return appendState(dst, v)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, codeTrue)
	}
	return append(dst, codeFalse)
}

func appendUshort(dst []byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, codeUshort), v)
}

func appendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, codeUint0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeUint), v)
}

func appendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, codeUlong0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeUlong), v)
}

// AppendShort appends an AMQP short (part 1, 1.6.8).
func AppendShort(dst []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, codeShort), uint16(v))
}

// AppendInt appends an AMQP int (part 1, 1.6.9).
func AppendInt(dst []byte, v int32) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, codeSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeInt), uint32(v))
}

// AppendLong appends an AMQP long (part 1, 1.6.10).
func AppendLong(dst []byte, v int64) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, codeSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeLong), uint64(v))
}

// appendTimestamp appends an AMQP timestamp: milliseconds since the Unix epoch
// (part 1, 1.6.17).
func appendTimestamp(dst []byte, t time.Time) []byte {
	return AppendMillis(dst, t.UnixMilli())
}

// AppendMillis appends an AMQP timestamp given in milliseconds since the Unix epoch.
func AppendMillis(dst []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, codeTimestamp), uint64(ms))
}

// AppendUUID appends an AMQP uuid (part 1, 1.6.18).
func AppendUUID(dst []byte, u UUID) []byte {
	return append(append(dst, codeUUID), u[:]...)
}

// AppendBinary appends an AMQP binary (part 1, 1.6.19). A nil slice is an empty binary.
func AppendBinary(dst, v []byte) []byte {
	return append(appendSize(dst, codeBinary8, len(v)), v...)
}

// AppendString appends an AMQP string (part 1, 1.6.20).
func AppendString[T ~string | ~[]byte](dst []byte, v T) []byte {
	return append(appendSize(dst, codeString8, len(v)), v...)
}

// AppendSymbol appends an AMQP symbol (part 1, 1.6.21).
func AppendSymbol[T ~string | ~[]byte](dst []byte, v T) []byte {
	return append(appendSize(dst, codeSymbol8, len(v)), v...)
}

// appendSize appends the constructor and the size of a variable width value of n bytes; code8 is the
// constructor with one size byte.
func appendSize(dst []byte, code8 byte, n int) []byte {
	if n <= math.MaxUint8 {
		return append(dst, code8, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, code8+code32Offset), uint32(n))
}

// openCompound appends the head of a compound or array in its 8-bit form and returns the position of the head.
// The caller passes it to closeCompound after appending the items.
func openCompound(dst []byte, code8 byte) (longer []byte, mark int) {
	return append(dst, code8, 0, 0), len(dst)
}

// closeCompound fills in size and count of the compound opened at mark. If either exceeds a byte, it moves the
// items to insert the 32-bit form. The size counts the bytes that follow the size field (part 1, 1.6.22).
func closeCompound(dst []byte, mark, count int) []byte {
	size := len(dst) - mark - 2
	if size <= math.MaxUint8 && count <= math.MaxUint8 {
		dst[mark+1], dst[mark+2] = byte(size), byte(count)
		return dst
	}
	return convertHeadTo32(dst, mark, size, count)
}

// convertHeadTo32 replaces the 8-bit head at mark with a 32-bit one; size is the size that the 8-bit head
// counts.
func convertHeadTo32(dst []byte, mark, size, count int) []byte {
	const more = 6 // 4 + 4 bytes of size and count instead of 1 + 1
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	copy(dst[mark+3+more:], dst[mark+3:len(dst)-more])
	dst[mark] += code32Offset
	binary.BigEndian.PutUint32(dst[mark+1:], uint32(size+3)) // the count has grown by 3
	binary.BigEndian.PutUint32(dst[mark+5:], uint32(count))
	return dst
}

// convertTo32 converts the compound or array that starts at mark to its 32-bit form.
func convertTo32(dst []byte, mark int) []byte {
	switch dst[mark] {
	case codeList8, codeMap8, codeArray8:
		return convertHeadTo32(dst, mark, len(dst)-mark-2, int(dst[mark+2]))
	}
	return dst
}

func appendListValue(dst []byte, values []any) []byte {
	dst, mark := openCompound(dst, codeList8)
	for _, v := range values {
		dst = AppendValue(dst, v)
	}
	return closeCompound(dst, mark, len(values))
}

// AppendMap appends m as an AMQP map (part 1, 1.6.23), a nil Map as null.
func AppendMap(dst []byte, m Map) []byte {
	if m == nil {
		return append(dst, codeNull)
	}
	dst, mark := openCompound(dst, codeMap8)
	for _, p := range m {
		dst = AppendValue(dst, p.Key)
		dst = AppendValue(dst, p.Value)
	}
	return closeCompound(dst, mark, 2*len(m))
}

// AppendMapOf appends a map without building a Map: it appends the head, calls pairs to append the keys and
// values, and closes the map. pairs returns the extended slice and the number of pairs that it wrote.
func AppendMapOf(dst []byte, pairs func(dst []byte) (longer []byte, count int)) []byte {
	dst, mark := openCompound(dst, codeMap8)
	dst, count := pairs(dst)
	return closeCompound(dst, mark, 2*count)
}

// appendMultiple appends a field of type symbol that may occur several times.
func appendMultiple(dst []byte, symbols []Symbol) []byte {
	if len(symbols) == 0 {
		return append(dst, codeNull)
	}
	return appendArray(dst, Array{Values: symbols})
}
