package fsm

import "encoding/binary"

// The fewest bytes an item takes: what a count is checked against.
const (
	messageBytesMin    = 2 // two empty texts
	lockBytesMin       = 2 // sequence, epoch
	settlementBytesMin = lockBytesMin + 4
)

func appendAddress(dst []byte, a Address) []byte {
	return append(binary.AppendUvarint(dst, uint64(a.Entity)), byte(a.Sub))
}

func (r *reader) address() Address {
	return Address{Entity: EntityID(r.uvarint()), Sub: SubQueue(r.byte())}
}

func appendLockID(dst []byte, l LockID) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.Sequence))
	return binary.AppendUvarint(dst, uint64(l.Epoch))
}

func (r *reader) lockID() LockID {
	return LockID{Sequence: SequenceNumber(r.uvarint()), Epoch: r.uint32()}
}

func appendSettings(dst []byte, s QueueSettings) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.LockDuration))
	dst = binary.AppendUvarint(dst, uint64(s.MaxDeliveryCount))
	return binary.AppendUvarint(dst, uint64(s.MaxMessageBytes))
}

func (r *reader) settings() QueueSettings {
	return QueueSettings{
		LockDuration:     Millis(r.instant()),
		MaxDeliveryCount: r.uint32(),
		MaxMessageBytes:  r.uint32(),
	}
}

func appendPutQueue(dst []byte, c PutQueue) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	dst = binary.AppendUvarint(dst, c.Version)
	return appendSettings(dst, c.Settings)
}

func (r *reader) putQueue() PutQueue {
	return PutQueue{Entity: EntityID(r.uvarint()), Version: r.uvarint(), Settings: r.settings()}
}

func appendSendMessages(dst []byte, c SendMessages) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	dst = binary.AppendUvarint(dst, uint64(len(c.Messages)))
	for i := range c.Messages {
		dst = appendString(dst, c.Messages[i].ID)
		dst = appendBytes(dst, c.Messages[i].Payload)
	}
	return dst
}

// sent is a Message whose parts both alias the command: Apply makes no text of an
// identifier that it only compares.
type sent struct{ id, payload []byte }

// sends reads the payload of a SendMessages into scratch.
func (r *reader) sends(scratch []sent) (EntityID, []sent) {
	entity := EntityID(r.uvarint())
	scratch = scratch[:0]
	for range r.count(messageBytesMin) {
		scratch = append(scratch, sent{id: r.bytes(), payload: r.bytes()})
	}
	return entity, scratch
}

func (r *reader) sendMessages() SendMessages {
	entity, items := r.sends(nil)
	c := SendMessages{Entity: entity, Messages: make([]Message, len(items))}
	for i, m := range items {
		c.Messages[i] = Message{ID: string(m.id), Payload: m.payload}
	}
	return c
}

// verifySend is [Check] of a SendMessages on the bytes.
func (r *reader) verifySend() {
	r.uvarint()
	n := r.count(messageBytesMin)
	r.limit(within(n, commandMessagesMax))
	for range n {
		id, payload := r.bytes(), r.bytes()
		r.limit(len(id) <= messageIDBytesMax && len(payload) <= messageBytesMax)
	}
}

func appendLockMessages(dst []byte, c LockMessages) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, uint64(c.Max))
	dst = binary.AppendUvarint(dst, uint64(c.MaxBytes))
	return appendBool(dst, c.Delete)
}

func (r *reader) lockMessages() LockMessages {
	return LockMessages{Address: r.address(), Max: r.uint32(), MaxBytes: r.uint32(), Delete: r.bool()}
}

func appendSettleMessages(dst []byte, c SettleMessages) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, uint64(len(c.Settlements)))
	for i := range c.Settlements {
		s := &c.Settlements[i]
		dst = appendLockID(dst, s.Lock)
		dst = append(dst, byte(s.Verb))
		dst = appendString(dst, s.Reason)
		dst = appendString(dst, s.Description)
		dst = appendBytes(dst, s.Properties)
	}
	return dst
}

// settleMessages reads the settlements into scratch.
func (r *reader) settleMessages(scratch []Settlement) SettleMessages {
	c := SettleMessages{Address: r.address(), Settlements: scratch[:0]}
	for range r.count(settlementBytesMin) {
		c.Settlements = append(c.Settlements, Settlement{
			Lock:        r.lockID(),
			Verb:        Verb(r.byte()),
			Reason:      r.string(),
			Description: r.string(),
			Properties:  r.bytes(),
		})
	}
	return c
}

// verifySettle is [Check] of a SettleMessages on the bytes.
func (r *reader) verifySettle() {
	r.limit(r.address().valid())
	n := r.count(settlementBytesMin)
	r.limit(within(n, commandSettlementsMax))
	for range n {
		r.lockID()
		verb := Verb(r.byte())
		reason, description, properties := r.bytes(), r.bytes(), r.bytes()
		r.limit(validVerb(verb) && len(reason) <= reasonBytesMax &&
			len(description) <= reasonBytesMax && len(properties) <= propertiesBytesMax)
	}
}

// limit fails with errOverLimit unless ok.
func (r *reader) limit(ok bool) {
	if !ok {
		r.fail(errOverLimit)
	}
}

func appendRenewLocks(dst []byte, c RenewLocks) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, uint64(len(c.Locks)))
	for _, l := range c.Locks {
		dst = appendLockID(dst, l)
	}
	return dst
}

func (r *reader) renewLocks() RenewLocks {
	c := RenewLocks{Address: r.address()}
	c.Locks = make([]LockID, r.count(lockBytesMin))
	for i := range c.Locks {
		c.Locks[i] = r.lockID()
	}
	return c
}

func appendFetchDeferred(dst []byte, c FetchDeferred) []byte {
	dst = appendBool(appendAddress(dst, c.Address), c.Delete)
	dst = binary.AppendUvarint(dst, uint64(len(c.Sequences)))
	for _, n := range c.Sequences {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func (r *reader) fetchDeferred() FetchDeferred {
	c := FetchDeferred{Address: r.address(), Delete: r.bool()}
	c.Sequences = make([]SequenceNumber, r.count(1))
	for i := range c.Sequences {
		c.Sequences[i] = SequenceNumber(r.uvarint())
	}
	return c
}

func (r *reader) closeLane() CloseLane {
	return CloseLane{Origin: r.fixed64(), Lane: r.uvarint()}
}
