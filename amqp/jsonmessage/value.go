package jsonmessage

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Value is an AMQP value: of the Go types that wire.DecodeValue returns.
type Value struct {
	Go any `json:"-"` // MarshalJSON writes it
}

// Names of the types in the JSON form. typeAMQP is that of every type that has no name here.
const (
	typeAMQP      = "amqp"
	typeBinary    = "binary"
	typeByte      = "byte"
	typeChar      = "char"
	typeDouble    = "double"
	typeFloat     = "float"
	typeInt       = "int"
	typeList      = "list"
	typeLong      = "long"
	typeMap       = "map"
	typeShort     = "short"
	typeSymbol    = "symbol"
	typeTimestamp = "timestamp"
	typeUbyte     = "ubyte"
	typeUint      = "uint"
	typeUlong     = "ulong"
	typeUshort    = "ushort"
	typeUUID      = "uuid"
)

// UUID returns a UUID in network order. It panics unless id has 16 bytes.
func UUID(id []byte) Value { return Value{wire.UUID(id)} }

// exactMax is the largest whole number that every reader of JSON keeps. Larger ones are written as text.
const exactMax = 1 << 53

// lastYear is the last year of a timestamp that is written as a text; later ones are milliseconds since 1970.
const lastYear = 9999

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	var name string
	var value any
	switch x := v.Go.(type) {
	case nil, bool, string:
		return json.Marshal(x)
	case wire.Symbol:
		name, value = typeSymbol, string(x)
	case []byte:
		name, value = typeBinary, x
	case int8:
		name, value = typeByte, x
	case int16:
		name, value = typeShort, x
	case int32:
		name, value = typeInt, x
	case int64:
		name, value = typeLong, exactInt(x)
	case uint8:
		name, value = typeUbyte, x
	case uint16:
		name, value = typeUshort, x
	case uint32:
		name, value = typeUint, x
	case uint64:
		name, value = typeUlong, exactUint(x)
	case float32:
		name, value = typeFloat, exactFloat(float64(x), 32)
	case float64:
		name, value = typeDouble, exactFloat(x, 64)
	case wire.Char:
		name, value = typeChar, uint32(x)
	case time.Time:
		name, value = typeTimestamp, timestamp(x)
	case wire.UUID:
		text := hex.EncodeToString(x[:])
		name, value = typeUUID, text[:8]+"-"+text[8:12]+"-"+text[12:16]+"-"+text[16:20]+"-"+text[20:]
	case []any:
		name, value = typeList, values(x)
	case wire.Map:
		pairs := make([][2]Value, len(x))
		for i, p := range x {
			pairs[i] = [2]Value{{p.Key}, {p.Value}}
		}
		name, value = typeMap, pairs
	default:
		name, value = typeAMQP, wire.AppendValue(nil, x)
	}
	return json.Marshal(map[string]any{name: value})
}

func values(list []any) []Value {
	all := make([]Value, len(list))
	for i := range list {
		all[i].Go = list[i]
	}
	return all
}

func exactInt(n int64) any {
	if n > exactMax || n < -exactMax {
		return strconv.FormatInt(n, 10)
	}
	return n
}

func exactUint(n uint64) any {
	if n > exactMax {
		return strconv.FormatUint(n, 10)
	}
	return n
}

// exactFloat writes as text what JSON numbers cannot be. The bits of a NaN are not kept.
func exactFloat(f float64, bits int) any {
	if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 && math.Signbit(f) {
		return strconv.FormatFloat(f, 'g', -1, bits)
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, bits))
}

func timestamp(t time.Time) any {
	if t = t.UTC(); t.Year() < 0 || t.Year() > lastYear {
		return exactInt(t.UnixMilli())
	}
	return t.Format(time.RFC3339Nano)
}

