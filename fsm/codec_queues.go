package fsm

import "encoding/binary"

// The fewest bytes an item takes: what a count is checked against.
const (
	messageBytesMin    = 4 // two empty texts, two numbers
	lockBytesMin       = 2 // sequence, epoch
	settlementBytesMin = lockBytesMin + 5
)

// messageBytesMin and settlementBytesMin by the version of the command.
func (r *reader) messageBytesMin() int {
	if r.version == 1 {
		return messageBytesMin - 2
	}
	return messageBytesMin
}

func (r *reader) settlementBytesMin() int {
	if r.version == 1 {
		return settlementBytesMin - 1
	}
	return settlementBytesMin
}

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

// settingsVersion is the first byte of encoded settings: more settings to come change
// this number and not that of the command or image they stand in.
const settingsVersion byte = 2

// The flags of encoded settings.
const (
	settingDeadLetterOnExpiry         byte = 1 << 0
	settingRequiresDuplicateDetection byte = 1 << 1

	settingFlagsKnown = settingDeadLetterOnExpiry | settingRequiresDuplicateDetection
)

func appendSettings(dst []byte, s QueueSettings) []byte {
	var flags byte
	if s.DeadLetterOnExpiry {
		flags |= settingDeadLetterOnExpiry
	}
	if s.RequiresDuplicateDetection {
		flags |= settingRequiresDuplicateDetection
	}
	dst = append(dst, settingsVersion)
	dst = binary.AppendUvarint(dst, uint64(s.LockDuration))
	dst = binary.AppendUvarint(dst, uint64(s.MaxDeliveryCount))
	dst = binary.AppendUvarint(dst, uint64(s.MaxMessageBytes))
	dst = append(dst, flags, byte(s.Status))
	dst = binary.AppendUvarint(dst, uint64(s.DefaultTimeToLive))
	dst = binary.AppendUvarint(dst, uint64(s.DuplicateWindow))
	dst = binary.AppendUvarint(dst, uint64(s.AutoDeleteOnIdle))
	dst = binary.AppendUvarint(dst, s.MaxBytes)
	dst = appendString(dst, s.UserMetadata)
	dst = binary.AppendUvarint(dst, uint64(s.DeadLetterTimeToLive))
	dst = binary.AppendUvarint(dst, uint64(s.RetryDelay))
	return binary.AppendUvarint(dst, uint64(s.RetryDelayMax))
}

func (r *reader) settings() QueueSettings {
	if r.version == 1 {
		return QueueSettings{LockDuration: r.millis(), MaxDeliveryCount: r.uint32(), MaxMessageBytes: r.uint32()}
	}
	if r.byte() != settingsVersion {
		r.fail(errVersion)
	}
	s := QueueSettings{LockDuration: r.millis(), MaxDeliveryCount: r.uint32(), MaxMessageBytes: r.uint32()}
	flags := r.byte()
	if flags&^settingFlagsKnown != 0 {
		r.fail(errFlag)
	}
	s.DeadLetterOnExpiry = flags&settingDeadLetterOnExpiry != 0
	s.RequiresDuplicateDetection = flags&settingRequiresDuplicateDetection != 0
	s.Status = EntityStatus(r.byte())
	s.DefaultTimeToLive, s.DuplicateWindow, s.AutoDeleteOnIdle = r.millis(), r.millis(), r.millis()
	s.MaxBytes, s.UserMetadata = r.uvarint(), r.string()
	s.DeadLetterTimeToLive, s.RetryDelay, s.RetryDelayMax = r.millis(), r.millis(), r.millis()
	return s
}

func (r *reader) millis() Millis { return Millis(r.instant()) }

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
		dst = binary.AppendUvarint(dst, uint64(c.Messages[i].TimeToLive))
		dst = binary.AppendUvarint(dst, uint64(c.Messages[i].EnqueueAt))
	}
	return dst
}

