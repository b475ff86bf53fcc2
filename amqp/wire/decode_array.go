package wire

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// array decodes the data of an array.
func (d *decoder) array(code byte, data []byte, depth int) (any, error) {
	count, body, err := items(code, data)
	if err != nil {
		return nil, err
	}
	if depth == 0 {
		return nil, errNesting
	}
	constructor := body
	element, body, err := elementCode(body, depth-1)
	if err != nil {
		return nil, err
	}
	if err := boundElements(element, count, body); err != nil {
		return nil, err
	}
	if constructor[0] == codeDescribed {
		return describedArray(count, constructor, element, body, depth-1)
	}
	if element>>4 == 0x4 {
		if count > d.zeroWidth {
			return nil, errCount
		}
		d.zeroWidth -= count
	}
	d.values += int(count)
	if values, ok, err := typedElements(element, int(count), body); ok || err != nil {
		return Array{Values: values}, err
	}
	values := make([]any, count)
	for i := range values {
		if values[i], body, err = d.data(element, body, depth-1); err != nil {
			return nil, err
		}
	}
	if len(body) != 0 {
		return nil, errTrailing
	}
	return Array{Values: values}, nil
}

// describedArray keeps an array of described elements encoded, in the 32-bit form. If it were decoded, each of
// thousands of elements would carry the descriptor that the array holds once, and would be encoded with it. No
// known client sends such arrays.
func describedArray(count uint32, constructor []byte, element byte, body []byte, depth int) (any, error) {
	if err := checkElements(element, count, body, depth); err != nil {
		return nil, err
	}
	raw := make(Raw, 0, 9+len(constructor))
	raw = binary.BigEndian.AppendUint32(append(raw, codeArray32), uint32(4+len(constructor)))
	raw = binary.BigEndian.AppendUint32(raw, count)
	return append(raw, constructor...), nil
}

// typedElements decodes elements whose type has its own slice type; ok is false for other types.
func typedElements(code byte, count int, body []byte) (values any, ok bool, err error) {
	switch code {
	case codeLong:
		values, err = elements(code, count, body, func(b []byte) (int64, error) { return int64(unsigned(b)), nil })
	case codeSmallLong:
		values, err = elements(code, count, body, func(b []byte) (int64, error) { return int64(int8(b[0])), nil })
	case codeUlong, codeSmallUlong, codeUlong0:
		values, err = elements(code, count, body, func(b []byte) (uint64, error) { return unsigned(b), nil })
	case codeInt:
		values, err = elements(code, count, body, func(b []byte) (int32, error) { return int32(unsigned(b)), nil })
	case codeSmallInt:
		values, err = elements(code, count, body, func(b []byte) (int32, error) { return int32(int8(b[0])), nil })
	case codeUint, codeSmallUint, codeUint0:
		values, err = elements(code, count, body, func(b []byte) (uint32, error) { return uint32(unsigned(b)), nil })
	case codeTimestamp:
		values, err = elements(code, count, body, func(b []byte) (time.Time, error) {
			return time.UnixMilli(int64(unsigned(b))).UTC(), nil
		})
	case codeUUID:
		values, err = elements(code, count, body, func(b []byte) (UUID, error) { return UUID(b), nil })
	case codeSymbol8, codeSymbol32:
		values, err = elements(code, count, body, func(b []byte) (Symbol, error) { return Symbol(b), nil })
	case codeString8, codeString32:
		values, err = elements(code, count, body, func(b []byte) (string, error) {
			if !utf8.Valid(b) {
				return "", errUTF8
			}
			return string(b), nil
		})
	default:
		return nil, false, nil
	}
	return values, true, err
}

// elements decodes count elements that share one constructor. The caller has bounded count.
func elements[T any](code byte, count int, body []byte, get func(data []byte) (T, error)) ([]T, error) {
	values := make([]T, count)
	for i := range values {
		data, rest, err := cut(code, body)
		if err != nil {
			return nil, err
		}
		if values[i], err = get(data); err != nil {
			return nil, err
		}
		body = rest
	}
	if len(body) != 0 {
		return nil, errTrailing
	}
	return values, nil
}
