package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// appendArray appends an AMQP array (part 1, 1.6.24). All elements of an array share one constructor, so it
// uses the widest form of their type. Elements of []any without a common constructor are written as a list.
func appendArray(dst []byte, a Array) []byte {
	if values, ok := a.Values.([]any); ok {
		if dst, ok = appendMixed(dst, values); !ok {
			return appendListValue(dst, values)
		}
		return dst
	}
	dst, mark := openCompound(dst, codeArray8)
	count := 0
	switch values := a.Values.(type) {
	case []int64:
		dst, count = appendElements(dst, codeLong, values, appendInt64)
	case []uint64:
		dst, count = appendElements(dst, codeUlong, values, binary.BigEndian.AppendUint64)
	case []int32:
		dst, count = appendElements(dst, codeInt, values, appendInt32)
	case []uint32:
		dst, count = appendElements(dst, codeUint, values, binary.BigEndian.AppendUint32)
	case []time.Time:
		dst, count = appendElements(dst, codeTimestamp, values, appendMillis)
	case []UUID:
		dst, count = appendElements(dst, codeUUID, values, appendUUIDBytes)
	case []Symbol:
		dst, count = appendTexts(dst, codeSymbol8, values)
	case []string:
		dst, count = appendTexts(dst, codeString8, values)
	default:
		dst = append(dst, codeNull) // an empty array has a constructor too
	}
	return closeCompound(dst, mark, count)
}

func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

func appendMillis(dst []byte, v time.Time) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v.UnixMilli()))
}
func appendUUIDBytes(dst []byte, v UUID) []byte { return append(dst, v[:]...) }

// appendElements appends the constructor and the elements of an array of fixed width.
func appendElements[T any](dst []byte, code byte, values []T, put func([]byte, T) []byte) (longer []byte, count int) {
	dst = append(dst, code)
	for _, v := range values {
		dst = put(dst, v)
	}
	return dst, len(values)
}

// appendTexts appends the constructor and the elements of an array of strings or symbols, with one size byte
// per element if the longest allows it.
func appendTexts[T ~string](dst []byte, code8 byte, values []T) (longer []byte, count int) {
	code := code8
	for _, v := range values {
		if len(v) > math.MaxUint8 {
			code = code8 + code32Offset
		}
	}
	dst = append(dst, code)
	for _, v := range values {
		if code == code8 {
			dst = append(dst, byte(len(v)))
		} else {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
		}
		dst = append(dst, v...)
	}
	return dst, len(values)
}

// appendMixed appends an array whose elements have no slice type of their own. It encodes each element once,
// in the widest form of its type, and keeps one constructor. If the elements do not share a constructor, ok is
// false and dst is unchanged.
func appendMixed(dst []byte, values []any) (longer []byte, ok bool) {
	dst, mark := openCompound(dst, codeArray8)
	if len(values) == 0 {
		dst = append(dst, codeNull)
	}
	first := len(dst)
	constructor := 0
	for i, v := range values {
		at := len(dst)
		dst = appendWide(dst, v)
		n := constructorLen(dst[at:])
		if i == 0 {
			constructor = n
			continue
		}
		if !bytes.Equal(dst[first:first+constructor], dst[at:at+n]) {
			return dst[:mark], false
		}
		dst = append(dst[:at], dst[at+n:]...)
	}
	return closeCompound(dst, mark, len(values)), true
}

// constructorLen returns the length of the constructor of an encoded value: the code and the descriptors
// before it, if any. b was encoded by appendWide.
func constructorLen(b []byte) int {
	at := 0
	for at < len(b) && b[at] == codeDescribed {
		rest, err := SkipValue(b[at+1:])
		if err != nil {
			return len(b) // only a malformed Raw reaches this: it is its own constructor
		}
		at = len(b) - len(rest)
	}
	return min(at+1, len(b))
}

// appendWide appends v in an encoding whose constructor depends only on the type of v.
func appendWide(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(dst, codeBool, 1)
		}
		return append(dst, codeBool, 0)
	case uint32:
		return binary.BigEndian.AppendUint32(append(dst, codeUint), v)
	case uint64:
		return binary.BigEndian.AppendUint64(append(dst, codeUlong), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(dst, codeInt), uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(append(dst, codeLong), uint64(v))
	case []byte:
		return append(binary.BigEndian.AppendUint32(append(dst, codeBinary32), uint32(len(v))), v...)
	case string:
		return append(binary.BigEndian.AppendUint32(append(dst, codeString32), uint32(len(v))), v...)
	case Symbol:
		return append(binary.BigEndian.AppendUint32(append(dst, codeSymbol32), uint32(len(v))), v...)
	case []any, Map, Array:
		return convertTo32(AppendValue(dst, v), len(dst))
	case Described:
		dst = append(dst, codeDescribed)
		dst = AppendValue(dst, v.Descriptor)
		return appendWide(dst, v.Value)
	}
	return AppendValue(dst, v)
}