// sent is a Message whose parts both alias the command: Apply makes no text of an
// identifier that it only compares.
type sent struct {
	id, payload []byte
	ttl         Millis
	at          Instant
}

// sends reads the payload of a SendMessages into scratch.
func (r *reader) sends(scratch []sent) (EntityID, []sent) {
	entity := EntityID(r.uvarint())
	scratch = scratch[:0]
	for range r.count(r.messageBytesMin()) {
		m := sent{id: r.bytes(), payload: r.bytes()}
		if r.version > 1 {
			m.ttl, m.at = r.millis(), r.instant()
		}
		scratch = append(scratch, m)
	}
	return entity, scratch
}

func (r *reader) sendMessages() SendMessages {
	entity, items := r.sends(nil)
	c := SendMessages{Entity: entity, Messages: make([]Message, len(items))}
	for i, m := range items {
		c.Messages[i] = Message{ID: string(m.id), Payload: m.payload, TimeToLive: m.ttl, EnqueueAt: m.at}
	}
	return c
}

// verifySend is [Check] of a SendMessages on the bytes.
func (r *reader) verifySend() {
	r.uvarint()
	n := r.count(r.messageBytesMin())
	r.limit(within(n, commandMessagesMax))
	for range n {
		id, payload := r.bytes(), r.bytes()
		r.limit(len(id) <= messageIDBytesMax && len(payload) <= messageBytesMax)
		if r.version > 1 {
			r.limit(validTime(r.millis(), r.instant()))
		}
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
		dst = binary.AppendUvarint(dst, uint64(s.Until))
		dst = appendBytes(dst, s.Properties)
	}
	return dst
}

// settleMessages reads the settlements into scratch.
func (r *reader) settleMessages(scratch []Settlement) SettleMessages {
	c := SettleMessages{Address: r.address(), Settlements: scratch[:0]}
	for range r.count(r.settlementBytesMin()) {
		s := Settlement{Lock: r.lockID(), Verb: Verb(r.byte()), Reason: r.string(), Description: r.string()}
		if r.version > 1 {
			s.Until = r.instant()
		}
		s.Properties = r.bytes()
		c.Settlements = append(c.Settlements, s)
	}
	return c
}

// verifySettle is [Check] of a SettleMessages on the bytes.
func (r *reader) verifySettle() {
	r.limit(r.address().valid())
	n := r.count(r.settlementBytesMin())
	r.limit(within(n, commandSettlementsMax))
	for range n {
		r.lockID()
		verb := Verb(r.byte())
		reason, description, until := r.bytes(), r.bytes(), Instant(0)
		if r.version > 1 {
			until = r.instant()
		}
		properties := r.bytes()
		r.limit(validVerb(verb) && validUntil(verb, until) && len(reason) <= reasonBytesMax &&
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
	return appendNumbers(appendBool(appendAddress(dst, c.Address), c.Delete), c.Sequences)
}

func appendNumbers(dst []byte, numbers []SequenceNumber) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(numbers)))
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func (r *reader) numbers() []SequenceNumber {
	list := make([]SequenceNumber, r.count(1))
	for i := range list {
		list[i] = SequenceNumber(r.uvarint())
	}
	return list
}

func (r *reader) fetchDeferred() FetchDeferred {
	return FetchDeferred{Address: r.address(), Delete: r.bool(), Sequences: r.numbers()}
}

func appendPurgeMessages(dst []byte, c PurgeMessages) []byte {
	dst = binary.AppendUvarint(appendAddress(dst, c.Address), uint64(c.Before))
	return binary.AppendUvarint(dst, uint64(c.Max))
}

func (r *reader) purgeMessages() PurgeMessages {
	return PurgeMessages{Address: r.address(), Before: r.instant(), Max: r.uint32()}
}

func (r *reader) closeLane() CloseLane {
	return CloseLane{Origin: r.fixed64(), Lane: r.uvarint()}
}
