package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// errEncoding is the error of DecodeValue for bytes that AppendValue does not write.
var errEncoding = errors.New("value is not encoded as it must be")

// AppendValue appends the one encoding of a value to dst: its kind in a byte, then nothing for
// NULL, a byte for a boolean, a zigzag varint for an integer, timestamp or time span, 8 bytes little endian
// for a decimal, 16 for a GUID, and a uvarint length with as many bytes for a string or a binary.
func AppendValue(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.kind))
	switch v.kind {
	case KindBool:
		return append(dst, byte(v.bits))
	case KindInt, KindTime, KindSpan:
		return binary.AppendVarint(dst, int64(v.bits))
	case KindDouble:
		return binary.LittleEndian.AppendUint64(dst, v.bits)
	case KindText, KindBinary:
		return append(binary.AppendUvarint(dst, uint64(len(v.text))), v.text...)
	case KindGUID:
		return append(dst, v.text...)
	case KindNull:
	}
	return dst
}

// DecodeValue reads a value at the start of b and returns the rest. Bytes that AppendValue does not
// write are an error. The value does not alias b.
func DecodeValue(b []byte) (v Value, rest []byte, err error) { return decode(b) }

// CutValue is DecodeValue for a string: texts of the value alias s, so it allocates nothing.
func CutValue(s string) (v Value, rest string, err error) { return decode(s) }

// SkipValue is DecodeValue without the value.
func SkipValue(b []byte) (rest []byte, err error) {
	_, _, to, ok := measure(b)
	if !ok {
		return b, errEncoding
	}
	return b[to:], nil
}

func decode[B []byte | string](b B) (v Value, rest B, err error) {
	v, from, to, ok := measure(b)
	if !ok {
		return Value{}, b, errEncoding
	}
	if v.kind == KindText || v.kind == KindBinary || v.kind == KindGUID {
		v.text = string(b[from:to])
	}
	return v, b[to:], nil
}

// measure reads a value without its text, which is b[from:to]; to is where the value ends.
func measure[B []byte | string](b B) (v Value, from, to int, ok bool) {
	if len(b) == 0 {
		return v, 0, 0, false
	}
	v.kind, from = Kind(b[0]), 1
	var size int // of the bytes after the kind
	switch v.kind {
	case KindNull:
		return v, from, from, true
	case KindBool:
		if len(b) == 1 || b[1] > 1 {
			return v, 0, 0, false
		}
		v.bits, size = uint64(b[1]), 1
	case KindInt, KindTime, KindSpan:
		v.bits, size = uvarint(b[1:])
		v.bits = v.bits>>1 ^ -(v.bits & 1)
	case KindDouble:
		if size = 8; len(b) > size {
			for i := range size {
				v.bits |= uint64(b[1+i]) << (8 * i)
			}
		}
	case KindGUID:
		size = len(GUID{})
	case KindText, KindBinary:
		n, head := uvarint(b[1:])
		if from += head; head == 0 || n > uint64(len(b)-from) {
			return v, 0, 0, false
		}
		return v, from, from + int(n), true
	default:
		return v, 0, 0, false
	}
	return v, from, from + size, size > 0 && from+size <= len(b)
}

// CutText reads a text with its length before it, as AppendValue writes strings after their kind,
// and returns the rest.
func CutText[B []byte | string](s B) (text, rest B, ok bool) {
	size, head := uvarint(s)
	if head == 0 || size > uint64(len(s)-head) {
		return s[:0], s, false
	}
	return s[head : head+int(size)], s[head+int(size):], true
}

// uvarint reads a number in its shortest form; n is 0 if there is none.
func uvarint[B []byte | string](b B) (v uint64, n int) {
	for i := 0; i < len(b) && i < binary.MaxVarintLen64; i++ {
		c := b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i > 0 && c == 0 || i == binary.MaxVarintLen64-1 && c > 1 {
				return 0, 0
			}
			return v, i + 1
		}
	}
	return 0, 0
}

// errText is the error of UnmarshalText for texts that MarshalText does not write.
var errText = errors.New("not a value")

// MarshalText returns the value for JSON and display, kind first: null, bool:true, int:5,
// double:0.5, text:abc, time:1700000000000, span:10000000, guid:..., binary:00ff. A string that is not UTF-8,
// which JSON would change, is written as hex: bytes:ff.
func (v Value) MarshalText() ([]byte, error) {
	switch v.kind {
	case KindBool:
		return strconv.AppendBool([]byte("bool:"), v.bits != 0), nil
	case KindInt:
		return append([]byte("int:"), v.String()...), nil
	case KindDouble:
		return strconv.AppendFloat([]byte("double:"), v.AsDouble(), 'g', -1, 64), nil
	case KindTime:
		return append([]byte("time:"), v.String()...), nil
	case KindSpan:
		return strconv.AppendInt([]byte("span:"), v.AsInt(), 10), nil
	case KindGUID:
		return append([]byte("guid:"), v.String()...), nil
	case KindBinary:
		return fmt.Appendf(nil, "binary:%x", v.text), nil
	case KindText:
		if !utf8.ValidString(v.text) {
			return fmt.Appendf(nil, "bytes:%x", v.text), nil
		}
		return append([]byte("text:"), v.text...), nil
	case KindNull:
	}
	return []byte("null"), nil
}

// UnmarshalText parses the output of MarshalText.
func (v *Value) UnmarshalText(text []byte) error {
	kind, rest, colon := strings.Cut(string(text), ":")
	var read Value
	var err error
	switch kind {
	case "null":
		if colon {
			err = errText
		}
	case "bool":
		var b bool
		b, err = strconv.ParseBool(rest)
		read = Bool(b)
	case "int", "time", "span":
		var i int64
		i, err = strconv.ParseInt(rest, 10, 64)
		switch kind {
		case "int":
			read = Int(i)
		case "time":
			read = Time(i)
		default:
			read = Span(i)
		}
	case "double":
		var f float64
		if f, err = strconv.ParseFloat(rest, 64); math.IsInf(f, 0) {
			err = nil // a number that is too large is infinite
		}
		read = Double(f)
	case "guid":
		var ok bool
		if read, ok = readGUID(rest); !ok {
			err = errText
		}
	case "binary", "bytes":
		var b []byte
		b, err = readHex(rest)
		if read = Binary(b); kind == "bytes" {
			read = Text(string(b))
		}
	case "text":
		read = Text(rest)
	default:
		err = errText
	}
	if err != nil {
		return fmt.Errorf("value of kind %q: %w", kind, err)
	}
	*v = read
	return nil
}

func readHex(text string) ([]byte, error) {
	if len(text)%2 != 0 {
		return nil, errText
	}
	out := make([]byte, len(text)/2)
	for i := range out {
		b, err := strconv.ParseUint(text[2*i:2*i+2], 16, 8)
		if err != nil {
			return nil, errText
		}
		out[i] = byte(b)
	}
	return out, nil
}
