package filter

import (
	"math"
	"strconv"
	"strings"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds. The numbers are part of stored formats: append only.
const (
	KindNull   Kind = 0 // NULL, or a missing property
	KindBool   Kind = 1
	KindInt    Kind = 2 // signed 64 bits, as System.Int64
	KindDouble Kind = 3 // IEEE 754 binary64, as System.Double
	KindText   Kind = 4
	KindTime   Kind = 5 // milliseconds since 1970 UTC, as AMQP timestamps
	KindGUID   Kind = 6
	KindBinary Kind = 7
	KindSpan   Kind = 8 // ticks of 100 ns, as System.TimeSpan
)

// String returns the name of the kind as in errors.
func (k Kind) String() string {
	switch k {
	case KindNull:
		return "NULL"
	case KindBool:
		return "a boolean"
	case KindInt:
		return "an integer"
	case KindDouble:
		return "a decimal"
	case KindText:
		return "a string"
	case KindTime:
		return "a timestamp"
	case KindGUID:
		return "a GUID"
	case KindBinary:
		return "binary"
	case KindSpan:
		return "a time span"
	}
	return "kind " + strconv.Itoa(int(k))
}

// GUID is 16 bytes in the order in which they are written.
type GUID [16]byte

// String returns the usual form, in small letters, as .NET prints a Guid.
func (g GUID) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 36)
	for i, b := range g {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// Value is the value of a property or expression. The zero Value is NULL. Values are immutable and
// comparable with ==, which is identity: a NaN is itself, an integer is no decimal. Equality in the
// language is defined by [Compare] and [Correlation].
type Value struct {
	text string // KindText, KindGUID, KindBinary
	bits uint64 // the others
	kind Kind
}

// Bool returns TRUE or FALSE.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, bits: 1}
	}
	return Value{kind: KindBool}
}

// Int returns an integer. It represents all AMQP integers that fit.
func Int(i int64) Value { return Value{kind: KindInt, bits: uint64(i)} }

// Uint returns an integer if u is below 2^63, else the nearest decimal, as C# converts it beside a
// double.
func Uint(u uint64) Value {
	if u <= math.MaxInt64 {
		return Int(int64(u))
	}
	return Double(float64(u))
}

// Double returns a decimal. It represents AMQP floats and doubles.
func Double(f float64) Value { return Value{kind: KindDouble, bits: math.Float64bits(f)} }

// Text returns a string, which may contain any bytes.
func Text(s string) Value { return Value{kind: KindText, text: s} }

// Time returns a timestamp in milliseconds since 1970 UTC.
func Time(ms int64) Value { return Value{kind: KindTime, bits: uint64(ms)} }

// Span returns a time span in ticks of 100 ns.
func Span(ticks int64) Value { return Value{kind: KindSpan, bits: uint64(ticks)} }

// ID returns a GUID.
func ID(g GUID) Value { return Value{kind: KindGUID, text: string(g[:])} }

// Binary returns a byte string; b is copied.
func Binary(b []byte) Value { return Value{kind: KindBinary, text: string(b)} }

// Kind returns the type.
func (v Value) Kind() Kind { return v.kind }

// AsBool returns the boolean; false for other kinds.
func (v Value) AsBool() bool { return v.kind == KindBool && v.bits != 0 }

// AsInt returns the integer, the milliseconds of a timestamp or the ticks of a time span; 0 for other kinds.
func (v Value) AsInt() int64 {
	if v.kind != KindInt && v.kind != KindTime && v.kind != KindSpan {
		return 0
	}
	return int64(v.bits)
}

// AsDouble returns the number, integers rounded to the nearest decimal; 0 for other kinds.
func (v Value) AsDouble() float64 {
	switch v.kind {
	case KindInt:
		return float64(int64(v.bits))
	case KindDouble:
		return math.Float64frombits(v.bits)
	case KindNull, KindBool, KindText, KindTime, KindGUID, KindBinary, KindSpan:
	}
	return 0
}

// Millis returns a positive time span in milliseconds, rounded up.
func (v Value) Millis() int64 { return (v.AsInt()-1)/ticksPerMillisecond + 1 }

// AsText returns the string, or the bytes of a GUID or a binary; empty for other kinds.
func (v Value) AsText() string { return v.text }

// size returns the number of bytes that the value references.
func (v Value) size() int { return len(v.text) }

func (v Value) number() bool { return v.kind == KindInt || v.kind == KindDouble }

