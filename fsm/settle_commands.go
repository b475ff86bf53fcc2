package fsm

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

// verifySettle decodes and checks a SettleMessages without building it.
func (r *codec) verifySettle() {
	var at Address
	at.fields(r)
	r.limit(at.valid())
	n := r.count(settlementBytesMin)
	r.limit(within(n, commandSettlementsMax))
	for range n {
		var lock LockID
		lock.fields(r)
		verb := Verb(r.byte())
		reason, description, until, properties := r.bytes(), r.bytes(), r.instant(), r.bytes()
		r.limit(validVerb(verb) && validUntil(verb, until) && len(reason) <= reasonBytesMax &&
			len(description) <= reasonBytesMax && len(properties) <= propertiesBytesMax)
	}
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

func (LockMessages) kind() Kind             { return KindLockMessages }
func (c LockMessages) encode(x codec) codec { c.fields(&x); return x }
func (c LockMessages) check() Code {
	return codeIf(within(int(c.Max), commandMessagesMax) && c.Address.valid())
}

func (c *LockMessages) fields(x *codec) {
	c.Address.fields(x)
	field32(x, &c.Max)
	field32(x, &c.MaxBytes)
	fieldBool(x, &c.Delete)
	c.Session.fields(x)
}

func (SettleMessages) kind() Kind             { return KindSettleMessages }
func (c SettleMessages) encode(x codec) codec { c.fields(&x); return x }
func (c SettleMessages) check() Code {
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

func (c *SettleMessages) fields(x *codec) {
	c.Address.fields(x)
	for i := range fieldLen(x, &c.Settlements, settlementBytesMin) {
		c.Settlements[i].fields(x)
	}
}

func (s *Settlement) fields(x *codec) {
	s.Lock.fields(x)
	field8(x, &s.Verb)
	fieldText(x, &s.Reason)
	fieldText(x, &s.Description)
	fieldTime(x, &s.Until)
	fieldBytes(x, &s.Properties)
}

func (RenewLocks) kind() Kind             { return KindRenewLocks }
func (c RenewLocks) encode(x codec) codec { c.fields(&x); return x }
func (c RenewLocks) check() Code {
	return codeIf(within(len(c.Locks), commandSettlementsMax) && c.Address.valid())
}

func (c *RenewLocks) fields(x *codec) {
	c.Address.fields(x)
	for i := range fieldLen(x, &c.Locks, lockBytesMin) {
		c.Locks[i].fields(x)
	}
}

func (FetchDeferred) kind() Kind             { return KindFetchDeferred }
func (c FetchDeferred) encode(x codec) codec { c.fields(&x); return x }
func (c FetchDeferred) check() Code {
	return codeIf(within(len(c.Sequences), commandFetchMax) && c.Address.valid())
}

func (c *FetchDeferred) fields(x *codec) {
	c.Address.fields(x)
	fieldBool(x, &c.Delete)
	fieldNumbers(x, &c.Sequences)
	c.Session.fields(x)
}
