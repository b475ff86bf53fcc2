package fsm

import (
	"encoding/binary"
	"fmt"

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
}

// Change is the change of one property by an action.
type Change struct {
	Property filter.Property
	Value    filter.Value // may be NULL
	Remove   bool         // Value is ignored
}

// patchesVersion is the first byte of the body that contains the patches of a message. Version 1 was
// written before any release and is not read.
const patchesVersion byte = 2

// changeBytesMin is the fewest bytes a change takes: scope, name, whether it removes.
const changeBytesMin = 3

// AppendPatches appends the encoding of patches to dst: a version byte and one piece
// per patch, oldest first. No patches are no bytes at all.
func AppendPatches(dst []byte, patches []Patch) []byte {
	if len(patches) == 0 {
		return dst
	}
	dst = append(dst, patchesVersion)
	for i := range patches {
		dst = appendPatch(dst, &patches[i])
	}
	return dst
}

// appendPatch adds one patch to an encoding that is not empty.
func appendPatch(dst []byte, p *Patch) []byte {
	dst = appendBool(dst, p.DeadLetter)
	dst = appendString(dst, p.Reason)
	dst = appendString(dst, p.Description)
	dst = appendBytes(dst, p.Properties)
	dst = binary.AppendUvarint(dst, uint64(len(p.Changes)))
	for i := range p.Changes {
		dst = appendChange(dst, &p.Changes[i])
	}
	dst = appendString(binary.AppendUvarint(dst, uint64(p.Enqueued)), p.Source)
	return appendString(appendDestination(dst, p.To), p.ToName)
}

func appendChange(dst []byte, c *Change) []byte {
	dst = appendBool(appendProperty(dst, c.Property), c.Remove)
	if c.Remove {
		return dst
	}
	return filter.AppendValue(dst, c.Value)
}

// joinPatches appends one patch to an encoding, which may be empty. It does not write to old.
func joinPatches(old []byte, p *Patch) []byte {
	if len(old) == 0 {
		return AppendPatches(nil, []Patch{*p})
	}
	if old[0] != patchesVersion {
		panic(fmt.Sprintf("fsm: append to patches: %v", unknownVersion(old[0], patchesVersion, patchesVersion)))
	}
	return appendPatch(append([]byte(nil), old...), p)
}

// DecodePatches reads what AppendPatches wrote. Properties alias b. No bytes are no
// patches.
func DecodePatches(b []byte) ([]Patch, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := reader{b: b}
	if version := r.byte(); version != patchesVersion {
		r.fail(unknownVersion(version, patchesVersion, patchesVersion))
	}
	var patches []Patch
	for len(r.b) > 0 {
		p := Patch{DeadLetter: r.bool(), Reason: r.string(), Description: r.string(), Properties: r.bytes()}
		for range r.count(changeBytesMin) {
			p.Changes = append(p.Changes, r.change())
		}
		p.Enqueued, p.Source = SequenceNumber(r.uvarint()), r.string()
		p.To, p.ToName = r.destination(), r.string()
		patches = append(patches, p)
	}
	if r.err == nil && len(patches) == 0 {
		r.fail(errShort)
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode patches: %w", err)
	}
	return patches, nil
}

func (r *reader) change() Change {
	c := Change{Property: r.property(), Remove: r.bool()}
	if !c.Remove {
		c.Value = r.value()
	}
	return c
}
