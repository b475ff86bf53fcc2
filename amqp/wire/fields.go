package wire

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// fields reads the fields of a composite value in order (part 1, 1.4). Trailing fields that the sender omitted
// read as null; fields beyond the known ones are ignored. fields keeps the first error and reads every later
// field as null, so that callers check err once, at the end.
type fields struct {
	d     *decoder
	body  []byte
	left  uint32 // fields not yet read
	depth int    // nesting levels still allowed
	err   error
}

// fields opens the list at the start of b.
func (d *decoder) fields(b []byte, depth int) (f fields, rest []byte, err error) {
	if len(b) == 0 {
		return fields{}, nil, errTruncated
	}
	if depth == 0 {
		return fields{}, nil, errNesting
	}
	if !isList(b[0]) {
		return fields{}, nil, fmt.Errorf("list expected, got 0x%02x", b[0])
	}
	data, rest, err := cut(b[0], b[1:])
	if err != nil {
		return fields{}, nil, err
	}
	count, body, err := items(b[0], data)
	if err != nil {
		return fields{}, nil, err
	}
	if uint64(count) > uint64(len(body)) {
		return fields{}, nil, errCount
	}
	return fields{d: d, body: body, left: count, depth: depth - 1}, rest, nil
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// end checks that the fields not yet read are present and fill the list.
func (f *fields) end() error {
	for f.err == nil && f.left > 0 {
		rest, err := check(f.body, f.depth)
		f.body, f.left = rest, f.left-1
		if err != nil {
			f.fail(err)
		}
	}
	if f.err == nil && len(f.body) != 0 {
		f.fail(errTrailing)
	}
	return f.err
}

// next returns the next field, which must not be described. code is codeNull if the field is null or missing.
func (f *fields) next() (code byte, data []byte) {
	if f.err != nil || f.left == 0 {
		return codeNull, nil
	}
	if len(f.body) == 0 {
		f.fail(errTruncated)
		return codeNull, nil
	}
	code = f.body[0]
	data, rest, err := cut(code, f.body[1:])
	if err != nil {
		f.fail(err)
		return codeNull, nil
	}
	f.body, f.left = rest, f.left-1
	return code, data
}

func (f *fields) unexpected(code byte, want string) {
	f.fail(fmt.Errorf("%s expected, got 0x%02x", want, code))
}

// uint reads any unsigned type whose value is at most limit. ok is false for null.
func (f *fields) uint(limit uint64) (v uint64, ok bool) {
	code, data := f.next()
	switch code {
	case codeNull:
		return 0, false
	case codeUint0, codeUlong0, codeUbyte, codeSmallUint, codeSmallUlong, codeUshort, codeUint, codeUlong:
		if v = unsigned(data); v <= limit {
			return v, true
		}
		f.fail(fmt.Errorf("%d is over %d", v, limit))
	default:
		f.unexpected(code, "unsigned number")
	}
	return 0, false
}

// mustUint32 reads a mandatory uint.
func (f *fields) mustUint32(name string) uint32 {
	v, ok := f.uint(math.MaxUint32)
	if !ok {
		f.fail(fmt.Errorf("%s is mandatory", name))
	}
	return uint32(v)
}

// uint32In reads an optional uint into store and returns store, or nil for null.
func (f *fields) uint32In(store *uint32) *uint32 {
	v, ok := f.uint(math.MaxUint32)
	if !ok {
		return nil
	}
	*store = uint32(v)
	return store
}

// optionalNumber reads an unsigned number that may be null.
func optionalNumber[T uint8 | uint16 | uint32 | uint64](f *fields) *T {
	v, ok := f.uint(uint64(^T(0)))
	if !ok {
		return nil
	}
	n := T(v)
	return &n
}

// optionalText reads a string or symbol that may be null.
func optionalText[T ~string](f *fields) *T {
	v, ok := f.text()
	if !ok {
		return nil
	}
	text := T(v)
	return &text
}

// boolean reads a boolean. ok is false for null.
func (f *fields) boolean() (v, ok bool) {
	code, data := f.next()
	switch code {
	case codeNull:
		return false, false
	case codeTrue:
		return true, true
	case codeFalse:
		return false, true
	case codeBool:
		if data[0] > 1 {
			f.fail(errBool)
		}
		return data[0] == 1, true
	}
	f.unexpected(code, "boolean")
	return false, false
}

// bool reads a boolean whose default is false.
func (f *fields) bool() bool {
	v, _ := f.boolean()
	return v
}

func (f *fields) boolPointer() *bool {
	v, ok := f.boolean()
	if !ok {
		return nil
	}
	return &v
}

// role reads the mandatory role of a link endpoint.
func (f *fields) role() Role {
	v, ok := f.boolean()
	if !ok {
		f.fail(fmt.Errorf("role is mandatory"))
	}
	return Role(v)
}

// text reads a string or symbol. ok is false for null.
func (f *fields) text() (v []byte, ok bool) {
	code, data := f.next()
	switch code {
	case codeNull:
		return nil, false
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		if !utf8.Valid(data) {
			f.fail(errUTF8)
			return nil, false
		}
		return data, true
	}
	f.unexpected(code, "string or symbol")
	return nil, false
}

// binary reads a binary; the bytes are part of the input. null returns nil.
func (f *fields) binary() []byte {
	code, data := f.next()
	switch code {
	case codeNull:
		return nil
	case codeBinary8, codeBinary32:
		return data[:len(data):len(data)]
	}
	f.unexpected(code, "binary")
	return nil
}

// value reads a field of any type.
func (f *fields) value() any {
	if f.err != nil || f.left == 0 {
		return nil
	}
	v, rest, err := f.d.value(f.body, f.depth)
	if err != nil {
		f.fail(err)
		return nil
	}
	f.body, f.left = rest, f.left-1
	return v
}

// mapping reads a map; null returns nil.
func (f *fields) mapping() Map {
	v := f.value()
	m, ok := v.(Map)
	if !ok && v != nil {
		f.fail(fmt.Errorf("map expected, got %T", v))
	}
	return m
}

// multiple reads a symbol field that may have several values: null, one symbol, an array of symbols (part 1,
// 1.4), or a list of symbols, which some clients send against the standard.
func (f *fields) multiple() []Symbol {
	switch v := f.value().(type) {
	case nil:
		return nil
	case Symbol:
		return []Symbol{v}
	case Array:
		if symbols, ok := v.Values.([]Symbol); ok {
			return symbols
		}
		if none, ok := v.Values.([]any); ok && len(none) == 0 {
			return nil
		}
	case []any:
		symbols := make([]Symbol, 0, len(v))
		for _, one := range v {
			if s, ok := one.(Symbol); ok {
				symbols = append(symbols, s)
			}
		}
		if len(symbols) == len(v) {
			return symbols
		}
	}
	f.fail(fmt.Errorf("symbol or array of symbols expected"))
	return nil
}

// composite decodes a field that holds a composite value into c, or into other if the field has the descriptor
// of other. It returns the descriptor, descUnknown for null.
func (f *fields) composite(want uint64, c, other composite) (desc uint64) {
	if f.err != nil || f.left == 0 {
		return descUnknown
	}
	if len(f.body) > 0 && f.body[0] == codeNull {
		f.body, f.left = f.body[1:], f.left-1
		return descUnknown
	}
	desc, value := peekDescriptor(f.body)
	if desc == descUnknown {
		f.fail(fmt.Errorf("unknown composite type"))
		return descUnknown
	}
	inner, rest, err := f.d.fields(value, f.depth)
	if err != nil {
		f.fail(err)
		return descUnknown
	}
	f.body, f.left = rest, f.left-1
	switch {
	case desc == want:
		err = inner.into(c)
	case other != nil && desc == other.descriptor():
		err = inner.into(other)
	default:
		err = fmt.Errorf("descriptor 0x%02x expected, got 0x%02x", want, desc)
	}
	if err != nil {
		f.fail(err)
	}
	return desc
}

// listFields opens a list that must end with the input.
func (d *decoder) listFields(b []byte) (fields, error) {
	f, rest, err := d.fields(b, depthMax)
	if err == nil && len(rest) != 0 {
		err = errTrailing
	}
	return f, err
}

// performative decodes the performatives other than transfer, flow and disposition. b is the list behind the
// descriptor; the result keeps parts of it.
func (d *decoder) performative(desc uint64, b []byte) (Performative, error) {
	f, err := d.listFields(b)
	if err != nil {
		return nil, err
	}
	p := newPerformative(desc)
	if p == nil {
		return nil, fmt.Errorf("not a performative")
	}
	return p, f.into(p)
}
