package index

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// Bits that tell which optional fields of a record follow.
const (
	patched              byte = 1 << 0
	withExpires          byte = 1 << 1
	withDeadLetterExpiry byte = 1 << 2

	fieldsKnown = patched | withExpires | withDeadLetterExpiry
)

// Write writes the record to an image, with the location of the patches of its message.
func (r *Record) Write(w *image.Writer, patch fsm.Ref) {
	fields := byte(0)
	if patch != (fsm.Ref{}) {
		fields |= patched
	}
	if r.expires != 0 {
		fields |= withExpires
	}
	if r.deadLetterExpiry != 0 {
		fields |= withDeadLetterExpiry
	}
	w.Byte(byte(r.state))
	w.Byte(byte(r.flags))
	w.Byte(fields)
	w.Uvarint(uint64(r.epoch))
	w.Uvarint(uint64(r.failedDeliveries))
	w.Instant(r.enqueued)
	w.Instant(r.deadline)
	if r.expires != 0 {
		w.Instant(r.expires)
	}
	if r.deadLetterExpiry != 0 {
		w.Uvarint(uint64(r.deadLetterExpiry))
	}
	if r.IsCopy() {
		w.Uvarint(uint64(r.OriginalNumber()))
		w.Uvarint(uint64(r.body.Size))
	} else {
		w.Ref(r.body)
	}
	if patch != (fsm.Ref{}) {
		w.Ref(patch)
	}
	w.FlushIfFull()
}

// ReadRecord reads what Write wrote, and fails if no message can have such a record.
func ReadRecord(r *image.Reader) (rec Record, patch fsm.Ref) {
	rec.state, rec.flags = fsm.MessageState(r.Byte()), recordFlags(r.Byte())
	fields := r.Byte()
	r.Require(fields&^fieldsKnown == 0)
	rec.epoch = r.Uint32()
	rec.failedDeliveries = uint16(r.UvarintMax(math.MaxUint16))
	rec.enqueued, rec.deadline = r.Instant(), r.Instant()
	if fields&withExpires != 0 {
		rec.expires = r.Instant()
		r.Require(rec.expires != 0)
	}
	if fields&withDeadLetterExpiry != 0 {
		rec.deadLetterExpiry = r.Uint32()
		r.Require(rec.deadLetterExpiry != 0)
	}
	if rec.IsCopy() {
		n := fsm.SequenceNumber(r.UvarintMax(math.MaxInt64))
		rec.body = sharedRef(n, int(r.Uint32()))
	} else {
		rec.body = r.Ref()
	}
	if fields&patched != 0 {
		patch = r.Ref()
		r.Require(patch != fsm.Ref{})
	}
	r.Require(rec.state >= fsm.Ready && rec.state <= fsm.Pending)
	r.Require(rec.flags&^recordFlagsKnown == 0 && rec.Hops() <= fsm.HopsMax)
	r.Require(rec.state == fsm.Scheduled || !rec.IsDelayed())
	return rec, patch
}

// CanTransfer reports whether the record can be that of a message in a transfer queue.
func (r *Record) CanTransfer() bool {
	return r.flags == 0 && r.deadLetterExpiry == 0 && r.expires == 0 && (r.state == fsm.Ready || r.state == fsm.Forwarding)
}

// CanBeOfTopic reports whether the record can be that of a message of a topic that has not become copies yet, or whose
// copies are counted.
func (r *Record) CanBeOfTopic() bool {
	if r.flags != 0 || r.failedDeliveries != 0 {
		return false
	}
	return r.state == fsm.Shared && r.epoch > 0 && r.expires == 0 || (r.state == fsm.Scheduled || r.state == fsm.Pending) && r.epoch == 0
}
