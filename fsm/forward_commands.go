package fsm

// ForwardMessages advances the outbox of a sub-queue that forwards its messages. It needs no
// header: the leader of the source partition can repeat it at any time with Incarnation 0.
//
//	Done   ends the batch with that serial: messages that arrived are deleted, the others
//	       (Codes) move to the transfer dead-letter queue. Another serial changes nothing.
//	To     then takes the next batch, oldest ready messages first, unless a batch is in
//	       flight, no message is ready, or the settings no longer name a destination. Zero
//	       takes none. A message that was forwarded hopsMax times is dead-lettered with
//	       reason MaxTransferHopCountExceeded. From a TransferQueue, To only permits a batch:
//	       it contains, in order, messages with the destination of the oldest one.
//
// Result: the batch in flight: Serial, To (its destination, whatever the settings say now) and
// Deliveries; Serial 0 if there is none.
type ForwardMessages struct {
	Address  Address // MainQueue (ForwardTo), DeadLetterQueue (ForwardDeadLettersTo) or TransferQueue
	Done     uint64
	Codes    []Code // one per message of batch Done; empty if all arrived
	To       Destination
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes; a batch contains at least one message
}

// Destination is the entity that a batch is sent to.
type Destination struct {
	Partition PartitionID
	Entity    EntityID
}

// TransferMessages stores messages that another entity forwards, exactly once: a Serial that is not
// above the last one accepted from this Source gets the same answer again and is not performed. It
// needs no header. Result: Codes, one per message: OK, MessageTooLarge or QuotaExceeded. Refused as
// a whole with EntityNotFound, EntityDisabled or InvalidArgument, and with Stale if Serial is below
// the last one accepted, whose answer the source already has.
type TransferMessages struct {
	Entity   EntityID // queue or topic
	Source   Outbox
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
	Patches []byte // as written by AppendPatches; they stay with the message
	Hops    uint8  // number of times it was forwarded, this one included: 1 to hopsMax; 0 from a TransferQueue
}

// transferredBytesMin is the minimum size of a message of a TransferMessages: hops, and six empty
// fields.
const transferredBytesMin = 7

// transferHead reads the fields before the messages, and the number of messages.
func (r *codec) transferHead() (c TransferMessages, messages int) {
	field64(r, &c.Entity)
	c.Source.fields(r)
	field64(r, &c.Serial)
	return c, r.count(transferredBytesMin)
}

// transferred reads a message in transit, which aliases the input.
func (r *codec) transferred() sentMessage {
	m := sentMessage{hops: r.byte(), id: r.bytes(), payload: r.bytes(), ttl: r.millis()}
	m.properties, m.patches = r.bytes(), r.bytes()
	m.session, m.hasSession = r.session()
	return m
}

// transfers reads a TransferMessages, its messages into scratch.
func (r *codec) transfers(scratch []sentMessage) (TransferMessages, []sentMessage) {
	c, n := r.transferHead()
	scratch = scratch[:0]
	for range n {
		scratch = append(scratch, r.transferred())
	}
	return c, scratch
}

// verifyTransfer decodes and checks a TransferMessages without building it.
func (r *codec) verifyTransfer() {
	c, n := r.transferHead()
	r.limit(validTransfer(&c, n))
	for range n {
		m := r.transferred()
		r.limit(validTransferred(c.Source.Address, len(m.id), len(m.session), m.ttl, m.hops, m.properties) && len(m.payload) <= messageBytesMax)
	}
}

// validTransfer checks the limits of a TransferMessages of so many messages, its messages aside.
func validTransfer(c *TransferMessages, messages int) bool {
	return c.Entity != 0 && c.Serial != 0 && c.Source.Partition != CatalogPartition && c.Source.Address.Entity != 0 &&
		c.Source.Address.canForward() && within(messages, commandMessagesMax)
}

// validTransferred checks the limits of one of its messages that do not depend on the destination.
func validTransferred(from Address, id, session int, life Millis, hops uint8, properties []byte) bool {
	return id <= messageIDBytesMax && session <= sessionIDBytesMax && life >= 0 && validHops(from, hops) && validProperties(properties)
}

// validHops reports whether a message from that source can have been forwarded so often. A message
// of a transaction has not been forwarded: it is in transit to where it was sent.
func validHops(from Address, hops uint8) bool {
	if from.Sub == TransferQueue {
		return hops == 0
	}
	return hops >= 1 && hops <= hopsMax
}

func (ForwardMessages) kind() Kind             { return KindForwardMessages }
func (c ForwardMessages) encode(x codec) codec { c.fields(&x); return x }
func (c ForwardMessages) check() Code {
	if !c.Address.canForward() || len(c.Codes) > commandMessagesMax || c.Done == 0 && len(c.Codes) > 0 {
		return InvalidArgument
	}
	return codeIf(c.To == (Destination{}) ||
		c.To.Partition != CatalogPartition && c.To.Entity != 0 && within(int(c.Max), commandMessagesMax))
}

func (c *ForwardMessages) fields(x *codec) {
	c.Address.fields(x)
	field64(x, &c.Done)
	fieldCodes(x, &c.Codes)
	c.To.fields(x)
	field32(x, &c.Max)
	field32(x, &c.MaxBytes)
}

func (TransferMessages) kind() Kind             { return KindTransferMessages }
func (c TransferMessages) encode(x codec) codec { c.fields(&x); return x }
func (c TransferMessages) check() Code {
	if !validTransfer(&c, len(c.Messages)) {
		return InvalidArgument
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if !validTransferred(c.Source.Address, len(m.ID), len(m.Session), m.TimeToLive, m.Hops, m.Properties) || m.EnqueueAt != 0 {
			return InvalidArgument
		}
		if len(m.Payload) > messageBytesMax {
			return MessageTooLarge
		}
	}
	return OK
}

func (c *TransferMessages) fields(x *codec) {
	field64(x, &c.Entity)
	c.Source.fields(x)
	field64(x, &c.Serial)
	for i := range fieldLen(x, &c.Messages, transferredBytesMin) {
		c.Messages[i].fields(x)
	}
}

func (m *Transferred) fields(x *codec) {
	field8(x, &m.Hops)
	fieldText(x, &m.ID)
	fieldBytes(x, &m.Payload)
	fieldTime(x, &m.TimeToLive)
	fieldBytes(x, &m.Properties)
	fieldBytes(x, &m.Patches)
	fieldSession(x, &m.Session, &m.HasSession)
}

func (o *Outbox) fields(x *codec) {
	field32(x, &o.Partition)
	o.Address.fields(x)
}
