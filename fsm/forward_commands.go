package fsm

import (
	"cmp"

	"github.com/peeklock/peeklock/fsm/fields"
)

// ForwardMessages advances the outbox of a sub-queue that forwards its messages. It needs no
// header: the leader of the source partition can repeat it at any time with Incarnation 0.
//
//	Done   ends the batch with that serial: messages that arrived are deleted. Of the others
//	       (Codes), those of a MainQueue move to the dead-letter queue and are held back from
//	       further forwarding, those of a DeadLetterQueue are ready again, and those of a TransferQueue
//	       move to the transfer dead-letter queue. Another serial changes nothing.
//	To     then takes the next batch, oldest ready messages after number After first, unless a
//	       batch is in flight, no such message is ready, or the settings no longer name a
//	       destination. Zero takes none. A message that was forwarded HopsMax times is
//	       dead-lettered with reason MaxTransferHopCountExceeded, or held back where it is a
//	       dead letter already. From a TransferQueue, To only permits a batch:
//	       it contains, in order, messages with the destination of the oldest one.
//
// Result: the batch in flight: Serial, To (its destination, whatever the settings say now) and
// Deliveries; Serial 0 if there is none.
type ForwardMessages struct {
	Address  Address // MainQueue (ForwardTo), DeadLetterQueue (ForwardDeadLettersTo) or TransferQueue
	Done     uint64
	Codes    []Code // one per message of batch Done; empty if all arrived
	To       Destination
	After    SequenceNumber // 0 for the oldest
	Max      uint32         // messages, 1 to 4096
	MaxBytes uint32         // sum of body sizes; a batch contains at least one message
}

// Destination is the entity that a batch is sent to.
type Destination struct {
	Partition PartitionID
	Entity    EntityID
}

// Fields lists the fields of the record for the codec.
func (d *Destination) Fields(x *fields.Codec) {
	fields.Uint32(x, &d.Partition)
	fields.Uint64(x, &d.Entity)
}

// TransferMessages stores messages that another entity forwards, exactly once: the batch accepted
// last from this Source gets the same answer again and is not performed. It needs no header. Result:
// Codes, one per message: OK, MessageTooLarge, QuotaExceeded, or NotAllowed without the session that the entity requires. Refused as a whole with
// EntityNotFound, EntityDisabled or InvalidArgument, and with Stale if the batch cannot be accepted under its Epoch and Serial:
//
//   - The Serial is below the last one accepted in this Epoch, or the source has begun another Epoch
//     since. The source has the answer already, unless its state is older than that of the
//     destination.
//   - The Serial is the last one accepted in this Epoch, of other messages. The state of the source
//     is older than that of the destination.
//
// In the second case, and if the batch is still in flight in the first, the source begins a new epoch
// ([BeginEpoch]).
type TransferMessages struct {
	Entity   EntityID // queue or topic
	Source   Outbox
	Epoch    uint64 // as ForwardMessages returned it
	Serial   uint64
	Messages []Transferred
}

// Outbox identifies the sub-queue that a batch comes from.
type Outbox struct {
	Partition PartitionID
	Address   Address
}

// Transferred is a message in transit between two entities.
type Transferred struct {
	Message
	// Number is the sequence number at the source, which rises from message to message. It identifies
	// the message: its bytes may differ when a later release sends the batch again.
	Number  SequenceNumber
	Patches []byte // as written by AppendPatches; they stay with the message
	Hops    uint8  // number of times it was forwarded, this one included: 1 to HopsMax; 0 from a TransferQueue
}

// transferredBytesMin is the minimum size of a message of a TransferMessages: number, hops, and eight
// empty fields.
const transferredBytesMin = 10

// ReadTransferHead reads the fields before the messages, and the number of messages.
func ReadTransferHead(r *fields.Codec) (c TransferMessages, messages int) {
	headFields(&c, r)
	return c, r.Count(transferredBytesMin)
}

// verifyTransfer decodes and checks a TransferMessages without building it.
func verifyTransfer(r *fields.Codec) {
	c, n := ReadTransferHead(r)
	r.Limit(ValidTransfer(&c, n))
	before := SequenceNumber(0)
	for range n {
		number, hops, id, payload, life := SequenceNumber(r.Uvarint()), r.Byte(), r.Bytes(), r.Bytes(), Millis(r.Int64())
		properties, patches := r.Bytes(), r.Bytes()
		session, _ := ReadSession(r)
		reserved, at := SequenceNumber(r.Uvarint()), Instant(r.Int64())
		r.Limit(number > before)
		before = number
		r.Limit(ValidTransferred(c.Source.Address, len(id), len(session), life, hops, properties) && len(payload) <= MessageBytesMax)
		r.Limit(ValidReservation(c.Source.Address, reserved, at, len(patches)))
	}
}

