package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// DecodeValue decodes the first value of b and returns the bytes that follow it. The Go types are: nil, bool,
// uint8, uint16, uint32, uint64, int8, int16, int32, int64, float32, float64, Char, time.Time (UTC, whole
// milliseconds; every AMQP timestamp fits), UUID, []byte, string, Symbol, []any, Map, Array, Raw for decimals,
// Described, and pointers to delivery states and commands to coordinators if the descriptor is theirs. An Array
// holds []int64, []uint64, []int32, []uint32, []time.Time, []UUID, []Symbol or []string, and []any for every other
// element type; an array of described elements is returned as Raw.
//
// []byte and Raw values are parts of b; all other values are copies. Memory is bounded by a small multiple of
// len(b): a count or length that exceeds the bytes present is an error. Nesting is bounded. No input causes a panic.
func DecodeValue(b []byte) (v any, rest []byte, err error) {
	d := decoder{zeroWidth: zeroWidthElementsMax}
	return d.value(b, depthMax)
}

// decoder holds the limits of one decoding.
type decoder struct {
	values    int    // that were decoded
	zeroWidth uint32 // elements without bytes that may still be created
}

func (d *decoder) value(b []byte, depth int) (v any, rest []byte, err error) {
	d.values++
	if len(b) == 0 {
		return nil, nil, errTruncated
	}
	if b[0] == codeDescribed {
		return d.described(b, depth)
	}
	return d.data(b[0], b[1:], depth)
}

// described decodes a described value, including its leading zero.
func (d *decoder) described(b []byte, depth int) (v any, rest []byte, err error) {
	if depth == 0 {
		return nil, nil, errNesting
	}
	desc, value := peekDescriptor(b)
	if state := newState(desc); state != nil && len(value) > 0 && isList(value[0]) {
		f, rest, err := d.fields(value, depth-1)
		if err != nil {
			return nil, nil, err
		}
		return state, rest, f.into(state)
	}
	descriptor, rest, err := d.value(b[1:], depth-1)
	if err != nil {
		return nil, nil, err
	}
	inner, rest, err := d.value(rest, depth-1)
	if err != nil {
		return nil, nil, err
	}
	return Described{Descriptor: descriptor, Value: inner}, rest, nil
}

// data decodes one value after its constructor was read.
func (d *decoder) data(code byte, b []byte, depth int) (v any, rest []byte, err error) {
	data, rest, err := cut(code, b)
	if err != nil {
		return nil, nil, err
	}
	switch code {
	case codeList0, codeList8, codeList32:
		v, err = d.list(code, data, depth)
	case codeMap8, codeMap32:
		v, err = d.mapping(code, data, depth)
	case codeArray8, codeArray32:
		v, err = d.array(code, data, depth)
	case codeDecimal32, codeDecimal64, codeDecimal128:
		raw := make(Raw, 0, 1+len(data)) // an array element has no constructor of its own
		v = append(append(raw, code), data...)
	default:
		v, err = scalar(code, data)
	}
	if err != nil {
		return nil, nil, err
	}
	return v, rest, nil
}

// scalar decodes the primitive types that are neither compound nor array.
func scalar(code byte, data []byte) (any, error) {
	switch code {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeBool:
		if data[0] > 1 {
			return nil, errBool
		}
		return data[0] == 1, nil
	case codeUint0, codeSmallUint, codeUint:
		return uint32(unsigned(data)), nil
	case codeUlong0, codeSmallUlong, codeUlong:
		return unsigned(data), nil
	case codeSmallInt:
		return int32(int8(data[0])), nil
	case codeInt:
		return int32(binary.BigEndian.Uint32(data)), nil
	case codeSmallLong:
		return int64(int8(data[0])), nil
	case codeLong:
		return int64(binary.BigEndian.Uint64(data)), nil
	case codeTimestamp:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(data))).UTC(), nil
	case codeUUID:
		return UUID(data), nil
	case codeBinary8, codeBinary32:
		return data, nil
	case codeString8, codeString32:
		if !utf8.Valid(data) {
			return nil, errUTF8
		}
		return string(data), nil
	case codeSymbol8, codeSymbol32:
		return Symbol(data), nil
	}
	return otherScalar(code, data)
}

