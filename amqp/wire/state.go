package wire

// openComposite appends the descriptor and the head of the list of a composite value. closeCompound, called
// with the number of fields written, ends it. The list is never list0, because the Python SDK reads only list8
// and list32.
func openComposite(dst []byte, desc byte) (longer []byte, mark int) {
	return openCompound(append(dst, codeDescribed, codeSmallUlong, desc), codeList8)
}

// appendState appends a delivery state, a command to a coordinator or an error. It appends null for a nil
// pointer and for every other type.
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
	case *Rejected:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Modified:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Received:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Declared:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *TransactionalState:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Declare:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Discharge:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	case *Error:
		if s != nil {
			return appendTable(dst, s.descriptor(), s.table())
		}
	}
	return append(dst, codeNull)
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

func appendUint32Pointer(dst []byte, v *uint32) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return appendUint(dst, *v)
}

// appendOptional appends a field that is null if v is nil.
func appendOptional[T any](dst []byte, v *T, put func([]byte, T) []byte) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return put(dst, *v)
}

// appendBinaryOrNull appends a binary field that is null if nil.
func appendBinaryOrNull(dst, v []byte) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return AppendBinary(dst, v)
}
