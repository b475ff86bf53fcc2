package fsm

import (
	"encoding/binary"
	"fmt"
)

// Result is the answer to a command. Unless a comment says otherwise, a field is zero for other
// commands.
type Result struct {
	Code       Code
	Sequence   SequenceNumber // SendMessages
	Deliveries []Delivery     // LockMessages, FetchDeferred, ForwardMessages
	Codes      []Code         // SettleMessages, RenewLocks, TransferMessages
	Untils     []Instant      // RenewLocks
	Entity     EntityID       // catalog: of the created entity
	Namespace  NamespaceID    // catalog: of the created namespace
	Version    uint64         // catalog: of the entity's settings
	Count      uint64         // PurgeMessages, RedriveMessages
	// Sequences has one number per message of a SendMessages with duplicates, or of a Transact: 0
	// for a duplicate.
	Sequences []SequenceNumber
	Serial    uint64      // ForwardMessages
	To        Destination // ForwardMessages
	Session   SessionLock // AcceptSession
}

// Delivery is one message returned by LockMessages, FetchDeferred, ForwardMessages or a peek.
type Delivery struct {
	Lock             LockID
	State            MessageState
	FailedDeliveries uint32  // earlier deliveries that failed
	Enqueued         Instant // when it was accepted
	LockedUntil      Instant // zero when not locked
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
)

// Effect is work for the leader after an apply. Followers discard it.
type Effect struct {
	Address Address
	Session string // EffectReady at an entity with sessions, EffectSessionLost: which one
	Ready   uint64
	Kind    EffectKind
}

// resultVersion is the first byte of an encoded result.
const resultVersion byte = 4

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
