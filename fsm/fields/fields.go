package fields

import "encoding/binary"

// Uint64 is a uvarint.
func Uint64[T ~uint64](x *Codec, v *T) {
	if x.encoding {
		x.Buf = binary.AppendUvarint(x.Buf, uint64(*v))
		return
	}
	*v = T(x.Uvarint())
}

// Uint32 is a uvarint of at most 32 bits.
func Uint32[T ~uint32](x *Codec, v *T) {
	if x.encoding {
		x.Buf = binary.AppendUvarint(x.Buf, uint64(*v))
		return
	}
	*v = T(x.Uint32())
}

// Uint8 is a byte.
func Uint8[T ~uint8](x *Codec, v *T) {
	if x.encoding {
		x.Buf = append(x.Buf, byte(*v))
		return
	}
	*v = T(x.Byte())
}

// Int64 is a number that is not negative, such as a time or a duration: a uvarint of at most 63 bits.
func Int64[T ~int64](x *Codec, v *T) {
	if x.encoding {
		x.Buf = binary.AppendUvarint(x.Buf, uint64(*v))
		return
	}
	*v = T(x.Int64())
}

// Text is a text with its length before it. Decoding copies it.
func Text[T ~string](x *Codec, v *T) {
	if x.encoding {
		x.Buf = AppendText(x.Buf, string(*v))
		return
	}
	*v = T(x.Bytes())
}

// Bytes are bytes with their length before them. Decoded bytes alias the input.
func Bytes(x *Codec, v *[]byte) {
	if x.encoding {
		x.Buf = append(binary.AppendUvarint(x.Buf, uint64(len(*v))), *v...)
		return
	}
	*v = x.Bytes()
}

// Bool is a byte that is 0 or 1.
func Bool(x *Codec, v *bool) {
	if x.encoding {
		x.Buf = AppendBool(x.Buf, *v)
		return
	}
	*v = x.Bool()
}

// Fixed64 is a number of 8 bytes, for numbers that are mostly large.
func Fixed64[T ~uint64 | ~int64](x *Codec, v *T) {
	if x.encoding {
		x.Buf = binary.LittleEndian.AppendUint64(x.Buf, uint64(*v))
		return
	}
	*v = T(x.Fixed64())
}

// Fixed32 is a number of 4 bytes.
func Fixed32[T ~uint32](x *Codec, v *T) {
	if x.encoding {
		x.Buf = binary.LittleEndian.AppendUint32(x.Buf, uint32(*v))
		return
	}
	*v = T(x.Fixed32())
}

// Key is 16 bytes, without a length.
func Key(x *Codec, key *[16]byte) {
	switch {
	case x.encoding:
		x.Buf = append(x.Buf, key[:]...)
	case len(x.Buf) < len(key):
		x.Fail(ErrShort)
	default:
		x.Buf = x.Buf[copy(key[:], x.Buf):]
	}
}

// Flags is a byte with a bit for each flag, the lowest for the first. Encoding only reads the flags: an image is
// written while others read the same settings.
func Flags(x *Codec, flags ...*bool) {
	if x.encoding {
		var set byte
		for i, flag := range flags {
			if *flag {
				set |= 1 << i
			}
		}
		x.Buf = append(x.Buf, set)
		return
	}
	set := x.Byte()
	if set>>len(flags) != 0 {
		x.Fail(ErrFlag)
	}
	for i, flag := range flags {
		*flag = set&(1<<i) != 0
	}
}

// Version is a byte that must be the version.
func Version(x *Codec, version byte) {
	found := version
	if Uint8(x, &found); found != version {
		x.Fail(UnknownVersion(found, version))
	}
}

// Len is the length of a list whose items have at least so many bytes each. Decoding makes the list, in the memory
// that it has if that is large enough; the caller continues with the items.
func Len[T any](x *Codec, list *[]T, least int) int {
	if x.encoding {
		x.Buf = binary.AppendUvarint(x.Buf, uint64(len(*list)))
		return len(*list)
	}
	n := x.Count(least)
	if n > cap(*list) {
		*list = make([]T, n)
	}
	*list = (*list)[:n]
	return n
}

// Uint64s is a list of uvarints.
func Uint64s[T ~uint64](x *Codec, list *[]T) {
	for i := range Len(x, list, 1) {
		Uint64(x, &(*list)[i])
	}
}

// Uint8s is a list of bytes, one per item.
func Uint8s[T ~uint8](x *Codec, list *[]T) {
	for i := range Len(x, list, 1) {
		Uint8(x, &(*list)[i])
	}
}
