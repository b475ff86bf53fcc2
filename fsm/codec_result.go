package fsm

import (
	"encoding/binary"
	"fmt"
)

// resultVersion is the first byte of an encoded result.
const resultVersion byte = 2

// patchesVersion is the first byte of the body that holds the patches of a message.
const patchesVersion byte = 1

// deliveryBytesMin is the fewest bytes a delivery takes.
const deliveryBytesMin = lockBytesMin + 7

// AppendResult appends the encoding of a result to dst: what crosses from the leader
// to the asking member. Deliveries travel with Payload and Patches, and without the
// references, which mean nothing on another replica.
func AppendResult(dst []byte, res Result) []byte {
	dst = append(dst, resultVersion, byte(res.Code))
	dst = binary.AppendUvarint(dst, uint64(res.Sequence))
	dst = binary.AppendUvarint(dst, uint64(res.Entity))
	dst = binary.AppendUvarint(dst, res.Version)
	dst = binary.AppendUvarint(dst, res.Count)
	dst = binary.AppendUvarint(dst, uint64(len(res.Codes)))
	for _, c := range res.Codes {
		dst = append(dst, byte(c))
	}
	dst = binary.AppendUvarint(dst, uint64(len(res.Untils)))
	for _, t := range res.Untils {
		dst = binary.AppendUvarint(dst, uint64(t))
	}
	dst = appendNumbers(dst, res.Sequences)
	dst = binary.AppendUvarint(dst, uint64(len(res.Deliveries)))
	for i := range res.Deliveries {
		dst = appendDelivery(dst, &res.Deliveries[i])
	}
	return dst
}

func appendDelivery(dst []byte, d *Delivery) []byte {
	dst = append(appendLockID(dst, d.Lock), byte(d.State))
	dst = binary.AppendUvarint(dst, uint64(d.Attempts))
	dst = binary.AppendUvarint(dst, uint64(d.Enqueued))
	dst = binary.AppendUvarint(dst, uint64(d.LockedUntil))
	dst = binary.AppendUvarint(dst, uint64(d.Expires))
	return appendBytes(appendBytes(dst, d.Payload), d.Patches)
}

// DecodeResult reads what AppendResult wrote. Payload and Patches alias b.
func DecodeResult(b []byte) (Result, error) {
	r := reader{b: b}
	if r.byte() != resultVersion {
		r.fail(errVersion)
	}
	res := Result{
		Code:     Code(r.byte()),
		Sequence: SequenceNumber(r.uvarint()),
		Entity:   EntityID(r.uvarint()),
		Version:  r.uvarint(),
		Count:    r.uvarint(),
	}
	if n := r.count(1); n > 0 {
		res.Codes = make([]Code, n)
		for i := range res.Codes {
			res.Codes[i] = Code(r.byte())
		}
	}
	if n := r.count(1); n > 0 {
		res.Untils = make([]Instant, n)
		for i := range res.Untils {
			res.Untils[i] = r.instant()
		}
	}
	if list := r.numbers(); len(list) > 0 {
		res.Sequences = list
	}
	if n := r.count(deliveryBytesMin); n > 0 {
		res.Deliveries = make([]Delivery, n)
		for i := range res.Deliveries {
			res.Deliveries[i] = r.delivery()
		}
	}
	if err := r.end(); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return res, nil
}

func (r *reader) delivery() Delivery {
	return Delivery{
		Lock:        r.lockID(),
		State:       MessageState(r.byte()),
		Attempts:    r.uint32(),
		Enqueued:    r.instant(),
		LockedUntil: r.instant(),
		Expires:     r.instant(),
		Payload:     r.bytes(),
		Patches:     r.bytes(),
	}
}

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
	return appendBytes(dst, p.Properties)
}

// DecodePatches reads what AppendPatches wrote. Properties alias b. No bytes are no
// patches.
func DecodePatches(b []byte) ([]Patch, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := reader{b: b}
	if r.byte() != patchesVersion {
		r.fail(errVersion)
	}
	var patches []Patch
	for len(r.b) > 0 {
		patches = append(patches, Patch{
			DeadLetter:  r.bool(),
			Reason:      r.string(),
			Description: r.string(),
			Properties:  r.bytes(),
		})
	}
	if r.err == nil && len(patches) == 0 {
		r.fail(errShort)
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode patches: %w", err)
	}
	return patches, nil
}
