package rule

import (
	"math"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The descriptors of values of .NET.
const (
	timeSpanDescriptor = "com.microsoft:timespan" // long, in ticks
	uriDescriptor      = "com.microsoft:uri"
)

// typeOf returns the type of a decoded value, TypeOfValue where its filter value says enough.
func typeOf(v any) fsm.ValueType {
	switch v := v.(type) {
	case int8:
		return fsm.TypeByte
	case uint8:
		return fsm.TypeUnsignedByte
	case int16:
		return fsm.TypeShort
	case uint16:
		return fsm.TypeUnsignedShort
	case int32:
		return fsm.TypeInt
	case uint32:
		return fsm.TypeUnsignedInt
	case int64:
		return fsm.TypeLong
	case uint64:
		if v > math.MaxInt64 {
			return fsm.TypeOfValue // its filter value is a decimal
		}
		return fsm.TypeUnsignedLong
	case float32:
		return fsm.TypeFloat
	case wire.UUID:
		return fsm.TypeGUID
	case []byte:
		return fsm.TypeBinary
	case wire.Char:
		return fsm.TypeChar
	case wire.Described:
		switch v.Descriptor {
		case wire.Symbol(timeSpanDescriptor):
			return fsm.TypeDuration
		case wire.Symbol(uriDescriptor):
			return fsm.TypeURI
		}
	}
	return fsm.TypeOfValue
}

// encodeValue encodes a value in the type in which a client gave it.
func encodeValue(v filter.Value, as fsm.ValueType) []byte {
	if v.Kind() == filter.KindInt {
		if typed := integer(v.AsInt(), as); typed != nil {
			return wire.AppendValue(nil, typed)
		}
	}
	switch {
	case as == fsm.TypeFloat && v.Kind() == filter.KindDouble:
		return wire.AppendValue(nil, float32(v.AsDouble()))
	case as == fsm.TypeURI && v.Kind() == filter.KindText:
		return wire.AppendValue(nil, wire.Described{Descriptor: wire.Symbol(uriDescriptor), Value: v.String()})
	case as == fsm.TypeChar && utf8.RuneCountInString(v.AsText()) == 1:
		c, _ := utf8.DecodeRuneInString(v.AsText())
		return wire.AppendValue(nil, wire.Char(c))
	}
	return message.EncodeFilterValue(v)
}

// integer returns an integer as a type, nil if the type has no such value.
func integer(n int64, as fsm.ValueType) any {
	switch {
	case as == fsm.TypeByte && n == int64(int8(n)):
		return int8(n)
	case as == fsm.TypeUnsignedByte && n == int64(uint8(n)):
		return uint8(n)
	case as == fsm.TypeShort && n == int64(int16(n)):
		return int16(n)
	case as == fsm.TypeUnsignedShort && n == int64(uint16(n)):
		return uint16(n)
	case as == fsm.TypeInt && n == int64(int32(n)):
		return int32(n)
	case as == fsm.TypeUnsignedInt && n == int64(uint32(n)):
		return uint32(n)
	case as == fsm.TypeUnsignedLong && n >= 0:
		return uint64(n)
	}
	return nil
}