// String returns the value as `+` converts it for a string, which is as .NET prints it in the
// invariant culture. NULL, timestamps, time spans and binaries, which `+` refuses, are printed for display.
func (v Value) String() string {
	switch v.kind {
	case KindNull:
		return "NULL"
	case KindBool:
		if v.bits != 0 {
			return "True"
		}
		return "False"
	case KindInt, KindTime:
		return strconv.FormatInt(int64(v.bits), 10)
	case KindDouble:
		return formatDouble(math.Float64frombits(v.bits))
	case KindText, KindBinary:
		return v.text
	case KindSpan:
		return clockText(int64(v.bits))
	case KindGUID:
		var g GUID
		copy(g[:], v.text)
		return g.String()
	}
	return ""
}

// formatDouble returns the shortest digits that represent the number, with an exponent from 1E+15
// up and from 1E-05 down, as System.Double.ToString does.
func formatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	scientific := strconv.FormatFloat(f, 'E', -1, 64)
	_, exponent, _ := strings.Cut(scientific, "E")
	if e, err := strconv.Atoi(exponent); err == nil && -5 < e && e < 15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return scientific
}

// Compare compares two values: negative, 0 or positive. ok is false if the language does not
// compare them: NULL with anything, a NaN with a number, or different types. Numbers compare with
// each other, integers as integers and otherwise as decimals (C# promotion); strings, GUIDs and
// binaries byte by byte, which for strings is the order of code points ("ordinal"). Booleans are
// equal or not, without an order: the result is 0 or 1.
func Compare(a, b Value) (order int, ok bool) {
	if a.number() && b.number() {
		if a.kind == KindInt && b.kind == KindInt {
			return three(a.AsInt(), b.AsInt()), true
		}
		x, y := a.AsDouble(), b.AsDouble()
		return three(x, y), !math.IsNaN(x) && !math.IsNaN(y)
	}
	if a.kind != b.kind {
		return 0, false
	}
	switch a.kind {
	case KindBool:
		return int(a.bits ^ b.bits), true
	case KindTime, KindSpan:
		return three(a.AsInt(), b.AsInt()), true
	case KindText, KindGUID, KindBinary:
		return strings.Compare(a.text, b.text), true
	case KindNull, KindInt, KindDouble:
	}
	return 0, false
}

func three[N int64 | float64](x, y N) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// convert converts a value to another kind without loss of meaning. SET uses it if the property has
// a value already: the new value gets its type "if possible" (documentation of SQL actions; strings
// too, as the maintainers of the service say). The type of a system property is its own, with a value or without.
func convert(v Value, to Kind) (Value, bool) {
	switch {
	case v.kind == to:
		return v, true
	case to == KindText && (v.number() || v.kind == KindBool || v.kind == KindGUID):
		return Text(v.String()), true
	case to == KindDouble && v.kind == KindInt:
		return Double(v.AsDouble()), true
	case to == KindInt && v.kind == KindDouble:
		return integerPart(v)
	case v.kind == KindText:
		return read(v.text, to)
	}
	return Value{}, false
}

// integerPart returns a decimal as an integer, if it is one.
func integerPart(v Value) (Value, bool) {
	f := v.AsDouble()
	if f != math.Trunc(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return Value{}, false
	}
	return Int(int64(f)), true
}

// read parses a string as a value of another kind.
func read(text string, to Kind) (Value, bool) {
	switch to {
	case KindInt:
		i, err := strconv.ParseInt(text, 10, 64)
		return Int(i), err == nil
	case KindDouble:
		if strings.ContainsAny(text, "xXpP_nN") { // Go accepts hexadecimal, Inf and NaN; the language does not
			return Value{}, false
		}
		f, err := strconv.ParseFloat(text, 64)
		return Double(f), err == nil
	case KindBool:
		switch Fold(text) {
		case "true":
			return Bool(true), true
		case "false":
			return Bool(false), true
		}
	case KindGUID:
		return readGUID(text)
	case KindTime:
		return parseTime(text)
	case KindSpan:
		return ParseSpan(text)
	case KindNull, KindText, KindBinary:
	}
	return Value{}, false
}

func readGUID(text string) (Value, bool) {
	var g GUID
	if len(text) != 36 {
		return Value{}, false
	}
	at := 0
	for i := range g {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			if text[at] != '-' {
				return Value{}, false
			}
			at++
		}
		b, err := strconv.ParseUint(text[at:at+2], 16, 8)
		if err != nil {
			return Value{}, false
		}
		g[i] = byte(b)
		at += 2
	}
	return ID(g), true
}
