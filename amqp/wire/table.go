package wire

import (
	"fmt"
	"math"
)

// appendTable appends a composite value with all its fields, including trailing nulls, because the Python SDK
// reads them by position. Nothing of the table escapes to the heap.
func appendTable(dst []byte, desc uint64, table []any) []byte {
	dst, mark := openComposite(dst, byte(desc))
	for _, field := range table {
		dst = appendField(dst, field)
	}
	return closeCompound(dst, mark, len(table))
}

// appendField appends a field of a table.
func appendField(dst []byte, field any) []byte {
	switch v := field.(type) {
	case mandatory:
		return appendField(dst, v.field)
	case *bool:
		return appendBool(dst, *v)
	case **bool:
		return appendBoolPointer(dst, *v)
	case *Role:
		return appendBool(dst, bool(*v))
	case *uint8:
		return append(dst, codeUbyte, *v)
	case **uint8:
		return appendUint8Pointer(dst, *v)
	case **uint16:
		return appendOptional(dst, *v, appendUshort)
	case *uint32:
		return appendUint(dst, *v)
	case **uint32:
		return appendUint32Pointer(dst, *v)
	case *uint64:
		return appendUlong(dst, *v)
	case **uint64:
		return appendOptional(dst, *v, appendUlong)
	case *string:
		return AppendString(dst, *v)
	case **string:
		return appendOptional(dst, *v, AppendString[string])
	case *Symbol:
		return AppendSymbol(dst, *v)
	case **Symbol:
		return appendOptional(dst, *v, AppendSymbol[Symbol])
	case *[]byte:
		return appendBinaryOrNull(dst, *v)
	case *[]Symbol:
		return appendMultiple(dst, *v)
	case *Map:
		return AppendMap(dst, *v)
	case *any:
		return AppendValue(dst, *v)
	}
	return appendWrapped(dst, field)
}

// appendWrapped continues appendField for the rarer fields.
func appendWrapped(dst []byte, field any) []byte {
	switch v := field.(type) {
	case filled:
		switch v := v.field.(type) {
		case *[]byte:
			return AppendBinary(dst, *v)
		case *[]Symbol:
			return appendArray(dst, Array{Values: *v})
		}
	case **Error:
		if *v != nil {
			return appendTable(dst, (*v).descriptor(), (*v).table())
		}
	case **Source:
		if *v != nil {
			return appendTable(dst, (*v).descriptor(), (*v).table())
		}
	case either:
		if *v.coordinator != nil {
			return appendTable(dst, (*v.coordinator).descriptor(), (*v.coordinator).table())
		}
		if *v.target != nil {
			return appendTable(dst, (*v.target).descriptor(), (*v.target).table())
		}
	}
	return append(dst, codeNull)
}

// into decodes the fields of a composite value and checks that no bytes are left.
func (f *fields) into(c composite) error {
	for _, field := range c.table() {
		f.decode(field)
	}
	return f.end()
}

// decode decodes a field of a table.
func (f *fields) decode(field any) {
	switch v := field.(type) {
	case *bool:
		*v = f.bool()
	case **bool:
		*v = f.boolPointer()
	case *Role:
		*v = f.role()
	case **uint8:
		*v = optionalNumber[uint8](f)
	case **uint16:
		*v = optionalNumber[uint16](f)
	case **uint32:
		*v = optionalNumber[uint32](f)
	case **uint64:
		*v = optionalNumber[uint64](f)
	case *string:
		text, _ := f.text()
		*v = string(text)
	case **string:
		*v = optionalText[string](f)
	case *Symbol:
		text, _ := f.text()
		*v = Symbol(text)
	case **Symbol:
		*v = optionalText[Symbol](f)
	case *[]byte:
		*v = f.binary()
	case *[]Symbol:
		*v = f.multiple()
	case *Map:
		*v = f.mapping()
	case *any:
		*v = f.value()
	default:
		f.decodeWrapped(field)
	}
}

// decodeWrapped continues decode for the rarer fields.
func (f *fields) decodeWrapped(field any) {
	switch v := field.(type) {
	case mandatory:
		f.decodeMandatory(v)
	case filled:
		f.decode(v.field)
	case **Error:
		e := &Error{}
		if f.composite(descError, e, nil) != descUnknown {
			*v = e
		}
	case **Source:
		s := &Source{}
		if f.composite(descSource, s, nil) != descUnknown {
			*v = s
		}
	case either:
		t, c := &Target{}, &Coordinator{}
		switch f.composite(descTarget, t, c) {
		case descTarget:
			*v.target = t
		case descCoordinator:
			*v.coordinator = c
		}
	}
}

func (f *fields) decodeMandatory(m mandatory) {
	ok := false
	var n uint64
	var text []byte
	switch v := m.field.(type) {
	case *uint8:
		n, ok = f.uint(math.MaxUint8)
		*v = uint8(n)
	case *uint32:
		n, ok = f.uint(math.MaxUint32)
		*v = uint32(n)
	case *uint64:
		*v, ok = f.uint(math.MaxUint64)
	case *string:
		text, ok = f.text()
		*v = string(text)
	case *Symbol:
		text, ok = f.text()
		*v = Symbol(text)
	}
	if !ok {
		f.fail(fmt.Errorf("%s is mandatory", m.name))
	}
}

// newPerformative returns an empty performative of a type that has a table, nil for every other descriptor.
func newPerformative(desc uint64) composite {
	switch desc {
	case descOpen:
		return &Open{}
	case descBegin:
		return &Begin{}
	case descAttach:
		return &Attach{}
	case descDetach:
		return &Detach{}
	case descEnd:
		return &End{}
	case descClose:
		return &Close{}
	case descSASLMechanisms:
		return &SASLMechanisms{}
	case descSASLInit:
		return &SASLInit{}
	case descSASLChallenge:
		return &SASLChallenge{}
	case descSASLResponse:
		return &SASLResponse{}
	case descSASLOutcome:
		return &SASLOutcome{}
	}
	return nil
}

// newState returns an empty delivery state, or an empty command to a coordinator, which is encoded as a value
// too; nil for every other descriptor.
func newState(desc uint64) composite {
	switch desc {
	case descReceived:
		return &Received{}
	case descAccepted:
		return &Accepted{}
	case descRejected:
		return &Rejected{}
	case descReleased:
		return &Released{}
	case descModified:
		return &Modified{}
	case descDeclared:
		return &Declared{}
	case descTransactional:
		return &TransactionalState{}
	case descDeclare:
		return &Declare{}
	case descDischarge:
		return &Discharge{}
	}
	return nil
}
