package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// isState says whether desc is one of the delivery states that have a type here, or one of
// the two commands to a coordinator, which come as values too.
func isState(desc uint64) bool {
	switch desc {
	case descReceived, descAccepted, descRejected, descReleased, descModified, descDeclared, descTransactional, descDeclare, descDischarge:
		return true
	}
	return false
}

// state decodes the fields of what isState knows (part 3, 3.4; part 4, 4.5).
// Accepted and Released take no memory.
func (f *fields) state(desc uint64) (any, error) {
	var state any
	switch desc {
	case descReceived:
		number := f.mustUint32("section-number")
		offset, ok := f.uint(math.MaxUint64)
		if !ok {
			f.fail(fmt.Errorf("section-offset is mandatory"))
		}
		state = &Received{SectionNumber: number, SectionOffset: offset}
	case descAccepted:
		state = &Accepted{}
	case descRejected:
		state = &Rejected{Error: f.error()}
	case descReleased:
		state = &Released{}
	case descModified:
		state = &Modified{DeliveryFailed: f.boolPointer(), UndeliverableHere: f.boolPointer(), MessageAnnotations: f.mapping()}
	case descDeclared:
		state = &Declared{TxnID: f.binary()}
	case descTransactional:
		state = &TransactionalState{TxnID: f.binary(), Outcome: f.value()}
	case descDeclare:
		state = &Declare{GlobalID: f.value()}
	case descDischarge:
		state = &Discharge{TxnID: f.binary(), Fail: f.bool()}
	}
	return state, f.end()
}

// openComposite appends the descriptor and the head of the list of a composite value.
// closeComposite, with the number of fields written, ends it. Never list0: the Python
// SDK reads only list8 and list32.
func openComposite(dst []byte, desc byte) (longer []byte, mark int) {
	return openCompound(append(dst, codeDescribed, codeSmallUlong, desc), codeList8)
}

// appendState appends a delivery state, an outcome or a command, null for every other type.
func appendState(dst []byte, state any) []byte {
	switch s := state.(type) {
	case *Accepted:
		if s != nil {
			return append(dst, codeDescribed, codeSmallUlong, descAccepted, codeList8, 1, 0)
		}
	case *Released:
		if s != nil {
			return append(dst, codeDescribed, codeSmallUlong, descReleased, codeList8, 1, 0)
		}
	case *Received:
		if s != nil {
			dst, mark := openComposite(dst, descReceived)
			dst = appendUint(dst, s.SectionNumber)
			return closeCompound(appendUlong(dst, s.SectionOffset), mark, 2)
		}
	case *Rejected:
		if s != nil {
			dst, mark := openComposite(dst, descRejected)
			return closeCompound(appendError(dst, s.Error), mark, 1)
		}
	case *Modified:
		if s != nil {
			dst, mark := openComposite(dst, descModified)
			dst = appendBoolPointer(dst, s.DeliveryFailed)
			dst = appendBoolPointer(dst, s.UndeliverableHere)
			return closeCompound(AppendMap(dst, s.MessageAnnotations), mark, 3)
		}
	case *Declared:
		if s != nil {
			dst, mark := openComposite(dst, descDeclared)
			return closeCompound(AppendBinary(dst, s.TxnID), mark, 1)
		}
	case *TransactionalState:
		if s != nil {
			dst, mark := openComposite(dst, descTransactional)
			dst = AppendBinary(dst, s.TxnID)
			return closeCompound(AppendValue(dst, s.Outcome), mark, 2)
		}
	}
	return appendCommand(dst, state)
}

// appendCommand appends a command to a coordinator, null for every other type.
func appendCommand(dst []byte, command any) []byte {
	switch c := command.(type) {
	case *Declare:
		if c != nil {
			dst, mark := openComposite(dst, descDeclare)
			return closeCompound(AppendValue(dst, c.GlobalID), mark, 1)
		}
	case *Discharge:
		if c != nil {
			dst, mark := openComposite(dst, descDischarge)
			return closeCompound(appendBool(AppendBinary(dst, c.TxnID), c.Fail), mark, 2)
		}
	}
	return append(dst, codeNull)
}

// appendError appends an error with all three elements, because the Python SDK reads
// them by position (part 2, 2.8.14), or null.
func appendError(dst []byte, e *Error) []byte {
	if e == nil {
		return append(dst, codeNull)
	}
	dst, mark := openComposite(dst, descError)
	dst = AppendSymbol(dst, e.Condition)
	dst = AppendString(dst, e.Description)
	return closeCompound(AppendMap(dst, e.Info), mark, 3)
}

func appendBoolPointer(dst []byte, v *bool) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return appendBool(dst, *v)
}

func appendUint8Pointer(dst []byte, v *uint8) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return append(dst, codeUbyte, *v)
}

func appendUint16Pointer(dst []byte, v *uint16) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return binary.BigEndian.AppendUint16(append(dst, codeUshort), *v)
}

func appendUint32Pointer(dst []byte, v *uint32) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return appendUint(dst, *v)
}

func appendUint64Pointer(dst []byte, v *uint64) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return appendUlong(dst, *v)
}

func appendStringPointer(dst []byte, v *string) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return AppendString(dst, *v)
}

func appendSymbolPointer(dst []byte, v *Symbol) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return AppendSymbol(dst, *v)
}

// appendBinaryOrNull appends a binary field that is null when nil.
func appendBinaryOrNull(dst, v []byte) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return AppendBinary(dst, v)
}
