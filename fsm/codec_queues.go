package fsm

import (
	"encoding/binary"
	"slices"
)

// The fewest bytes an item takes: what a count is checked against.
const (
	messageBytesMin    = 6 // four empty texts, two numbers
	lockBytesMin       = 2 // sequence, epoch
	settlementBytesMin = lockBytesMin + 5
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

// settingsVersion is the first byte of encoded settings: new settings change this number and not
// that of the command or image that contains them.
const settingsVersion byte = 3

// The flags of encoded settings.
const (
	settingDeadLetterOnExpiry         byte = 1 << 0
	settingRequiresDuplicateDetection byte = 1 << 1
	settingDeadLetterOnFilterErrors   byte = 1 << 2
	settingRequiresSession            byte = 1 << 3
	settingEnablePartitioning         byte = 1 << 4

	settingFlagsKnown = settingDeadLetterOnExpiry | settingRequiresDuplicateDetection | settingDeadLetterOnFilterErrors |
		settingRequiresSession | settingEnablePartitioning
)

func appendSettings(dst []byte, s EntitySettings) []byte {
	var flags byte
	if s.DeadLetterOnExpiry {
		flags |= settingDeadLetterOnExpiry
	}
	if s.RequiresDuplicateDetection {
		flags |= settingRequiresDuplicateDetection
	}
	if s.DeadLetterOnFilterErrors {
		flags |= settingDeadLetterOnFilterErrors
	}
	if s.RequiresSession {
		flags |= settingRequiresSession
	}
	if s.EnablePartitioning {
		flags |= settingEnablePartitioning
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
	dst = binary.AppendUvarint(dst, uint64(s.RetryDelayMax))
	return appendString(appendString(dst, s.ForwardTo), s.ForwardDeadLettersTo)
}

func (r *reader) settings() EntitySettings {
	if version := r.byte(); version != settingsVersion {
		r.fail(unknownVersion(version, settingsVersion, settingsVersion))
	}
	s := EntitySettings{LockDuration: r.millis(), MaxDeliveryCount: r.uint32(), MaxMessageBytes: r.uint32()}
	flags := r.byte()
	if flags&^settingFlagsKnown != 0 {
		r.fail(errFlag)
	}
	s.DeadLetterOnExpiry = flags&settingDeadLetterOnExpiry != 0
	s.RequiresDuplicateDetection = flags&settingRequiresDuplicateDetection != 0
	s.DeadLetterOnFilterErrors = flags&settingDeadLetterOnFilterErrors != 0
	s.RequiresSession = flags&settingRequiresSession != 0
	s.EnablePartitioning = flags&settingEnablePartitioning != 0
	s.Status = EntityStatus(r.byte())
	s.DefaultTimeToLive, s.DuplicateWindow, s.AutoDeleteOnIdle = r.millis(), r.millis(), r.millis()
	s.MaxBytes, s.UserMetadata = r.uvarint(), r.string()
	s.DeadLetterTimeToLive, s.RetryDelay, s.RetryDelayMax = r.millis(), r.millis(), r.millis()
	s.ForwardTo, s.ForwardDeadLettersTo = r.string(), r.string()
	return s
}

func (r *reader) millis() Millis { return Millis(r.instant()) }

func appendPutEntity(dst []byte, c PutEntity) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	dst = binary.AppendUvarint(dst, c.Version)
	dst = append(appendSettings(dst, c.Settings), byte(c.Kind))
	return appendFirstRule(binary.AppendUvarint(dst, uint64(c.Topic)), c.Rule)
}

func (r *reader) putEntity() PutEntity {
	return PutEntity{
		Entity: EntityID(r.uvarint()), Version: r.uvarint(), Settings: r.settings(),
		Kind: EntityKind(r.byte()), Topic: EntityID(r.uvarint()), Rule: r.firstRule(),
	}
}

func appendSendMessages(dst []byte, c SendMessages) []byte {
	return appendMessages(binary.AppendUvarint(dst, uint64(c.Entity)), c.Messages)
}

func appendMessages(dst []byte, messages []Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(messages)))
	for i := range messages {
		m := &messages[i]
		dst = appendBytes(appendString(dst, m.ID), m.Payload)
		dst = binary.AppendUvarint(dst, uint64(m.TimeToLive))
		dst = binary.AppendUvarint(dst, uint64(m.EnqueueAt))
		dst = appendSession(appendBytes(dst, m.Properties), m.Session, m.HasSession)
	}
	return dst
}

