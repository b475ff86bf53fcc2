package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Result is the answer to a command. Unless a comment says otherwise, a field is zero for other
// commands.
type Result struct {
	Code       Code
	Sequence   SequenceNumber // SendMessages, ReserveNumbers; RedriveMessages: the first number that is not done
	Deliveries []Delivery     // LockMessages, FetchDeferred, FetchReady, ForwardMessages
	Codes      []Code         // SettleMessages, RenewLocks, TransferMessages
	Untils     []Instant      // RenewLocks, AcceptSession, RenewSession: ends of locks, see Delivery.LockedUntil
	Entity     EntityID       // catalog: of the created entity
	Namespace  NamespaceID    // catalog: of the created namespace
	Version    uint64         // catalog: of the entity's settings
	Count      uint64         // PurgeMessages, RedriveMessages, SettleUnlocked
	// Sequences has one number per message of a SendMessages with duplicates, or of a Transact: 0
	// for a duplicate, see SendMessages.
	Sequences []SequenceNumber
	Serial    uint64 // ForwardMessages; TransferMessages: of the batch accepted last, if this one is Stale; FenceIdle: the round
	// Epoch is that of a ForwardMessages. It is not encoded: the leader that proposes the command
	// uses the answer itself.
	Epoch   uint64
	To      Destination // ForwardMessages
	Session SessionLock // AcceptSession
}

// Delivery is one message returned by LockMessages, FetchDeferred, FetchReady, ForwardMessages or a peek.
type Delivery struct {
	Lock             LockID
	State            MessageState
	FailedDeliveries uint32  // earlier deliveries that failed
	Enqueued         Instant // when it was accepted
	LockedUntil      Instant // wall time at which the lock ends if the partition keeps its leader; zero when not locked
	// Expires is the end of the message's time to live; for a scheduled message, if the settings
	// stay as they are. Zero if it never expires, and in the dead-letter queue.
	Expires Instant
	Body    Ref    // location of Payload on this replica
	Patch   Ref    // location of Patches; zero if there are none
	Payload []byte // filled in by partition, after apply
	Patches []byte // filled in by partition: for DecodePatches
	// Topic is the sequence number of the message at the topic of this subscription, 0 in a queue.
	Topic SequenceNumber
	Hops  uint8 // number of times it was forwarded
}

// Counts are the numbers of messages of an entity by state, and the bytes of their payloads.
type Counts struct {
	Active     uint64 `json:"Active"`     // ready and locked, main queue
	Locked     uint64 `json:"Locked"`     // main queue
	Deferred   uint64 `json:"Deferred"`   // main queue
	Scheduled  uint64 `json:"Scheduled"`  // main queue: not yet enqueued, or redelivery delayed; at a topic also not yet published
	DeadLetter uint64 `json:"DeadLetter"` // dead-letter queue, every state, without what Transfer counts
	Bytes      uint64 `json:"Bytes"`      // all sub-queues; for a topic what its subscriptions share
	// Transfer counts messages of all sub-queues that wait to be forwarded or are in flight.
	Transfer           uint64 `json:"Transfer"`
	TransferDeadLetter uint64 `json:"TransferDeadLetter"` // transfer dead-letter queue
	Subscriptions      uint64 `json:"Subscriptions"`      // of a topic
	Sessions           uint64 `json:"Sessions"`           // sessions that have messages or state, or are locked
	// SQLFilters and CorrelationFilters count the rules of all subscriptions of a topic; filters that
	// match every message or none count as SQL.
	SQLFilters         uint64 `json:"SQLFilters"`
	CorrelationFilters uint64 `json:"CorrelationFilters"`
	// LastUse is the time of the last send, receive or settlement, of a topic also of the creation of
	// a subscription, in wall time; 0 for never.
	LastUse Instant `json:"LastUse"`
}

// EffectKind is the kind of an Effect.
type EffectKind uint8

// The kinds of effects.
const (
	EffectReady EffectKind = 0 // Ready messages are available at Address after this apply
	EffectIdle  EffectKind = 1 // Address.Entity was deleted automatically because it was idle
	// EffectForward means that messages at Address are ready to be forwarded.
	EffectForward EffectKind = 2
	// EffectSession means that Ready sessions at Address can be accepted.
	EffectSession EffectKind = 3
	// EffectSessionLost means that the lock of Session has expired: its holder, if it waits for
	// messages, must be notified.
	EffectSessionLost EffectKind = 4
	// EffectIdleShard means that the shard Address.Entity is idle: the leader finds out whether the others are.
	EffectIdleShard EffectKind = 5
)

