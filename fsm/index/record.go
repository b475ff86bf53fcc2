package index

import (
	"math"

	"github.com/peeklock/peeklock/fsm"
)

// Record is the index entry of one message: 48 bytes without a pointer, so that the garbage
// collector need not scan a backlog of millions. It changes only by its methods, each of which is a
// step in the life of a message.
type Record struct {
	body     fsm.Ref
	epoch    uint32      // number of locks so far: the epoch of the lock while Locked or Deleting; copies while Shared
	enqueued fsm.Instant // when it was accepted, in wall time
	deadline fsm.Instant // Locked: end of the lock, in serving time; Scheduled: when it is due, in wall time; else zero
	// expires is the end of the time to live, 0 for none. In the dead-letter queue it is kept for a
	// redrive and has no effect. While the message waits to be enqueued it is the time to live set
	// by the sender.
	expires          fsm.Instant
	deadLetterExpiry uint32 // dead-letter queues: second since the Unix epoch at which it is deleted, 0 for never
	failedDeliveries uint16 // stays at its largest value
	state            fsm.MessageState
	flags            recordFlags
}

// recordFlags are bits of a record; they are part of the image format.
type recordFlags uint8

const (
	// fromDeferred means that the message was locked by number: when it is abandoned, it becomes
	// Deferred again instead of Ready.
	fromDeferred recordFlags = 1 << 0
	// delayed means that the redelivery of a Scheduled message is delayed: it has been enqueued
	// before and keeps its number.
	delayed recordFlags = 1 << 1
	// redriven means that the message was enqueued later than its number suggests.
	redriven recordFlags = 1 << 2

	// shared means that the message is a copy in a subscription and its body belongs to the topic:
	// body holds the number of the message there (sharedRef), and the size.
	shared recordFlags = 1 << 3
	// held means that a dead letter is held back from forwarding.
	held recordFlags = 1 << 4

	// The bits from hopsShift on are the number of times the message was forwarded: 0 to HopsMax.
	hopsShift             = 5
	hopsBits  recordFlags = 7 << hopsShift

	recordFlagsKnown = fromDeferred | delayed | redriven | shared | held | hopsBits
	// recordFlagsStay are kept when a message moves to another sub-queue.
	recordFlagsStay = shared | held | hopsBits
)

// Enqueued returns the record of a message that is ready. expires is the end of its time to live, 0 for none.
func Enqueued(body fsm.Ref, now, expires fsm.Instant) Record {
	return Record{body: body, enqueued: now, expires: expires, state: fsm.Ready}
}

// Scheduled returns the record of a message that is enqueued when it is due. life is the time to live
// set by its sender, 0 for none.
func Scheduled(body fsm.Ref, now, due fsm.Instant, life fsm.Millis) Record {
	return Record{body: body, enqueued: now, deadline: due, expires: fsm.Instant(life), state: fsm.Scheduled}
}

// Pending returns the record of a message of a topic that is not published yet. life is the time to live set by
// its sender, 0 for none.
func Pending(body fsm.Ref, now fsm.Instant, life fsm.Millis) Record {
	return Record{body: body, enqueued: now, expires: fsm.Instant(life), state: fsm.Pending}
}

// Original returns the record of a published message of a topic, whose body its copies share.
func Original(body fsm.Ref, enqueued fsm.Instant, copies int) Record {
	return Record{body: body, enqueued: enqueued, epoch: uint32(copies), state: fsm.Shared}
}

// Copy returns the record of a copy of the message with number n at the topic, which was forwarded so many times
// before it was published. size is that of its body.
func Copy(n fsm.SequenceNumber, size int, enqueued fsm.Instant, hops uint8) Record {
	return Record{body: sharedRef(n, size), enqueued: enqueued, state: fsm.Ready, flags: shared | recordFlags(hops)<<hopsShift}
}

// sharedRef encodes, in the record of a copy, the number of the message at the topic.
func sharedRef(n fsm.SequenceNumber, size int) fsm.Ref {
	return fsm.Ref{Segment: uint32(n >> 32), Offset: uint32(n), Size: uint32(size)}
}

// IsCopy reports whether the message is a copy in a subscription, whose body belongs to the topic.
func (r *Record) IsCopy() bool { return r.flags&shared != 0 }

// OriginalNumber returns, for a copy, the number of its message at the topic.
func (r *Record) OriginalNumber() fsm.SequenceNumber {
	return fsm.SequenceNumber(r.body.Segment)<<32 | fsm.SequenceNumber(r.body.Offset)
}

// Body returns the location of the body; for a copy only its size is meaningful.
func (r *Record) Body() fsm.Ref { return r.body }

// Size returns the size of the body in bytes.
func (r *Record) Size() uint64 { return uint64(r.body.Size) }

// SetBody sets the location of the body.
func (r *Record) SetBody(at fsm.Ref) { r.body = at }

// State returns the state of the message.
func (r *Record) State() fsm.MessageState { return r.state }

// Epoch returns the number of locks so far: that of the lock while the message is Locked or Deleting.
func (r *Record) Epoch() uint32 { return r.epoch }

// Copies returns the number of copies of a message that is Shared.
func (r *Record) Copies() uint32 { return r.epoch }

// Enqueued returns when the message was accepted, in wall time.
func (r *Record) Enqueued() fsm.Instant { return r.enqueued }

