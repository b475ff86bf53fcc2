package wire

import (
	"encoding/binary"
	"math"
)

// Rest returns the number of bytes behind the last item returned. The list ends with its value, so this
// determines the position of the item in the value.
func (it *ListIter) Rest() int { return len(it.body) }

// Rest returns the number of bytes behind the last pair returned.
func (it *MapIter) Rest() int { return it.items.Rest() }

// AppendListOf appends a list without building a slice: it appends the head, calls items to append the values,
// and closes the list. items returns the extended slice and the number of values that it wrote. The list is
// never list0.
func AppendListOf(dst []byte, items func(dst []byte) (longer []byte, count int)) []byte {
	dst, mark := openCompound(dst, codeList8)
	dst, count := items(dst)
	return closeCompound(dst, mark, count)
}

// The functions below read one encoded value without allocating, like TextOf.

// IntOf reads a signed number of any width.
func IntOf(value []byte) (n int64, ok bool) {
	if len(value) == 0 {
		return 0, false
	}
	data, ok := expect(value, value[0], value[0])
	if !ok {
		return 0, false
	}
	switch value[0] {
	case codeByte, codeSmallInt, codeSmallLong:
		return int64(int8(data[0])), true
	case codeShort:
		return int64(int16(binary.BigEndian.Uint16(data))), true
	case codeInt:
		return int64(int32(binary.BigEndian.Uint32(data))), true
	case codeLong:
		return int64(binary.BigEndian.Uint64(data)), true
	}
	return 0, false
}

// FloatOf reads a float or a double.
func FloatOf(value []byte) (f float64, ok bool) {
	if data, ok := expect(value, codeDouble, codeDouble); ok {
		return math.Float64frombits(binary.BigEndian.Uint64(data)), true
	}
	if data, ok := expect(value, codeFloat, codeFloat); ok {
		return float64(math.Float32frombits(binary.BigEndian.Uint32(data))), true
	}
	return 0, false
}

// CharOf reads a char (part 1, 1.6.16).
func CharOf(value []byte) (c Char, ok bool) {
	data, ok := expect(value, codeChar, codeChar)
	if !ok {
		return 0, false
	}
	return Char(binary.BigEndian.Uint32(data)), true
}

// DecimalOf returns the 4, 8 or 16 bytes of a decimal (part 1, 1.6.13 to 1.6.15).
func DecimalOf(value []byte) (data []byte, ok bool) {
	if data, ok = expect(value, codeDecimal32, codeDecimal64); ok {
		return data, true
	}
	return expect(value, codeDecimal128, codeDecimal128)
}

// DescribedOf splits a described value into its descriptor and the described value, both encoded (part 1,
// 1.2).
func DescribedOf(value []byte) (descriptor, inner []byte, ok bool) {
	if len(value) == 0 || value[0] != codeDescribed {
		return nil, nil, false
	}
	inner, err := SkipValue(value[1:])
	if err != nil || len(inner) == 0 {
		return nil, nil, false
	}
	rest, err := SkipValue(inner)
	if err != nil || len(rest) != 0 {
		return nil, nil, false
	}
	return value[1 : len(value)-len(inner)], inner, true
}