// sentMessage is a Message whose parts both alias the command: Apply makes no text of an
// identifier that it only compares.
type sentMessage struct {
	id, payload []byte
	ttl         Millis
	at          Instant
	properties  []byte // for the rules of a topic
	session     []byte
	hasSession  bool

	// Of a message that is forwarded.
	patches []byte
	hops    uint8
}

// sends reads the payload of a SendMessages into scratch.
func (r *reader) sends(scratch []sentMessage) (EntityID, []sentMessage) {
	entity := EntityID(r.uvarint())
	return entity, r.messages(scratch)
}

// messages reads what appendMessages wrote into scratch.
func (r *reader) messages(scratch []sentMessage) []sentMessage {
	n := r.count(messageBytesMin)
	scratch = slices.Grow(scratch[:0], n)[:n] // what was there was cleared after use
	for i := range scratch {
		m := &scratch[i] // in place: a sent is large
		m.id, m.payload = r.bytes(), r.bytes()
		m.ttl, m.at = r.millis(), r.instant()
		m.properties = r.bytes()
		m.session, m.hasSession = r.session()
	}
	return scratch
}

func (r *reader) sendMessages() SendMessages {
	entity, items := r.sends(nil)
	return SendMessages{Entity: entity, Messages: messagesOf(items)}
}

func messagesOf(items []sentMessage) []Message {
	list := make([]Message, len(items))
	for i := range items {
		m := &items[i]
		list[i] = Message{
			ID: string(m.id), Payload: m.payload, TimeToLive: m.ttl, EnqueueAt: m.at, Properties: m.properties,
			Session: string(m.session), HasSession: m.hasSession,
		}
	}
	return list
}

// verifySend is [Check] of a SendMessages on the bytes.
func (r *reader) verifySend() {
	r.uvarint()
	n := r.count(messageBytesMin)
	r.limit(within(n, commandMessagesMax))
	for range n {
		id, payload := r.bytes(), r.bytes()
		r.limit(len(id) <= messageIDBytesMax && len(payload) <= messageBytesMax)
		r.limit(validTime(r.millis(), r.instant()))
		r.limit(validProperties(r.bytes()))
		session, _ := r.session()
		r.limit(len(session) <= sessionIDBytesMax)
	}
}

func appendLockMessages(dst []byte, c LockMessages) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, uint64(c.Max))
	dst = binary.AppendUvarint(dst, uint64(c.MaxBytes))
	return appendSessionLock(appendBool(dst, c.Delete), c.Session)
}

func (r *reader) lockMessages() LockMessages {
	return LockMessages{Address: r.address(), Max: r.uint32(), MaxBytes: r.uint32(), Delete: r.bool(), Session: r.sessionLock()}
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
	for range r.count(settlementBytesMin) {
		c.Settlements = append(c.Settlements, Settlement{
			Lock: r.lockID(), Verb: Verb(r.byte()), Reason: r.string(), Description: r.string(), Until: r.instant(), Properties: r.bytes(),
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
		reason, description, until, properties := r.bytes(), r.bytes(), r.instant(), r.bytes()
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
	return appendSessionLock(appendNumbers(appendBool(appendAddress(dst, c.Address), c.Delete), c.Sequences), c.Session)
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
	return FetchDeferred{Address: r.address(), Delete: r.bool(), Sequences: r.numbers(), Session: r.sessionLock()}
}

func appendPurgeMessages(dst []byte, c PurgeMessages) []byte {
	dst = binary.AppendUvarint(appendAddress(dst, c.Address), uint64(c.Before))
	return binary.AppendUvarint(dst, uint64(c.Max))
}

func (r *reader) purgeMessages() PurgeMessages {
	return PurgeMessages{Address: r.address(), Before: r.instant(), Max: r.uint32()}
}

func (r *reader) closeReceiver() CloseReceiver {
	return CloseReceiver{Incarnation: r.fixed64(), Receiver: r.uvarint()}
}
