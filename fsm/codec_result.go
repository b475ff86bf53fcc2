package fsm

import (
	"encoding/binary"
	"fmt"
)

// resultVersion is the first byte of an encoded result.
const resultVersion byte = 4

// patchesVersion is the first byte of the body that contains the patches of a message. Version 1 was
// written before any release and is not read.
const patchesVersion byte = 2

// deliveryBytesMin is the fewest bytes a delivery takes.
const deliveryBytesMin = lockBytesMin + 9

// AppendResult appends the encoding of a result to dst: what crosses from the leader
// to the asking member. Deliveries travel with Payload and Patches, and without the
// references, which mean nothing on another replica.
func AppendResult(dst []byte, res Result) []byte {
	dst = append(dst, resultVersion, byte(res.Code))
	dst = binary.AppendUvarint(dst, uint64(res.Sequence))
	dst = binary.AppendUvarint(dst, uint64(res.Entity))
	dst = binary.AppendUvarint(dst, uint64(res.Namespace))
	dst = binary.AppendUvarint(dst, res.Version)
	dst = binary.AppendUvarint(dst, res.Count)
	dst = binary.AppendUvarint(dst, res.Serial)
	dst = appendDestination(dst, res.To)
	dst = appendSessionLock(dst, res.Session)
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
	dst = binary.AppendUvarint(dst, uint64(d.FailedDeliveries))
	dst = binary.AppendUvarint(dst, uint64(d.Enqueued))
	dst = binary.AppendUvarint(dst, uint64(d.LockedUntil))
	dst = binary.AppendUvarint(dst, uint64(d.Expires))
	dst = append(binary.AppendUvarint(dst, uint64(d.Topic)), d.Hops)
	return appendBytes(appendBytes(dst, d.Payload), d.Patches)
}

// DecodeResult reads what AppendResult wrote. Payload and Patches alias b.
func DecodeResult(b []byte) (Result, error) {
	r := reader{b: b}
	if version := r.byte(); version != resultVersion {
		r.fail(unknownVersion(version, resultVersion, resultVersion))
	}
	res := Result{
		Code:      Code(r.byte()),
		Sequence:  SequenceNumber(r.uvarint()),
		Entity:    EntityID(r.uvarint()),
		Namespace: NamespaceID(r.uint32()),
		Version:   r.uvarint(),
		Count:     r.uvarint(),
		Serial:    r.uvarint(),
		To:        r.destination(),
		Session:   r.sessionLock(),
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
		Lock:             r.lockID(),
		State:            MessageState(r.byte()),
		FailedDeliveries: r.uint32(),
		Enqueued:         r.instant(),
		LockedUntil:      r.instant(),
		Expires:          r.instant(),
		Topic:            SequenceNumber(r.uvarint()),
		Hops:             r.byte(),
		Payload:          r.bytes(),
		Patches:          r.bytes(),
	}
}

func appendDestination(dst []byte, d Destination) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(d.Partition)), uint64(d.Entity))
}

func (r *reader) destination() Destination {
	return Destination{Partition: PartitionID(r.uint32()), Entity: EntityID(r.uvarint())}
}
