package message

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Every message has a message-id once it is stored: who sends none gets one, as in the
// cloud. The JavaScript client cannot settle a message without: it keeps its lock
// timers by message-id and throws when that is null. The id also has to be the same at
// every delivery, so that a receiver can recognise what it did before (docs/requirements.md#t16); it is
// therefore made when the message comes in.

// newMessageID is 32 hexadecimal digits, like a GUID without its dashes.
func newMessageID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // must be unique, need not be secret
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // as above
	return hex.EncodeToString(id[:])
}

// AppendWithID appends message with a message-id to dst. Nothing is appended, and ok
// is false, when it has one already or cannot be read, which the parser then says.
func AppendWithID(dst, message []byte) (longer []byte, ok bool) {
	for rest := message; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return dst, false
		}
		if kind < wire.SectionProperties {
			rest = behind
			continue
		}
		var properties wire.Properties
		before := message[:len(message)-len(rest)]
		if kind == wire.SectionProperties {
			if hasMessageID(value) {
				return dst, false
			}
			if properties, err = wire.DecodeProperties(value); err != nil {
				return dst, false
			}
			rest = behind
		}
		properties.MessageID = newMessageID()
		dst = wire.AppendProperties(append(dst, before...), &properties)
		return append(dst, rest...), true
	}
	return dst, false
}

// hasMessageID checks the first field of an encoded properties list.
func hasMessageID(properties []byte) bool {
	fields, err := wire.IterList(properties)
	if err != nil {
		return true // the parser reports the error
	}
	first, ok := fields.Next()
	return ok && !wire.IsNull(first)
}

// AppendBatchWithIDs does the same for the messages of a batch: ok is false when
// there is nothing to change.
func AppendBatchWithIDs(dst, batch []byte) (longer []byte, ok bool) {
	start := len(dst)
	var scratch []byte
	for rest := batch; len(rest) > 0; {
		kind, value, whole, behind, err := wire.NextSection(rest)
		if err != nil {
			return dst[:start], false
		}
		rest = behind
		if message, isBinary := wire.BinaryOf(value); isBinary && kind == wire.SectionData {
			var changed bool
			if scratch, changed = AppendWithID(scratch[:0], message); changed {
				ok = true
				dst = wire.AppendBinary(wire.AppendSectionDescriptor(dst, kind), scratch)
				continue
			}
		}
		dst = append(dst, whole...)
	}
	if !ok {
		return dst[:start], false
	}
	return dst, true
}
