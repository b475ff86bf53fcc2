package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// IsNull reports whether an encoded value is null.
func IsNull(value []byte) bool { return len(value) == 1 && value[0] == codeNull }

// TextOf reads a string or a symbol. It refuses strings that are not UTF-8.
func TextOf(value []byte) (text []byte, ok bool) {
	if text, ok = StringOf(value); ok {
		return text, true
	}
	return SymbolOf(value)
}

// StringOf reads a string.
func StringOf(value []byte) (text []byte, ok bool) {
	text, ok = expect(value, codeString8, codeString32)
	return text, ok && utf8.Valid(text)
}

// SymbolOf reads a symbol.
func SymbolOf(value []byte) (symbol []byte, ok bool) { return expect(value, codeSymbol8, codeSymbol32) }

// BinaryOf reads a binary.
func BinaryOf(value []byte) (data []byte, ok bool) { return expect(value, codeBinary8, codeBinary32) }

// UUIDOf reads a uuid.
func UUIDOf(value []byte) (id UUID, ok bool) {
	data, ok := expect(value, codeUUID, codeUUID)
	if !ok {
		return UUID{}, false
	}
	return UUID(data), true
}

// MillisOf reads a timestamp in milliseconds since the Unix epoch. It accepts a long too, because the Python
// SDK encodes times that it passes on as long.
func MillisOf(value []byte) (ms int64, ok bool) {
	if data, ok := expect(value, codeTimestamp, codeLong); ok {
		return int64(binary.BigEndian.Uint64(data)), true
	}
	if data, ok := expect(value, codeSmallLong, codeSmallLong); ok {
		return int64(int8(data[0])), true
	}
	return 0, false
}

// UintOf reads an unsigned number of any width.
func UintOf(value []byte) (n uint64, ok bool) {
	if len(value) == 0 {
		return 0, false
	}
	switch value[0] {
	case codeUint0, codeUlong0, codeUbyte, codeSmallUint, codeSmallUlong, codeUshort, codeUint, codeUlong:
		data, ok := expect(value, value[0], value[0])
		return unsigned(data), ok
	}
	return 0, false
}

// UlongOf reads a ulong and no other unsigned type.
func UlongOf(value []byte) (n uint64, ok bool) {
	if len(value) == 0 || value[0] != codeUlong0 && value[0] != codeSmallUlong && value[0] != codeUlong {
		return 0, false
	}
	return UintOf(value)
}

// IsTimestamp reports whether an encoded value is a timestamp.
func IsTimestamp(value []byte) bool {
	_, ok := expect(value, codeTimestamp, codeTimestamp)
	return ok
}

// BoolOf reads a boolean.
func BoolOf(value []byte) (v, ok bool) {
	switch {
	case len(value) == 1 && value[0] == codeTrue:
		return true, true
	case len(value) == 1 && value[0] == codeFalse:
		return false, true
	case len(value) == 2 && value[0] == codeBool && value[1] <= 1:
		return value[1] == 1, true
	}
	return false, false
}

// expect returns the data of the value if its constructor is one of the two and no bytes follow it.
func expect(value []byte, one, other byte) (data []byte, ok bool) {
	if len(value) == 0 || value[0] != one && value[0] != other {
		return nil, false
	}
	data, rest, err := cut(value[0], value[1:])
	return data, err == nil && len(rest) == 0
}