var errValue = errors.New("want a string, true, false, null, or an object with one AMQP type, such as {\"int\": 7}")

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] == '{' && nestedDeeper(b, nestingMax) {
		return errValue
	}
	switch b[0] {
	case '"':
		var text string
		err := json.Unmarshal(b, &text)
		v.Go = text
		return err
	case 't', 'f':
		var truth bool
		err := json.Unmarshal(b, &truth)
		v.Go = truth
		return err
	case 'n':
		v.Go = nil
		return nil
	case '{':
	default:
		return errValue
	}
	var typed map[string]json.RawMessage
	if err := json.Unmarshal(b, &typed); err != nil {
		return err
	}
	if len(typed) != 1 {
		return errValue
	}
	for name, raw := range typed {
		var err error
		if v.Go, err = parse(name, raw); err != nil {
			return fmt.Errorf("AMQP value of type %.20q: %w", name, err)
		}
	}
	return nil
}

// nestingMax is how deep lists and maps may be nested. Each level is read again for the level in it.
const nestingMax = 64

// nestedDeeper reports whether valid JSON has more than so many lists or maps in each other; each is two brackets.
func nestedDeeper(b []byte, most int) bool {
	depth, inText := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > 2*most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// parse reads a value of a named type.
func parse(name string, raw json.RawMessage) (any, error) {
	switch name {
	case typeByte:
		return whole[int8](raw, 8)
	case typeShort:
		return whole[int16](raw, 16)
	case typeInt:
		return whole[int32](raw, 32)
	case typeLong:
		return whole[int64](raw, 64)
	case typeUbyte:
		return natural[uint8](raw, 8)
	case typeUshort:
		return natural[uint16](raw, 16)
	case typeUint:
		return natural[uint32](raw, 32)
	case typeUlong:
		return natural[uint64](raw, 64)
	case typeChar:
		n, err := natural[uint32](raw, 32)
		return wire.Char(n), err
	case typeFloat:
		f, err := strconv.ParseFloat(unquoted(raw), 32)
		return float32(f), err
	case typeDouble:
		return strconv.ParseFloat(unquoted(raw), 64)
	case typeTimestamp:
		return parseTimestamp(raw)
	case typeList:
		return parseList(raw)
	case typeMap:
		return parseMap(raw)
	}
	return parseText(name, raw)
}

// parseText reads a value whose JSON form is a text.
func parseText(name string, raw json.RawMessage) (any, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	switch name {
	case typeSymbol:
		for _, c := range []byte(text) {
			if c > 0x7f {
				return nil, errors.New("a symbol is ASCII")
			}
		}
		return wire.Symbol(text), nil
	case typeBinary:
		data, err := base64.StdEncoding.DecodeString(text)
		return data, err
	case typeUUID:
		data, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(data) != len(wire.UUID{}) {
			return nil, errors.New("a UUID is 32 hexadecimal digits, with or without hyphens")
		}
		return wire.UUID(data), nil
	case typeAMQP:
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		rest, err := wire.CheckValue(data)
		if err == nil && len(rest) > 0 {
			err = errors.New("more than one value")
		}
		return wire.Raw(data), err
	}
	return nil, errors.New("there is no such type")
}

func parseTimestamp(raw json.RawMessage) (any, error) {
	text := unquoted(raw)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	return at.UTC(), err
}

func parseList(raw json.RawMessage) (any, error) {
	var items []Value
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	list := make([]any, len(items))
	for i := range items {
		list[i] = items[i].Go
	}
	return list, nil
}

func parseMap(raw json.RawMessage) (any, error) {
	var pairs [][]Value
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, err
	}
	m := make(wire.Map, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, errors.New("an entry of a map is a key and a value")
		}
		m[i] = wire.Pair{Key: p[0].Go, Value: p[1].Go}
	}
	return m, nil
}

// unquoted returns a number that is written as a number or as a text.
func unquoted(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

func whole[T ~int8 | ~int16 | ~int32 | ~int64](raw json.RawMessage, bits int) (T, error) {
	n, err := strconv.ParseInt(unquoted(raw), 10, bits)
	return T(n), err
}

func natural[T ~uint8 | ~uint16 | ~uint32 | ~uint64](raw json.RawMessage, bits int) (T, error) {
	n, err := strconv.ParseUint(unquoted(raw), 10, bits)
	return T(n), err
}
