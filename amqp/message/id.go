package message

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Every stored message has a message-id: as in the cloud, a message sent without one gets one. The JavaScript
// client cannot settle a message without message-id: it uses the id as the key of its lock timers and throws
// when the id is null. The id must also be the same at every delivery, so that a receiver can recognise a
// message that it has processed (docs/requirements.md#t16). Therefore the gateway creates the id when it
// receives the message.

// newMessageID returns 32 hexadecimal digits, like a GUID without its dashes.
func newMessageID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // must be unique, need not be secret
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // as above
	return hex.EncodeToString(id[:])
}

// AppendWithID appends message with a new message-id to dst. It appends nothing, and ok is false, if the
// message has one already or cannot be read; the parser then reports the error.
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

// AppendBatchWithIDs applies AppendWithID to the messages of a batch: ok is false if no message changes.
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