// Deadline returns the end of the lock of a Locked message, in serving time, 0 if its session is locked; when a
// Scheduled message is due, in wall time; else 0.
func (r *Record) Deadline() fsm.Instant { return r.deadline }

// Expires returns the end of the time to live, in wall time; 0 for none.
func (r *Record) Expires() fsm.Instant { return r.expires }

// Life returns the time to live set by the sender of a message that is not enqueued yet, 0 for none.
func (r *Record) Life() fsm.Millis { return fsm.Millis(r.expires) }

// DeadLetterExpiry returns the second since the Unix epoch at which a dead letter is deleted, 0 for never.
func (r *Record) DeadLetterExpiry() uint32 { return r.deadLetterExpiry }

// SetExpires sets the end of the time to live.
func (r *Record) SetExpires(at fsm.Instant) { r.expires = at }

// FailedDeliveries returns the number of deliveries that did not settle the message, at most 65,535.
func (r *Record) FailedDeliveries() uint16 { return r.failedDeliveries }

// Hops returns the number of times the message was forwarded.
func (r *Record) Hops() uint8 { return uint8(r.flags >> hopsShift) }

// SetHops sets it, in a record without flags.
func (r *Record) SetHops(hops uint8) { r.flags = recordFlags(hops) << hopsShift }

// IsDelayed reports whether a Scheduled message waits for its redelivery: it was enqueued before and keeps its number.
func (r *Record) IsDelayed() bool { return r.flags&delayed != 0 }

// IsRedriven reports whether the message was enqueued later than its number suggests.
func (r *Record) IsRedriven() bool { return r.flags&redriven != 0 }

// Hold holds a dead letter back from forwarding, until it is redriven.
func (r *Record) Hold() { r.flags |= held }

// IsHeld reports whether the message is held back from forwarding.
func (r *Record) IsHeld() bool { return r.flags&held != 0 }

// IsFromDeferred reports whether a Locked message was locked by its number, while it was Deferred.
func (r *Record) IsFromDeferred() bool { return r.flags&fromDeferred != 0 }

// Lock locks the message until a time; 0 if its session is locked.
func (r *Record) Lock(until fsm.Instant) {
	r.countLock()
	r.state, r.deadline = fsm.Locked, until
}

// Delete delivers the message for good: it is Deleting until its answer is known to have arrived.
func (r *Record) Delete() {
	r.countLock()
	r.state = fsm.Deleting
}

// countLock counts a delivery, and begins a new epoch of its lock. A Deferred message remembers that it was.
func (r *Record) countLock() {
	r.epoch++
	if r.state == fsm.Deferred {
		r.flags |= fromDeferred
	}
}

// Extend moves the end of the lock.
func (r *Record) Extend(until fsm.Instant) { r.deadline = until }

// Defer ends the lock and keeps the message for receivers that ask for its number.
func (r *Record) Defer() { r.state, r.deadline, r.flags = fsm.Deferred, 0, r.flags&^fromDeferred }

// Return makes a message ready again that was locked, or forwarded in vain.
func (r *Record) Return() { r.state, r.deadline = fsm.Ready, 0 }

// Delay makes the message wait until a time; it keeps its number.
func (r *Record) Delay(until fsm.Instant) {
	r.state, r.deadline, r.flags = fsm.Scheduled, until, r.flags&^fromDeferred|delayed
}

// EndDelay makes a message ready that waited.
func (r *Record) EndDelay() { r.state, r.deadline, r.flags = fsm.Ready, 0, r.flags&^delayed }

// Forward takes the message into a batch that is forwarded.
func (r *Record) Forward() { r.state = fsm.Forwarding }

// CountFailedDelivery counts a delivery that did not settle the message.
func (r *Record) CountFailedDelivery() {
	if r.failedDeliveries < math.MaxUint16 {
		r.failedDeliveries++
	}
}

// MoveToDeadLetters makes the message one of a dead-letter queue, which is deleted at the end of a time to live
// that begins now.
func (r *Record) MoveToDeadLetters(now fsm.Instant, life fsm.Millis) {
	r.state, r.deadline, r.flags = fsm.Ready, 0, r.flags&(redriven|recordFlagsStay)
	r.SetDeadLetterExpiry(now, life)
}

// SetDeadLetterExpiry sets when a dead letter is deleted: at the end of a time to live that begins now, rounded up to
// a second. A resolution of one second is enough for a setting in days, and keeps the record at 48 bytes.
func (r *Record) SetDeadLetterExpiry(now fsm.Instant, life fsm.Millis) {
	const second = 1000
	r.deadLetterExpiry = 0
	if at := now.Expiry(life); at <= math.MaxUint32*second {
		r.deadLetterExpiry = uint32((at + second - 1) / second)
	}
}

// Redrive makes a dead letter a message of the main queue. Its time to live starts again, and with it the time of
// enqueueing, so that it still expires one time to live after that (docs/requirements.md#e1). It can be forwarded as
// often as a new message.
func (r *Record) Redrive(now fsm.Instant) {
	if r.expires != 0 {
		r.expires = now.Expiry(fsm.Millis(r.expires - r.enqueued))
	}
	r.enqueued, r.deadLetterExpiry = now, 0
	r.state, r.failedDeliveries, r.flags = fsm.Ready, 0, redriven|r.flags&shared
}
