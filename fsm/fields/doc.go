// Package fields encodes and decodes records as lists of fields. It is the one codec of commands, results,
// images, log entries and messages between members.
//
// A type lists its fields once, in a function that takes a [Codec]; the same list encodes and decodes:
//
//	func (l *LockID) fields(x *fields.Codec) {
//		fields.Uint64(x, &l.Sequence)
//		fields.Uint32(x, &l.Epoch)
//	}
//
// Numbers are uvarints, or have a fixed width in little endian. Texts, bytes and lists have their length before
// them, as a uvarint.
//
// Decoding is strict, so that a record has exactly one encoding: a uvarint has its shortest form, a bool is 0 or 1,
// unknown flags are errors, and nothing may follow the last field. A length that exceeds the remaining bytes is an
// error before memory is allocated for it. The first error stays and later fields are zero, so callers check once,
// with [Codec.End].
package fields
