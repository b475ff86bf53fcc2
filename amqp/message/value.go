package message

import (
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Values on the wire and values of the rule language. The rule language has fewer types:
//
//	AMQP                                     rules      and back
//	null                                     NULL       null
//	boolean                                  boolean    boolean
//	all integers; ulong from 2^63: decimal   integer    long
//	float, double, decimals                  decimal    double
//	string, symbol, char, com.microsoft:uri  string     string
//	timestamp, com.microsoft:datetime-offset timestamp  timestamp
//	com.microsoft:timespan                   time span  com.microsoft:timespan
//	uuid                                     GUID       uuid
//	binary                                   binary     binary
//
// A value that no rule changes keeps its AMQP type, and so does one that an action gives to a property that had none
// (SET a = b): only other values that an action has set are converted from the rule language. Rules cannot refer to lists, maps, arrays and other described values.

// Descriptors that .NET defines (docs/service-bus-protocol.md#described-values).
const (
	timespanDescriptor       = "com.microsoft:timespan"        // long, in ticks
	uriDescriptor            = "com.microsoft:uri"             // string
	dateTimeOffsetDescriptor = "com.microsoft:datetime-offset" // long, in ticks since the year 1, UTC
)

// .NET counts time in ticks of 100 ns, and moments from the first day of year 1 to the end of year 9999.
const (
	ticksPerMillisecond = 10_000
	ticksOf1970         = 621_355_968_000_000_000
	ticksMax            = 3_155_378_975_999_999_999
)

// Ticks returns a moment in ticks of .NET.
func Ticks(at fsm.Instant) int64 { return int64(at)*ticksPerMillisecond + ticksOf1970 }

// InstantOf reads a moment as clients give it in requests and annotations: a timestamp, a long of milliseconds since 1970,
// or .NET's DateTimeOffset, which is rounded up to the millisecond. Moments before 1970 become 0. ok is false for all other
// values, and for moments that .NET does not have.
func InstantOf(v any) (at fsm.Instant, ok bool) {
	switch v := v.(type) {
	case time.Time:
		return fsm.Instant(max(0, v.UnixMilli())), true
	case int64:
		return fsm.Instant(max(0, v)), true
	case wire.Described:
		ticks, isLong := v.Value.(int64)
		if v.Descriptor != wire.Symbol(dateTimeOffsetDescriptor) || !isLong || ticks < 0 || ticks > ticksMax {
			return 0, false
		}
		return fsm.Instant(max(0, ticks-ticksOf1970+ticksPerMillisecond-1) / ticksPerMillisecond), true
	}
	return 0, false
}

// FilterValue converts an encoded value to a value of the rule language. text holds the same bytes; strings
// are slices of it, so that all properties of a message share one allocation. ok is false for types that rules
// do not see.
func FilterValue(encoded []byte, text string) (v filter.Value, ok bool) {
	if data, ok := wire.TextOf(encoded); ok { // the data of a string ends with its value
		return filter.Text(text[len(text)-len(data):]), true
	}
	if n, ok := wire.IntOf(encoded); ok {
		return filter.Int(n), true
	}
	if n, ok := wire.UintOf(encoded); ok {
		return filter.Uint(n), true
	}
	if b, ok := wire.BoolOf(encoded); ok {
		return filter.Bool(b), true
	}
	if f, ok := wire.FloatOf(encoded); ok {
		return filter.Double(f), true
	}
	if wire.IsTimestamp(encoded) {
		ms, _ := wire.MillisOf(encoded)
		return filter.Time(ms), true
	}
	if id, ok := wire.UUIDOf(encoded); ok {
		return filter.ID(filter.GUID(id)), true
	}
	return rareRuleValue(encoded, text)
}

// rareRuleValue continues FilterValue for the rarer types.
func rareRuleValue(encoded []byte, text string) (v filter.Value, ok bool) {
	if wire.IsNull(encoded) {
		return filter.Value{}, true
	}
	if data, ok := wire.BinaryOf(encoded); ok {
		return filter.Binary(data), true
	}
	if c, ok := wire.CharOf(encoded); ok {
		return filter.Text(string(rune(c))), true
	}
	if data, ok := wire.DecimalOf(encoded); ok {
		return decimalValue(data), true
	}
	descriptor, inner, ok := wire.DescribedOf(encoded)
	if !ok {
		return v, false
	}
	name, _ := wire.SymbolOf(descriptor)
	switch string(name) {
	case uriDescriptor:
		data, ok := wire.StringOf(inner)
		return filter.Text(text[len(text)-len(data):]), ok
	case timespanDescriptor:
		ticks, ok := wire.IntOf(inner)
		return filter.Span(ticks), ok
	case dateTimeOffsetDescriptor:
		ticks, ok := wire.IntOf(inner)
		return filter.Time((ticks - ticksOf1970) / ticksPerMillisecond), ok
	}
	return v, false
}

// decimalValue returns the double nearest to a decimal in the binary encoding of IEEE 754-2008, 3.5.2: a sign,
// an exponent of 8, 10 or 14 bits and an integer of 23, 53 or 113 bits. Two set bits at the start of the
// exponent indicate an integer that is three bits longer.
func decimalValue(data []byte) filter.Value {
	exponentBits, bias := 14, 6176
	switch len(data) {
	case 4:
		exponentBits, bias = 8, 101
	case 8:
		exponentBits, bias = 10, 398
	}
	all := new(big.Int).SetBytes(data)
	width := uint(8*len(data) - 1 - exponentBits) // width of the integer
	sign := ""
	if data[0]&0x80 != 0 {
		sign = "-"
	}
	switch data[0] & 0x7c {
	case 0x7c:
		return decimalText("NaN")
	case 0x78:
		return decimalText(sign + "Inf")
	}
	long := data[0]&0x60 == 0x60
	if long {
		width -= 2
	}
	exponent := int(new(big.Int).Rsh(all, width).Uint64() & (1<<exponentBits - 1))
	if isShiftedDecimal(data) {
		exponent += shiftedDecimalExponent
	}
	integer := all.And(all, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), width), big.NewInt(1)))
	if long {
		integer.SetBit(integer, int(width)+2, 1)
	}
	return decimalText(sign + integer.String() + "e" + strconv.Itoa(exponent-bias))
}

