package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Errors of encoded bytes. Callers wrap them with the name of what was read.
var (
	errTruncated   = errors.New("value is cut short")
	errNesting     = errors.New("values are nested too deep")
	errCount       = errors.New("the declared count exceeds what the remaining bytes can hold")
	errConstructor = errors.New("unknown constructor")
	errOddMap      = errors.New("map with an odd number of items")
	errUTF8        = errors.New("string is not UTF-8")
	errTrailing    = errors.New("bytes behind the last element")
	errBool        = errors.New("boolean that is neither 0 nor 1")
)

// cut splits b, which starts behind the constructor code, into the data of that value and the rest. The data
// of compounds and arrays begins with the count. cut does not allocate and trusts no length beyond len(b).
func cut(code byte, b []byte) (data, rest []byte, err error) {
	n := uint64(0)
	switch code >> 4 {
	case 0x4:
	case 0x5:
		n = 1
	case 0x6:
		n = 2
	case 0x7:
		n = 4
	case 0x8:
		n = 8
	case 0x9:
		n = 16
	case 0xa, 0xc, 0xe:
		if len(b) < 1 {
			return nil, nil, errTruncated
		}
		n, b = uint64(b[0]), b[1:]
	case 0xb, 0xd, 0xf:
		if len(b) < 4 {
			return nil, nil, errTruncated
		}
		n, b = uint64(binary.BigEndian.Uint32(b)), b[4:]
	default:
		return nil, nil, errConstructor
	}
	if n > uint64(len(b)) {
		return nil, nil, errTruncated
	}
	return b[:n], b[n:], nil
}

// items reads the count of the compound or array with the given data and returns the encoded items that follow
// it.
func items(code byte, data []byte) (count uint32, body []byte, err error) {
	switch code {
	case codeList0:
		return 0, nil, nil
	case codeList8, codeMap8, codeArray8:
		if len(data) < 1 {
			return 0, nil, errTruncated
		}
		return uint32(data[0]), data[1:], nil
	case codeList32, codeMap32, codeArray32:
		if len(data) < 4 {
			return 0, nil, errTruncated
		}
		return binary.BigEndian.Uint32(data), data[4:], nil
	}
	return 0, nil, errConstructor
}

// SkipValue returns the bytes that follow the first encoded value of b. It uses only the lengths and does not
// check the content of compound values: see CheckValue. It does not allocate.
func SkipValue(b []byte) (rest []byte, err error) { return skip(b, depthMax) }

func skip(b []byte, depth int) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errTruncated
	}
	if b[0] != codeDescribed {
		_, rest, err = cut(b[0], b[1:])
		return rest, err
	}
	if depth == 0 {
		return nil, errNesting
	}
	if rest, err = skip(b[1:], depth-1); err != nil {
		return nil, err
	}
	return skip(rest, depth-1)
}

// CheckValue is SkipValue with a check of the content: every nested value must have a known type, be complete,
// respect the nesting limit, and fill its compound exactly; strings must be UTF-8. DecodeValue can decode
// every value that passes CheckValue, unless the value holds several large arrays of elements without bytes.
// CheckValue allocates only for an error.
func CheckValue(b []byte) (rest []byte, err error) { return check(b, depthMax) }

func check(b []byte, depth int) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errTruncated
	}
	if b[0] != codeDescribed {
		return checkData(b[0], b[1:], depth)
	}
	if depth == 0 {
		return nil, errNesting
	}
	if rest, err = check(b[1:], depth-1); err != nil {
		return nil, err
	}
	return check(rest, depth-1)
}

// checkData checks one value after its constructor was read.
func checkData(code byte, b []byte, depth int) (rest []byte, err error) {
	if !known(code) {
		return nil, fmt.Errorf("0x%02x: %w", code, errConstructor)
	}
	data, rest, err := cut(code, b)
	switch {
	case err != nil:
		return nil, err
	case code == codeBool && data[0] > 1:
		return nil, errBool
	case (code == codeString8 || code == codeString32) && !utf8.Valid(data):
		return nil, errUTF8
	case code < codeList8:
		return rest, nil
	}
	if depth == 0 {
		return nil, errNesting
	}
	count, body, err := items(code, data)
	if err != nil {
		return nil, err
	}
	if code == codeArray8 || code == codeArray32 {
		return rest, checkArray(count, body, depth-1)
	}
	if uint64(count) > uint64(len(body)) {
		return nil, errCount
	}
	if (code == codeMap8 || code == codeMap32) && count%2 != 0 {
		return nil, errOddMap
	}
	for range count {
		if body, err = check(body, depth-1); err != nil {
			return nil, err
		}
	}
	if len(body) != 0 {
		return nil, errTrailing
	}
	return rest, nil
}

// checkArray checks the constructor and the elements of an array.
func checkArray(count uint32, body []byte, depth int) error {
	code, body, err := elementCode(body, depth)
	if err != nil {
		return err
	}
	return checkElements(code, count, body, depth)
}

// checkElements checks the elements of an array that follow the constructor.
func checkElements(code byte, count uint32, body []byte, depth int) (err error) {
	if err := boundElements(code, count, body); err != nil {
		return err
	}
	if code>>4 == 0x4 {
		count = 0 // no bytes to look at
	}
	for range count {
		if body, err = checkData(code, body, depth); err != nil {
			return err
		}
	}
	if len(body) != 0 {
		return errTrailing
	}
	return nil
}

// elementCode reads the constructor of an array and skips its descriptor. It accepts only one descriptor,
// because each would be repeated in every decoded element.
func elementCode(b []byte, depth int) (code byte, rest []byte, err error) {
	if len(b) > 0 && b[0] == codeDescribed {
		if depth == 0 {
			return 0, nil, errNesting
		}
		if b, err = check(b[1:], depth-1); err != nil {
			return 0, nil, err
		}
	}
	if len(b) == 0 {
		return 0, nil, errTruncated
	}
	if !known(b[0]) {
		return 0, nil, fmt.Errorf("0x%02x: %w", b[0], errConstructor)
	}
	return b[0], b[1:], nil
}

// boundElements refuses a count that exceeds the bytes present.
func boundElements(code byte, count uint32, body []byte) error {
	n, width := uint64(count), uint64(1)
	switch code >> 4 {
	case 0x4:
		if n > zeroWidthElementsMax {
			return errCount
		}
		return nil
	case 0x6:
		width = 2
	case 0x7, 0xb:
		width = 4
	case 0x8:
		width = 8
	case 0x9:
		width = 16
	case 0xc, 0xe:
		width = 2
	case 0xd, 0xf:
		width = 8
	}
	if n*width > uint64(len(body)) {
		return errCount
	}
	return nil
}

// known reports whether code is a constructor of part 1, 1.6.
func known(code byte) bool {
	switch code {
	case codeNull, codeTrue, codeFalse, codeUint0, codeUlong0, codeList0,
		codeUbyte, codeByte, codeSmallUint, codeSmallUlong, codeSmallInt, codeSmallLong, codeBool,
		codeUshort, codeShort,
		codeUint, codeInt, codeFloat, codeChar, codeDecimal32,
		codeUlong, codeLong, codeDouble, codeTimestamp, codeDecimal64,
		codeDecimal128, codeUUID,
		codeBinary8, codeString8, codeSymbol8, codeBinary32, codeString32, codeSymbol32,
		codeList8, codeMap8, codeList32, codeMap32, codeArray8, codeArray32:
		return true
	}
	return false
}