// Effect is work for the leader after an apply. Followers discard it.
type Effect struct {
	Address Address
	Session string // EffectReady at an entity with sessions, EffectSessionLost: which one
	Ready   uint64
	Kind    EffectKind
}

// resultVersion is the first byte of an encoded result.
const resultVersion byte = 0xD1

// deliveryBytesMin is the minimum size of a delivery.
const deliveryBytesMin = lockBytesMin + 9

// deliveryHeadBytesMax is the maximum size of a delivery besides its payload and patches: nine varints and two bytes.
const deliveryHeadBytesMax = 9*binary.MaxVarintLen64 + 2

// resultHeadBytesAssumed is enough for a result besides its deliveries, unless it has lists or long names.
const resultHeadBytesAssumed = 128

// AppendResult appends the encoding of a result to dst: what the leader returns to the requesting
// member. Deliveries contain Payload and Patches, and not the references, which are local to a
// replica.
func AppendResult(dst []byte, res Result) []byte {
	size := 0
	for i := range res.Deliveries {
		size += deliveryHeadBytesMax + len(res.Deliveries[i].Payload) + len(res.Deliveries[i].Patches)
	}
	if size > 0 { // at once: deliveries of a peek are much larger than a buffer that grows step by step
		dst = slices.Grow(dst, resultHeadBytesAssumed+size)
	}
	x := fields.Encoder(dst)
	res.fields(&x)
	return x.Buf
}

// DecodeResult decodes the output of AppendResult. Payload and Patches alias b.
func DecodeResult(b []byte) (Result, error) {
	x := fields.Decoder(b)
	var res Result
	res.fields(&x)
	if err := x.End(); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return res, nil
}

func (r *Result) fields(x *fields.Codec) {
	fields.Version(x, resultVersion)
	fields.Uint8(x, &r.Code)
	fields.Uint64(x, &r.Sequence)
	fields.Uint64(x, &r.Entity)
	fields.Uint32(x, &r.Namespace)
	fields.Uint64(x, &r.Version)
	fields.Uint64(x, &r.Count)
	fields.Uint64(x, &r.Serial)
	r.To.Fields(x)
	r.Session.fields(x)
	fields.Uint8s(x, &r.Codes)
	for i := range fields.Len(x, &r.Untils, 1) {
		fields.Int64(x, &r.Untils[i])
	}
	fields.Uint64s(x, &r.Sequences)
	for i := range fields.Len(x, &r.Deliveries, deliveryBytesMin) {
		if x.Encoding() {
			x.Buf = appendDelivery(x.Buf, &r.Deliveries[i])
		} else {
			r.Deliveries[i].fields(x)
		}
	}
}

// appendDelivery encodes the fields of a delivery without the codec, in two thirds of the time: results
// consist of deliveries.
func appendDelivery(dst []byte, d *Delivery) []byte {
	dst = binary.AppendUvarint(dst, uint64(d.Lock.Sequence))
	dst = binary.AppendUvarint(dst, uint64(d.Lock.Epoch))
	dst = append(dst, byte(d.State))
	dst = binary.AppendUvarint(dst, uint64(d.FailedDeliveries))
	dst = binary.AppendUvarint(dst, uint64(d.Enqueued))
	dst = binary.AppendUvarint(dst, uint64(d.LockedUntil))
	dst = binary.AppendUvarint(dst, uint64(d.Expires))
	dst = append(binary.AppendUvarint(dst, uint64(d.Topic)), d.Hops)
	dst = append(binary.AppendUvarint(dst, uint64(len(d.Payload))), d.Payload...)
	return append(binary.AppendUvarint(dst, uint64(len(d.Patches))), d.Patches...)
}

// fields of a delivery, for decoding only.
func (d *Delivery) fields(x *fields.Codec) {
	d.Lock.fields(x)
	fields.Uint8(x, &d.State)
	fields.Uint32(x, &d.FailedDeliveries)
	fields.Int64(x, &d.Enqueued)
	fields.Int64(x, &d.LockedUntil)
	fields.Int64(x, &d.Expires)
	fields.Uint64(x, &d.Topic)
	fields.Uint8(x, &d.Hops)
	fields.Bytes(x, &d.Payload)
	fields.Bytes(x, &d.Patches)
}
