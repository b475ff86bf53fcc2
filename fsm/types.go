package fsm

import (
	"io"
	"strconv"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Instant is a point in time in milliseconds since the Unix epoch, UTC. Zero means "none".
type Instant int64

// Millis is a duration in milliseconds.
type Millis int64

// Forever is the infinite duration: TimeSpan.MaxValue of Azure Service Bus.
const Forever Millis = 922337203685477

// After returns the time d after t; Forever saturates instead of overflowing.
func (t Instant) After(d Millis) Instant {
	if d >= Forever-Millis(t) {
		return Instant(Forever)
	}
	return t + Instant(d)
}

// Expiry returns the end of a time to live that begins at t (docs/requirements.md#e1); 0 for none.
func (t Instant) Expiry(life Millis) Instant {
	if at := t.After(life); at < Instant(Forever) {
		return at
	}
	return 0
}

// SequenceNumber orders the messages of one entity. It starts at 1, rises without gaps and is never
// reused; 0 means "not yet assigned".
type SequenceNumber uint64

// EntityID identifies an entity permanently: the catalog assigns it at creation and never reuses
// it, so an entity that is deleted and created again under the same name has another id.
type EntityID uint64

// PartitionID identifies a Raft group. Partition 0 is the catalog.
type PartitionID uint32

// CatalogPartition is the Raft group of the catalog.
const CatalogPartition PartitionID = 0

// SubQueue identifies one of the queues of an entity.
type SubQueue uint8

// The sub-queues. The numbers are part of the log format.
const (
	MainQueue       SubQueue = 0
	DeadLetterQueue SubQueue = 1
	// TransferDeadLetterQueue holds messages that could not be forwarded.
	TransferDeadLetterQueue SubQueue = 2
)

// EntityKind is the kind of an entity.
type EntityKind uint8

// The kinds of entities. The numbers are part of the log format.
const (
	QueueEntity        EntityKind = 0
	TopicEntity        EntityKind = 1 // gives each message to the subscriptions whose rules match
	SubscriptionEntity EntityKind = 2 // a queue that its topic fills
)

// String returns the kind in lower case, as in messages.
func (k EntityKind) String() string {
	switch k {
	case QueueEntity:
		return "queue"
	case TopicEntity:
		return "topic"
	case SubscriptionEntity:
		return "subscription"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Address identifies a sub-queue of an entity: what a link is attached to.
type Address struct {
	Entity EntityID `json:"Entity"`
	Sub    SubQueue `json:"Sub"`
}

// LockID identifies one lock of a message within an address. Epoch counts the locks of a message,
// so a LockID is never reused.
type LockID struct {
	Sequence SequenceNumber `json:"Sequence"`
	Epoch    uint32         `json:"Epoch"`
}

// LockToken is an encrypted LockID for clients: 16 bytes that cannot be guessed. On the wire it is
// the delivery-tag (AMQP 1.0 part 2, section 2.6.12) and the GUID by which clients settle through
// the management node.
type LockToken [16]byte

// String returns the status as Service Bus spells it.
func (s EntityStatus) String() string {
	switch s {
	case Active:
		return "Active"
	case Disabled:
		return "Disabled"
	case SendDisabled:
		return "SendDisabled"
	case ReceiveDisabled:
		return "ReceiveDisabled"
	}
	return "status " + strconv.Itoa(int(s))
}

// AllowsSend reports whether messages can be sent.
func (s EntityStatus) AllowsSend() bool { return s == Active || s == ReceiveDisabled }

// AllowsReceive reports whether messages can be received.
func (s EntityStatus) AllowsReceive() bool { return s == Active || s == SendDisabled }

// MessageState is the state of a message within its sub-queue.
type MessageState uint8

// The states. The numbers are part of the format of images. Ready and Locked are both "active" for
// a client.
const (
	Ready    MessageState = 1
	Locked   MessageState = 2
	Deferred MessageState = 3
	Deleting MessageState = 4 // delivered in receive-and-delete mode; kept until the receiver is known to have the answer
	// Scheduled messages wait for a time: they were sent with Message.EnqueueAt, or their
	// redelivery is delayed (Settlement.Until, EntitySettings.RetryDelay).
	Scheduled MessageState = 5
	// Shared is the record of a topic for a message of which subscriptions have copies: it holds
	// the body and the number of copies. Never visible to clients.
	Shared MessageState = 6
	// Forwarding messages are in the batch that is being forwarded (ForwardMessages).
	Forwarding MessageState = 7
	// Pending messages of a topic were accepted and not yet published, because the entry that
	// brought them had used its budget of steps. Never visible to clients.
	Pending MessageState = 8
)

// Verb is a way to settle a lock.
type Verb uint8

// The verbs. The numbers are part of the log format.
const (
	Complete   Verb = 1 // the message is deleted
	Abandon    Verb = 2 // returned to its place in the queue; counts as a failed delivery
	Defer      Verb = 3 // set aside; received by sequence number
	DeadLetter Verb = 4 // moved to the dead-letter queue of its entity
	Release    Verb = 5 // returned to its place in the queue; does not count as a failed delivery
)

// Code is the reason why a request was refused. The list is closed and append-only: the numbers are
// part of the formats of logs and of the frames between members. Each gateway maps codes to AMQP
// conditions or HTTP statuses in one table.
type Code uint8

// The codes.
const (
	OK                Code = 0
	EntityNotFound    Code = 1
	EntityExists      Code = 2
	MessageLockLost   Code = 3
	MessageNotFound   Code = 4
	MessageTooLarge   Code = 5
	QuotaExceeded     Code = 6
	InvalidArgument   Code = 7
	NotAllowed        Code = 8
	Unauthorized      Code = 9
	ServerBusy        Code = 10 // retry later: no leader, overload, starting
	Timeout           Code = 11
	Stale             Code = 12 // the requester has already acknowledged the answer
	Internal          Code = 13
	NotImplemented    Code = 14
	PreconditionFails Code = 15
	EntityDisabled    Code = 16 // the status of the entity does not allow it; an operator can change that
	RuleNotFound      Code = 17
	RuleExists        Code = 18

	SessionLockLost       Code = 19
	SessionCannotBeLocked Code = 20 // locked by another receiver

	// NamespaceFull is the refusal of a leader before it proposes: the namespace holds more than its share, or its limit.
	NamespaceFull Code = 21
)

// EntityStatus is set by an operator and restricts an entity. The numbers are part of the log
// format. Locks that are held can be settled and renewed in every status.
type EntityStatus uint8

// The statuses.
const (
	Active          EntityStatus = 0
	Disabled        EntityStatus = 1 // neither sends nor receives
	SendDisabled    EntityStatus = 2 // receives only
	ReceiveDisabled EntityStatus = 3 // sends only
)

// Rights are the permissions of a key or token. They combine by bitwise or.
type Rights uint8

// The rights. Manage includes all others.
const (
	Send   Rights = 1
	Listen Rights = 2
	Manage Rights = 4 | Send | Listen
	// Read gives the settings and the figures of entities, not their messages. It is not stored with Manage.
	Read Rights = 8
)

// CanRead reports whether rights give settings and figures.
func (r Rights) CanRead() bool { return r&Read != 0 || r&Manage == Manage }

// Env is the position of an entry in the log and its time.
type Env struct {
	Index uint64  // Raft index; unique and rising within a partition
	Now   Instant // wall time of the entry, stamped by the leader; never lower than in the entry before
	// Serving is the serving time of the entry. See Times.
	Serving Instant
}

// Ref is the location of a body on the disk of this replica. It is local: it has no influence on
// decisions, answers or digests. The zero Ref means "no body".
type Ref struct {
	Segment uint32
	Offset  uint32
	Size    uint32 // bytes of the body itself
}

// Bodies stores message bodies outside the state machine. Append may buffer; partition writes the
// appended bodies once per applied batch and only then answers. There is no error result on
// purpose: a replica that cannot read or write its disk must stop, and partition does that.
type Bodies interface {
	// Append stores a copy of body and returns its location. owner is stored beside it, so that
	// compaction can ask whether the body is still referenced.
	Append(owner Owner, body []byte) Ref
	// Read returns the body at ref. Apply calls it on rare paths only.
	Read(ref Ref) []byte
	// Release declares that ref is no longer referenced.
	Release(ref Ref)
}

// Owner identifies the message record that references a body.
type Owner struct {
	Address
	Sequence SequenceNumber
	Patch    bool // the body contains the patches of the message, not the message
}

// Valid reports whether clients can address such a sub-queue.
func (a Address) Valid() bool { return a.Sub <= TransferDeadLetterQueue }

// Image is the frozen state of a state machine. Its methods may run concurrently with Apply of that
// state machine, and with each other.
type Image interface {
	// WriteTo writes the image: version, kind, state, checksum. Restore reads it.
	WriteTo(w io.Writer) (int64, error)
	// Refs calls visit for every body reference of the image: entities by id, their sub-queues in
	// the order of SubQueue, messages by number, the message before its patches.
	Refs(visit func(Owner, Ref))
}

// CanForward reports whether messages can be forwarded from such a sub-queue.
func (a Address) CanForward() bool { return a.Sub <= DeadLetterQueue || a.Sub == TransferQueue }

// Before orders addresses by entity, then by sub-queue.
func (a Address) Before(b Address) bool {
	if a.Entity != b.Entity {
		return a.Entity < b.Entity
	}
	return a.Sub < b.Sub
}

func (a *Address) fields(x *fields.Codec) {
	fields.Uint64(x, &a.Entity)
	fields.Uint8(x, &a.Sub)
}

// lockBytesMin is the minimum size of a LockID, against which counts are checked: sequence, epoch.
const lockBytesMin = 2

func (l *LockID) fields(x *fields.Codec) {
	fields.Uint64(x, &l.Sequence)
	fields.Uint32(x, &l.Epoch)
}
