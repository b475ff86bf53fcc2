package fsm

import "encoding/binary"

// transferredBytesMin is the fewest bytes a message of a TransferMessages takes: hops, and
// what stands for six empty fields.
const transferredBytesMin = 7

func appendForwardMessages(dst []byte, c ForwardMessages) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, c.Done)
	dst = binary.AppendUvarint(dst, uint64(len(c.Codes)))
	for _, code := range c.Codes {
		dst = append(dst, byte(code))
	}
	dst = appendDestination(dst, c.To)
	dst = binary.AppendUvarint(dst, uint64(c.Max))
	return binary.AppendUvarint(dst, uint64(c.MaxBytes))
}

func (r *reader) forwardMessages() ForwardMessages {
	c := ForwardMessages{Address: r.address(), Done: r.uvarint()}
	if n := r.count(1); n > 0 {
		c.Codes = make([]Code, n)
		for i := range c.Codes {
			c.Codes[i] = Code(r.byte())
		}
	}
	c.To, c.Max, c.MaxBytes = r.destination(), r.uint32(), r.uint32()
	return c
}

func appendOutbox(dst []byte, o Outbox) []byte {
	return appendAddress(binary.AppendUvarint(dst, uint64(o.Partition)), o.Address)
}

func (r *reader) outbox() Outbox {
	return Outbox{Partition: PartitionID(r.uint32()), Address: r.address()}
}

func appendTransferMessages(dst []byte, c TransferMessages) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	dst = appendOutbox(dst, c.Source)
	dst = binary.AppendUvarint(dst, c.Serial)
	dst = binary.AppendUvarint(dst, uint64(len(c.Messages)))
	for i := range c.Messages {
		m := &c.Messages[i]
		dst = append(dst, m.Hops)
		dst = appendString(dst, m.ID)
		dst = appendBytes(dst, m.Payload)
		dst = binary.AppendUvarint(dst, uint64(m.TimeToLive))
		dst = appendBytes(dst, m.Properties)
		dst = appendBytes(dst, m.Patches)
		dst = appendSession(dst, m.Session, m.HasSession)
	}
	return dst
}

// transferHead reads what stands before the messages, and how many there are.
func (r *reader) transferHead() (c TransferMessages, messages int) {
	c = TransferMessages{Entity: EntityID(r.uvarint()), Source: r.outbox(), Serial: r.uvarint()}
	return c, r.count(transferredBytesMin)
}

// transferred is a message on its way, as it lies in the bytes.
func (r *reader) transferred() sentMessage {
	m := sentMessage{hops: r.byte(), id: r.bytes(), payload: r.bytes(), ttl: r.millis()}
	m.properties, m.patches = r.bytes(), r.bytes()
	m.session, m.hasSession = r.session()
	return m
}

// transfers reads a TransferMessages, its messages into scratch.
func (r *reader) transfers(scratch []sentMessage) (TransferMessages, []sentMessage) {
	c, n := r.transferHead()
	scratch = scratch[:0]
	for range n {
		scratch = append(scratch, r.transferred())
	}
	return c, scratch
}

func (r *reader) transferMessages() TransferMessages {
	c, items := r.transfers(nil)
	c.Messages = make([]Transferred, len(items))
	for i := range items {
		m := &items[i]
		c.Messages[i] = Transferred{
			Message: Message{ID: string(m.id), Payload: m.payload, TimeToLive: m.ttl, Properties: m.properties, Session: string(m.session), HasSession: m.hasSession},
			Patches: m.patches, Hops: m.hops,
		}
	}
	return c
}

// verifyTransfer is [Check] of a TransferMessages on the bytes.
func (r *reader) verifyTransfer() {
	c, n := r.transferHead()
	r.limit(validTransfer(&c, n))
	for range n {
		m := r.transferred()
		r.limit(validTransferred(c.Source.Address, len(m.id), len(m.session), m.ttl, m.hops, m.properties) && len(m.payload) <= messageBytesMax)
	}
}