// ValidTransfer checks the limits of a TransferMessages of so many messages, its messages aside.
func ValidTransfer(c *TransferMessages, messages int) bool {
	return c.Entity != 0 && c.Serial != 0 && c.Source.Partition != CatalogPartition && c.Source.Address.Entity != 0 &&
		c.Source.Address.CanForward() && Within(messages, CommandMessagesMax)
}

// ValidTransferred checks the limits of one of its messages that do not depend on the destination.
func ValidTransferred(from Address, id, session int, life Millis, hops uint8, properties []byte) bool {
	return id <= MessageIDBytesMax && session <= SessionIDBytesMax && life >= 0 && validHops(from, hops) && ValidProperties(properties)
}

// ValidReservation reports whether a message from that source can have this reserved number and time: a time, as
// a transaction schedules it, perhaps with a number, or none.
func ValidReservation(from Address, reserved SequenceNumber, at Instant, patches int) bool {
	if reserved == 0 && at == 0 {
		return true
	}
	return at > 0 && at <= Instant(Forever) && patches == 0 && from.Sub == TransferQueue
}

// validHops reports whether a message from that source can have been forwarded so often. A message
// of a transaction has not been forwarded: it is in transit to where it was sent.
func validHops(from Address, hops uint8) bool {
	if from.Sub == TransferQueue {
		return hops == 0
	}
	return hops >= 1 && hops <= HopsMax
}

func (ForwardMessages) kind() Kind                           { return KindForwardMessages }
func (c ForwardMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c ForwardMessages) Check() Code {
	if !c.Address.CanForward() || len(c.Codes) > CommandMessagesMax || c.Done == 0 && len(c.Codes) > 0 {
		return InvalidArgument
	}
	return CodeIf(c.To == (Destination{}) ||
		c.To.Partition != CatalogPartition && c.To.Entity != 0 && Within(int(c.Max), CommandMessagesMax))
}

func (c *ForwardMessages) fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Uint64(x, &c.Done)
	fields.Uint8s(x, &c.Codes)
	c.To.Fields(x)
	fields.Uint64(x, &c.After)
	fields.Uint32(x, &c.Max)
	fields.Uint32(x, &c.MaxBytes)
}

func (TransferMessages) kind() Kind                           { return KindTransferMessages }
func (c TransferMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c TransferMessages) Check() Code {
	if !ValidTransfer(&c, len(c.Messages)) {
		return InvalidArgument
	}
	before := SequenceNumber(0)
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Number <= before || !ValidTransferred(c.Source.Address, len(m.ID), len(m.Session), m.TimeToLive, m.Hops, m.Properties) ||
			!ValidReservation(c.Source.Address, m.Reserved, m.EnqueueAt, len(m.Patches)) {
			return InvalidArgument
		}
		if len(m.Payload) > MessageBytesMax {
			return MessageTooLarge
		}
		before = m.Number
	}
	return OK
}

func (c *TransferMessages) fields(x *fields.Codec) {
	headFields(c, x)
	for i := range fields.Len(x, &c.Messages, transferredBytesMin) {
		c.Messages[i].fields(x)
	}
}

// headFields lists the fields before the messages.
func headFields(c *TransferMessages, x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	c.Source.fields(x)
	fields.Uint64(x, &c.Epoch)
	fields.Uint64(x, &c.Serial)
}

func (m *Transferred) fields(x *fields.Codec) {
	fields.Uint64(x, &m.Number)
	fields.Uint8(x, &m.Hops)
	fields.Text(x, &m.ID)
	fields.Bytes(x, &m.Payload)
	fields.Int64(x, &m.TimeToLive)
	fields.Bytes(x, &m.Properties)
	fields.Bytes(x, &m.Patches)
	fieldSession(x, &m.Session, &m.HasSession)
	fields.Uint64(x, &m.Reserved)
	fields.Int64(x, &m.EnqueueAt)
}

func (o *Outbox) fields(x *fields.Codec) {
	fields.Uint32(x, &o.Partition)
	o.Address.fields(x)
}

// Compare orders outboxes by partition, then by address.
func (o Outbox) Compare(p Outbox) int {
	return cmp.Or(
		cmp.Compare(o.Partition, p.Partition),
		cmp.Compare(o.Address.Entity, p.Address.Entity),
		cmp.Compare(o.Address.Sub, p.Address.Sub),
	)
}
