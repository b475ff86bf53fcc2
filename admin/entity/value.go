package entity

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

	"github.com/peeklock/peeklock/fsm/filter"
)

// Value is the value of a parameter or condition in JSON. Booleans, strings and null stand for
// themselves; a number is an integer, or a decimal when it has a point or an exponent. Values of the
// other types are objects:
//
//	{"type":"guid","value":"0d2c3a5e-..."}
//	{"type":"time","value":"2026-11-20T12:00:00.000Z"}    to the millisecond
//	{"type":"duration","value":"PT1M30S"}                  to 100 ns
//	{"type":"binary","value":"AAEC"}                       base64
//	{"type":"double","value":"NaN"}                        or Infinity, -Infinity, or any number
//	{"type":"int","value":"9007199254740993"}              for clients that have only decimals
//
// Marshalling and unmarshalling keep value and type.
type Value struct{ filter.Value }

// Types of values that are written as objects.
const (
	typeGUID   = "guid"
	typeTime   = "time"
	typeSpan   = "duration"
	typeBinary = "binary"
	typeDouble = "double"
	typeInt    = "int"
)

// typedValue is a value of a type that JSON does not have.
type typedValue struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// TimeLayout formats a time in UTC to the millisecond.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON writes the value so that UnmarshalJSON returns the same type.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.Kind() {
	case filter.KindNull:
		return []byte("null"), nil
	case filter.KindBool:
		return strconv.AppendBool(nil, v.AsBool()), nil
	case filter.KindInt:
		return strconv.AppendInt(nil, v.AsInt(), 10), nil
	case filter.KindDouble:
		return doubleJSON(v.AsDouble())
	case filter.KindText:
		return json.Marshal(v.AsText())
	case filter.KindTime:
		return typedJSON(typeTime, time.UnixMilli(v.AsInt()).UTC().Format(TimeLayout))
	case filter.KindGUID:
		return typedJSON(typeGUID, v.String())
	case filter.KindSpan:
		return typedJSON(typeSpan, v.ISO())
	case filter.KindBinary:
		return typedJSON(typeBinary, base64.StdEncoding.EncodeToString([]byte(v.AsText())))
	}
	return nil, fmt.Errorf("a value of type %s has no form in JSON", v.Kind())
}

func typedJSON(name, value string) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(typedValue{Type: name, Value: text})
}

// doubleJSON writes a decimal with a point or an exponent, so that it is not read as an integer.
func doubleJSON(f float64) ([]byte, error) {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return typedJSON(typeDouble, strings.TrimPrefix(strings.ReplaceAll(text, "Inf", "Infinity"), "+"))
	case !strings.ContainsAny(text, ".e"):
		text += ".0"
	}
	return []byte(text), nil
}

// errValue lists the possible values.
var errValue = errors.New(`a value is a boolean, number, string or null, or an object as in {"type":"guid","value":"..."}, where type is guid, time, duration, binary, double or int`)

// UnmarshalJSON parses the value.
func (v *Value) UnmarshalJSON(data []byte) (err error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return errValue
	}
	switch data[0] {
	case 'n':
		v.Value = filter.Value{}
	case 't', 'f':
		v.Value = filter.Bool(data[0] == 't')
	case '"':
		var text string
		err = json.Unmarshal(data, &text)
		v.Value = filter.Text(text)
	case '{':
		v.Value, err = parseTyped(data)
	case '[':
		return errValue
	default:
		v.Value, err = parseNumber(string(data), strings.ContainsAny(string(data), ".eE"))
	}
	return err
}

func parseNumber(text string, double bool) (filter.Value, error) {
	if double {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not a decimal of 64 bits", text)
		}
		return filter.Double(f), nil
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return filter.Value{}, fmt.Errorf("%.40q is not an integer of 64 bits", text)
	}
	return filter.Int(i), nil
}

func parseTyped(data []byte) (filter.Value, error) {
	var typed typedValue
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&typed); err != nil || len(typed.Value) == 0 {
		return filter.Value{}, errValue
	}
	var text string
	if json.Unmarshal(typed.Value, &text) != nil {
		text = string(typed.Value) // a number, or refused below
	}
	switch typed.Type {
	case typeGUID:
		return ParseGUID(text)
	case typeTime:
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not a time: write it like 2026-11-20T12:00:00Z", text)
		}
		return filter.Time(at.UnixMilli()), nil
	case typeSpan:
		if v, ok := filter.ParseSpan(text); ok {
			return v, nil
		}
		return filter.Value{}, fmt.Errorf("%.40q is not a duration: write it like PT1M30S", text)
	case typeBinary:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not base64", text)
		}
		return filter.Binary(b), nil
	case typeDouble:
		return parseNumber(text, true)
	case typeInt:
		return parseNumber(text, false)
	}
	return filter.Value{}, errValue
}

// ParseGUID parses the form 8-4-4-4-12 in any case.
func ParseGUID(text string) (filter.Value, error) {
	var g filter.GUID
	digits := strings.ReplaceAll(text, "-", "")
	if n, err := hex.Decode(g[:], []byte(digits[:min(len(digits), 2*len(g))])); err != nil || n != len(g) || !strings.EqualFold(g.String(), text) {
		return filter.Value{}, fmt.Errorf("%.40q is not a GUID: write it like 0d2c3a5e-1b2c-4d5e-8f90-a1b2c3d4e5f6", text)
	}
	return filter.ID(g), nil
}
