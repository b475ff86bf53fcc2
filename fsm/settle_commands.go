package fsm

import "encoding/binary"

// LockMessages locks the oldest ready messages, or removes them from the queue with Delete
// (receive-and-delete). Result: Deliveries, at least one unless no message was ready; the first is
// delivered even if it alone exceeds MaxBytes. Expired messages are never delivered. Refused with
// EntityDisabled if the status of the entity forbids receiving.
type LockMessages struct {
	Address  Address
	Max      uint32 // messages, 1 to 4096
	MaxBytes uint32 // sum of body sizes
	Delete   bool
	// Session, if its Epoch is not 0, asks for the next messages of that session: SessionLockLost
	// if the lock has ended. Entities with sessions require it: NotAllowed.
	Session SessionLock
}

// Settlement ends one lock.
type Settlement struct {
	Lock        LockID
	Verb        Verb
	Reason      string // DeadLetter only
	Description string // DeadLetter only
	// Until delays the redelivery of an abandoned message up to this time, at most 7 days ahead. 0
	// or a past time applies the queue's RetryDelay. Abandon only; a deferred message that was
	// fetched by number becomes Deferred again at once.
	Until Instant
	// Properties are merged into the application properties of the message at its next delivery:
	// the pairs of an AMQP map, opaque to the state machine.
	Properties []byte
}

// SettleMessages ends locks. Result: Codes, one per settlement, each OK or MessageLockLost.
// Settlements are independent: one that fails does not affect the others.
type SettleMessages struct {
	Address     Address
	Settlements []Settlement
}

// RenewLocks extends locks by the lock duration from now. Result: Codes and Untils,
// one per lock.
type RenewLocks struct {
	Address Address
	Locks   []LockID
}

// FetchDeferred locks deferred messages by number, or removes them with Delete. Result: Deliveries
// of the messages found; a number that is not deferred here, or has expired, is left out. Refused
// with EntityDisabled if the status of the entity forbids receiving.
type FetchDeferred struct {
	Address   Address
	Sequences []SequenceNumber
	Delete    bool
	Session   SessionLock // as in LockMessages; only messages of that session are found
}

func (LockMessages) command() {}

func appendLockMessages(dst []byte, c LockMessages) []byte {
	dst = appendAddress(dst, c.Address)
	dst = binary.AppendUvarint(dst, uint64(c.Max))
	dst = binary.AppendUvarint(dst, uint64(c.MaxBytes))
	return appendSessionLock(appendBool(dst, c.Delete), c.Session)
}

func (r *reader) lockMessages() LockMessages {
	return LockMessages{Address: r.address(), Max: r.uint32(), MaxBytes: r.uint32(), Delete: r.bool(), Session: r.sessionLock()}
}

func checkLock(c LockMessages) Code {
	return codeIf(within(int(c.Max), commandMessagesMax) && c.Address.valid())
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

func checkSettle(c SettleMessages) Code {
	if !within(len(c.Settlements), commandSettlementsMax) || !c.Address.valid() {
		return InvalidArgument
	}
	for i := range c.Settlements {
		if !validSettlement(&c.Settlements[i]) {
			return InvalidArgument
		}
	}
	return OK
}

// validSettlement checks one settlement. Apply checks each settlement alone, so that one that is
// over a limit does not affect the others.
func validSettlement(s *Settlement) bool {
	return validVerb(s.Verb) &&
		len(s.Reason) <= reasonBytesMax && len(s.Description) <= reasonBytesMax &&
		len(s.Properties) <= propertiesBytesMax &&
		validUntil(s.Verb, s.Until)
}

func validVerb(v Verb) bool { return v >= Complete && v <= Release }

// validUntil reports whether a settlement may have this delay: only abandoned messages can be
// delayed.
func validUntil(v Verb, until Instant) bool { return until == 0 || until > 0 && v == Abandon }

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

func checkRenew(c RenewLocks) Code {
	return codeIf(within(len(c.Locks), commandSettlementsMax) && c.Address.valid())
}

func appendFetchDeferred(dst []byte, c FetchDeferred) []byte {
	return appendSessionLock(appendNumbers(appendBool(appendAddress(dst, c.Address), c.Delete), c.Sequences), c.Session)
}

func (r *reader) fetchDeferred() FetchDeferred {
	return FetchDeferred{Address: r.address(), Delete: r.bool(), Sequences: r.numbers(), Session: r.sessionLock()}
}

func checkFetch(c FetchDeferred) Code {
	return codeIf(within(len(c.Sequences), commandFetchMax) && c.Address.valid())
}