// otherScalar continues scalar for the remaining types.
func otherScalar(code byte, data []byte) (any, error) {
	switch code {
	case codeUbyte:
		return data[0], nil
	case codeByte:
		return int8(data[0]), nil
	case codeUshort:
		return binary.BigEndian.Uint16(data), nil
	case codeShort:
		return int16(binary.BigEndian.Uint16(data)), nil
	case codeFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(data)), nil
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(data)), nil
	case codeChar:
		return Char(binary.BigEndian.Uint32(data)), nil
	}
	return nil, fmt.Errorf("0x%02x: %w", code, errConstructor)
}

// unsigned reads 0, 1, 2, 4 or 8 bytes.
func unsigned(data []byte) uint64 {
	switch len(data) {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(data))
	case 4:
		return uint64(binary.BigEndian.Uint32(data))
	case 8:
		return binary.BigEndian.Uint64(data)
	}
	return 0
}

// emptyList is every list without items: a list of them, of a byte each, would otherwise take 40 times its bytes.
var emptyList any = []any{} //nolint:gochecknoglobals // never changed

func (d *decoder) list(code byte, data []byte, depth int) (any, error) {
	count, body, err := items(code, data)
	if err != nil {
		return nil, err
	}
	if count == 0 && len(body) == 0 && depth > 0 {
		return emptyList, nil
	}
	if depth == 0 {
		return nil, errNesting
	}
	if uint64(count) > uint64(len(body)) { // an item takes at least one byte
		return nil, errCount
	}
	values := make([]any, count)
	for i := range values {
		if values[i], body, err = d.value(body, depth-1); err != nil {
			return nil, err
		}
	}
	if len(body) != 0 {
		return nil, errTrailing
	}
	return values, nil
}

func (d *decoder) mapping(code byte, data []byte, depth int) (Map, error) {
	count, body, err := items(code, data)
	switch {
	case err != nil:
		return nil, err
	case depth == 0:
		return nil, errNesting
	case uint64(count) > uint64(len(body)):
		return nil, errCount
	case count%2 != 0:
		return nil, errOddMap
	}
	m := make(Map, count/2)
	for i := range m {
		if m[i].Key, body, err = d.value(body, depth-1); err != nil {
			return nil, err
		}
		if m[i].Value, body, err = d.value(body, depth-1); err != nil {
			return nil, err
		}
	}
	if len(body) != 0 {
		return nil, errTrailing
	}
	return m, nil
}

// DecodeMap decodes one encoded map, which must fill value. null returns a nil Map. As with DecodeValue,
// []byte values are parts of value.
func DecodeMap(value []byte) (Map, error) {
	v, rest, err := DecodeValue(value)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, errTrailing
	}
	m, ok := v.(Map)
	if !ok && v != nil {
		return nil, fmt.Errorf("map expected, got %T", v)
	}
	return m, nil
}

func isList(code byte) bool {
	return code == codeList0 || code == codeList8 || code == codeList32
}

// peekDescriptor reads the descriptor of a described value (including its leading zero) if it is a number or a
// symbol, and returns the bytes that follow. It returns descUnknown for any other descriptor.
func peekDescriptor(b []byte) (desc uint64, value []byte) {
	if len(b) < 3 || b[0] != codeDescribed {
		return descUnknown, nil
	}
	data, rest, err := cut(b[1], b[2:])
	if err != nil {
		return descUnknown, nil
	}
	switch b[1] {
	case codeSmallUlong, codeUlong:
		return unsigned(data), rest
	case codeSymbol8, codeSymbol32:
		return descriptorOfName(data), rest
	}
	return descUnknown, nil
}
