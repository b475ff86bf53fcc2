package message

import (
	"encoding/binary"
	"errors"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The payload is the part of a message that the state machines store. They do not interpret
// it; its layout makes delivering the message little more than a copy.
//
//	┌─────────┬───────┬──────────┬─────────┬─────────────────────────────────────────┐
//	│ version │ flags │ priority │ ttl     │ annotations kept, and then, if flagged, │
//	│ 1 byte  │1 byte │ 1 byte if│ uvarint │ delivery annotations kept, each as:     │
//	│ = 1     │       │ flagged  │ ms, if  │ uvarint bytes, uvarint pairs, then the  │
//	│         │       │          │ flagged │ pairs: encoded key, encoded value, ...  │
//	├─────────┴───┬───┴──────────┼─────────┴──┬────────────────────────┬─────────────┤
//	│ bytes of    │ bytes of     │ properties │ application-properties │ body        │
//	│ properties  │ application- │ section    │ section                │ sections,   │
//	│ section     │ properties   │            │                        │ footer: to  │
//	│ uvarint     │ uvarint      │ as encoded by the client, behind    │ the end     │
//	│             │              │ descriptors in small ulong form     │             │
//	└─────────────┴──────────────┴─────────────────────────────────────┴─────────────┘
//
// A section that the client did not send has no bytes. The order of the sections is the
// order on the wire, so a delivery consists of a new header and new annotations, followed by a
// copy of everything from the properties on. Only for a message that a settlement changed
// (Delivery.Patches) are the application-properties written again.
const payloadVersion = 0x81

// Flags of a payload. All bits are in use.
const (
	payloadDurable                = 1 << 0
	payloadHasPriority            = 1 << 1
	payloadHasTTL                 = 1 << 2
	payloadFirstAcquirer          = 1 << 3
	payloadHasDeliveryAnnotations = 1 << 4
	payloadNotDurable             = 1 << 5 // the client sent durable=false
	payloadNotFirstAcquirer       = 1 << 6 // the client sent first-acquirer=false
	payloadScheduled              = 1 << 7 // the client set a scheduled enqueue time
)

// payloadView is a parsed payload. The slices are parts of it.
type payloadView struct {
	flags       byte
	priority    byte
	ttl         uint32
	annotations []byte // encoded pairs
	pairs       int
	delivery    []byte // encoded pairs of delivery annotations
	deliveries  int    // number of pairs in delivery
	properties  []byte // section
	application []byte // section
	bare        []byte // properties, application-properties and all that follows
	body        []byte // the sections that follow application-properties
}

// errPayload reports that stored bytes are not a payload of a known version.
var errPayload = errors.New("payload is damaged or of an unknown version")

func openPayload(b []byte) (payloadView, error) {
	if len(b) < 2 || b[0] != payloadVersion {
		return payloadView{}, errPayload
	}
	v := payloadView{flags: b[1]}
	b = b[2:]
	if v.flags&payloadHasPriority != 0 {
		if len(b) == 0 {
			return payloadView{}, errPayload
		}
		v.priority, b = b[0], b[1:]
	}
	ok := true
	if v.flags&payloadHasTTL != 0 {
		var ttl uint64
		ttl, b, ok = takeUvarint(b, 1<<32-1)
		v.ttl = uint32(ttl)
	}
	var ok1 bool
	if v.annotations, v.pairs, b, ok1 = takePairs(b); !ok || !ok1 {
		return payloadView{}, errPayload
	}
	if v.flags&payloadHasDeliveryAnnotations != 0 {
		if v.delivery, v.deliveries, b, ok = takePairs(b); !ok {
			return payloadView{}, errPayload
		}
	}
	properties, b, ok1 := takeUvarint(b, uint64(len(b)))
	application, b, ok2 := takeUvarint(b, uint64(len(b)))
	if !ok1 || !ok2 || properties+application > uint64(len(b)) {
		return payloadView{}, errPayload
	}
	v.bare = b
	v.properties, b = b[:properties], b[properties:]
	v.application, v.body = b[:application], b[application:]
	return v, nil
}

// takePairs splits encoded pairs, with their length and number before them, off b.
func takePairs(b []byte) (encoded []byte, pairs int, rest []byte, ok bool) {
	size, b, ok1 := takeUvarint(b, uint64(len(b)))
	count, b, ok2 := takeUvarint(b, uint64(len(b)))
	if !ok1 || !ok2 || size > uint64(len(b)) {
		return nil, 0, nil, false
	}
	return b[:size], int(count), b[size:], true
}

// takeUvarint splits a number of at most limit off b.
func takeUvarint(b []byte, limit uint64) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > limit {
		return 0, nil, false
	}
	return n, b[size:], true
}

// lifetimeOf returns how long a message that expires lives after it was enqueued, in milliseconds.
func lifetimeOf(d *fsm.Delivery) int64 { return int64(d.Expires - d.Enqueued) }

// times returns the fields creation-time and absolute-expiry-time of the properties, nil if absent, and the number of
// bytes behind the latter.
func (v *payloadView) times() (created, expires []byte, behind int) {
	if len(v.properties) == 0 {
		return nil, nil, 0
	}
	fields, err := wire.IterList(v.properties[sectionDescriptorBytes:])
	if err != nil {
		return nil, nil, 0 // cannot happen: they were checked when the message was sent
	}
	for i := 0; ; i++ {
		field, ok := fields.Next()
		behind += len(field)
		switch {
		case !ok:
			return created, expires, behind
		case wire.IsNull(field):
		case i == creationField:
			created = field
		case i == expiryField:
			expires, behind = field, 0
		}
	}
}

// sectionDescriptorBytes is the size of a descriptor in smallulong form.
const sectionDescriptorBytes = 3

// sectionLen returns the length of the section with this value, 0 if there is no value.
func sectionLen(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return uint64(sectionDescriptorBytes + len(value))
}

// appendSection appends a section whose value is encoded, or nothing for nil. The descriptor is written as a
// smallulong, because the Python SDK reads no other form.
func appendSection(dst []byte, kind wire.SectionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	return append(wire.AppendSectionDescriptor(dst, kind), value...)
}
