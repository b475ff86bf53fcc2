package wire

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// fields reads the fields of a composite value one after the other (part 1, 1.4).
// Fields that the sender left off at the end read as null; fields beyond those we know
// are ignored. The first error stays and makes every later read give nothing, so that
// callers look at err once, at the end.
type fields struct {
	d     *decoder
	body  []byte
	left  uint32 // fields not yet read
	depth int    // nesting still allowed
	err   error
}

// fields opens the list that stands at the start of b.
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

// end checks that the fields not asked for are there and fill the list.
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

// next takes the next field, which must not be described. code is codeNull when it is
// null or missing.
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

// uint reads any unsigned type whose value is at most limit. ok is false on null.
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

// uint32In reads an optional uint into store and returns store, or nil on null.
func (f *fields) uint32In(store *uint32) *uint32 {
	v, ok := f.uint(math.MaxUint32)
	if !ok {
		return nil
	}
	*store = uint32(v)
	return store
}

func (f *fields) uint32() *uint32 {
	v, ok := f.uint(math.MaxUint32)
	if !ok {
		return nil
	}
	n := uint32(v)
	return &n
}

func (f *fields) uint16() *uint16 {
	v, ok := f.uint(math.MaxUint16)
	if !ok {
		return nil
	}
	n := uint16(v)
	return &n
}

func (f *fields) uint8() *uint8 {
	v, ok := f.uint(math.MaxUint8)
	if !ok {
		return nil
	}
	n := uint8(v)
	return &n
}

func (f *fields) uint64() *uint64 {
	v, ok := f.uint(math.MaxUint64)
	if !ok {
		return nil
	}
	return &v
}

// boolean reads a boolean. ok is false on null.
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

// text reads a string or symbol. ok is false on null.
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

func (f *fields) string() *string {
	v, ok := f.text()
	if !ok {
		return nil
	}
	s := string(v)
	return &s
}

func (f *fields) mustString(name string) string {
	v, ok := f.text()
	if !ok {
		f.fail(fmt.Errorf("%s is mandatory", name))
	}
	return string(v)
}

func (f *fields) symbol() *Symbol {
	v, ok := f.text()
	if !ok {
		return nil
	}
	s := Symbol(v)
	return &s
}

// binary reads a binary; the bytes are part of the input. null gives nil.
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

// mapping reads a map; null gives nil.
func (f *fields) mapping() Map {
	v := f.value()
	m, ok := v.(Map)
	if !ok && v != nil {
		f.fail(fmt.Errorf("map expected, got %T", v))
	}
	return m
}

// multiple reads a symbol that may occur several times: null, one symbol, an array of
// symbols (part 1, 1.4), or, from loose clients, a list of symbols.
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

// composite opens a field that is itself a composite value. desc is descUnknown on null.
func (f *fields) composite() (desc uint64, inner fields) {
	if f.err != nil || f.left == 0 {
		return descUnknown, fields{}
	}
	if len(f.body) > 0 && f.body[0] == codeNull {
		f.body, f.left = f.body[1:], f.left-1
		return descUnknown, fields{}
	}
	desc, value := peekDescriptor(f.body)
	if desc == descUnknown {
		f.fail(fmt.Errorf("unknown composite type"))
		return descUnknown, fields{}
	}
	inner, rest, err := f.d.fields(value, f.depth)
	if err != nil {
		f.fail(err)
		return descUnknown, fields{}
	}
	f.body, f.left = rest, f.left-1
	return desc, inner
}

// error reads an error field; null gives nil.
func (f *fields) error() *Error {
	desc, inner := f.composite()
	if desc == descUnknown {
		return nil
	}
	if desc != descError {
		f.fail(fmt.Errorf("error expected, got descriptor 0x%02x", desc))
		return nil
	}
	e := inner.errorFields()
	if err := inner.end(); err != nil {
		f.fail(err)
	}
	return e
}

func (f *fields) errorFields() *Error {
	condition, _ := f.text()
	description, _ := f.text()
	return &Error{Condition: Symbol(condition), Description: string(description), Info: f.mapping()}
}