// shiftedDecimalExponent is what the exponent of a shifted decimal lacks.
const shiftedDecimalExponent = 0x1200

// isShiftedDecimal reports whether a decimal128 was encoded by a .NET client: Microsoft.Azure.Amqp up to 2.7.3 writes the
// exponent two bits too far to the right, so that 1.5 is 0c3e... instead of 303e.... The scale of System.Decimal is 0 to 28
// and its integer has 96 bits, so these values have 0c or 8c as first byte, an even second byte from 08 to 40, and two zero
// bytes. A decimal of IEEE 754 with those bytes is below 1e-4579, which is 0 as a double in any case.
func isShiftedDecimal(data []byte) bool {
	return len(data) == 16 && data[0]&0x7f == 0x0c && data[1] >= 0x08 && data[1] <= 0x40 && data[1]%2 == 0 && data[2] == 0 && data[3] == 0
}

// decimalText parses a number as Go parses a float. A number that is too large becomes infinity.
func decimalText(text string) filter.Value {
	f, _ := strconv.ParseFloat(text, 64)
	return filter.Double(f)
}

// EncodeFilterValue encodes a value of the rule language as AMQP.
func EncodeFilterValue(v filter.Value) []byte {
	switch v.Kind() {
	case filter.KindNull:
	case filter.KindBool:
		return wire.AppendValue(nil, v.AsBool())
	case filter.KindInt:
		return wire.AppendLong(nil, v.AsInt())
	case filter.KindDouble:
		return wire.AppendValue(nil, v.AsDouble())
	case filter.KindText:
		return wire.AppendString(nil, validText(v))
	case filter.KindTime:
		return wire.AppendMillis(nil, v.AsInt())
	case filter.KindGUID:
		var id wire.UUID
		copy(id[:], v.AsText())
		return wire.AppendUUID(nil, id)
	case filter.KindBinary:
		return wire.AppendBinary(nil, []byte(v.AsText()))
	case filter.KindSpan:
		return wire.AppendValue(nil, wire.Described{Descriptor: wire.Symbol(timespanDescriptor), Value: v.AsInt()})
	}
	return wire.AppendValue(nil, nil)
}

// validText converts a value to text that a client can decode. Only symbols may hold invalid UTF-8.
func validText(v filter.Value) string {
	text := v.String()
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}
