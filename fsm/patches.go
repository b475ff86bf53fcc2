package fsm

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Patch is one change of a message since it was sent, in order of the changes: by a settlement, by
// the action of a rule, or by forwarding.
type Patch struct {
	DeadLetter  bool // Reason and Description are set
	Reason      string
	Description string
	Properties  []byte   // AMQP map body, as in Settlement
	Changes     []Change // made by the action of a rule
	// Enqueued is the sequence number at the entity to which the message was sent first, before it
	// was forwarded: x-opt-enqueue-sequence-number. 0: not in this patch.
	Enqueued SequenceNumber
	// Source is the path of the entity from whose dead-letter queue the message was forwarded:
	// x-opt-deadletter-source. "": not in this patch.
	Source string
	// To and ToName are the destination of a message of a transfer queue; they are removed on
	// arrival. Zero: not in this patch.
	To     Destination
	ToName string // path
	// ToTime is the time for which a message is scheduled at the destination, 0 for none, and ToNumber the number that was
	// reserved for it there. 0: it takes the next number.
	ToNumber SequenceNumber
	ToTime   Instant
}

// Change is the change of one property by an action.
type Change struct {
	Property filter.Property
	Value    filter.Value // may be NULL
	Remove   bool         // Value is ignored
	// From is the user property whose value Property takes together with its type, which Value may not have: a change
	// by SET a = b, where a had no value. "" if there is none.
	From string
}

// patchesVersion is the first byte of the body that contains the patches of a message.
const patchesVersion byte = 0xE1

// ChangeBytesMin is the minimum size of a change: scope, name, whether it removes.
const ChangeBytesMin = 3

// AppendPatches appends the encoding of patches to dst: a version byte and one record per patch,
// oldest first. No patches are no bytes at all.
func AppendPatches(dst []byte, patches []Patch) []byte {
	if len(patches) == 0 {
		return dst
	}
	x := fields.Encoder(append(dst, patchesVersion))
	for i := range patches {
		patches[i].fields(&x)
	}
	return x.Buf
}

// JoinPatches appends one patch to an encoding, which may be empty. It does not write to old.
func JoinPatches(old []byte, p *Patch) []byte { return AppendPatch(nil, old, p) }

// AppendPatch appends to dst what JoinPatches returns.
func AppendPatch(dst, old []byte, p *Patch) []byte {
	if len(old) == 0 {
		old = []byte{patchesVersion}
	}
	if old[0] != patchesVersion {
		panic(fmt.Sprintf("fsm: append to patches: %v", fields.UnknownVersion(old[0], patchesVersion)))
	}
	x := fields.Encoder(append(dst, old...))
	p.fields(&x)
	return x.Buf
}

// DecodePatches decodes the output of AppendPatches. Properties alias b. No bytes are no patches.
func DecodePatches(b []byte) ([]Patch, error) {
	if len(b) == 0 {
		return nil, nil
	}
	x := fields.Decoder(b)
	fields.Version(&x, patchesVersion)
	var patches []Patch
	for len(x.Buf) > 0 {
		var p Patch
		p.fields(&x)
		patches = append(patches, p)
	}
	if x.Err() == nil && len(patches) == 0 {
		x.Fail(fields.ErrShort)
	}
	if err := x.End(); err != nil {
		return nil, fmt.Errorf("decode patches: %w", err)
	}
	return patches, nil
}

func (p *Patch) fields(x *fields.Codec) {
	fields.Bool(x, &p.DeadLetter)
	fields.Text(x, &p.Reason)
	fields.Text(x, &p.Description)
	fields.Bytes(x, &p.Properties)
	for i := range fields.Len(x, &p.Changes, ChangeBytesMin) {
		p.Changes[i].fields(x)
	}
	fields.Uint64(x, &p.Enqueued)
	fields.Text(x, &p.Source)
	p.To.Fields(x)
	fields.Text(x, &p.ToName)
	fields.Uint64(x, &p.ToNumber)
	fields.Int64(x, &p.ToTime)
}

func (c *Change) fields(x *fields.Codec) {
	fieldProperty(x, &c.Property)
	if fields.Bool(x, &c.Remove); !c.Remove {
		fieldValue(x, &c.Value)
		fields.Text(x, &c.From)
	}
}
