package fsm

import (
	"bytes"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// SettleMessages ends locks. Result: Codes, one per settlement: OK, MessageLockLost, NotAllowed,
// InvalidArgument, QuotaExceeded if the entity has no space for the properties, or ServerBusy if the entry has changed so many large messages that this one has to
// wait for another entry. Settlements are independent: one that fails does not affect the others.
type SettleMessages struct {
	Address     Address
	Settlements []Settlement
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

func (SettleMessages) kind() Kind { return KindSettleMessages }

// grows reports whether the command adds properties to messages that stay.
func (c SettleMessages) grows() bool {
	return slices.ContainsFunc(c.Settlements, func(s Settlement) bool { return s.Grows() })
}

// Grows reports whether the settlement adds properties to a message that stays.
func (s *Settlement) Grows() bool { return s.Verb != Complete && len(s.Properties) > 0 }

func (c SettleMessages) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c SettleMessages) Check() Code {
	if !Within(len(c.Settlements), CommandSettlementsMax) || !c.Address.Valid() {
		return InvalidArgument
	}
	for i := range c.Settlements {
		if !ValidSettlement(&c.Settlements[i]) {
			return InvalidArgument
		}
	}
	return OK
}

// Fields are the address, the number of settlements, and these in runs: settlements that follow each other and have one
// outcome are it, their number, and their locks.
func (c *SettleMessages) Fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Len(x, &c.Settlements, lockBytesMin)
	var before *Settlement
	for rest := c.Settlements; len(rest) > 0 && x.Err() == nil; {
		n, first := 1, &rest[0]
		for x.Encoding() && n < len(rest) && rest[n].SameOutcome(first) {
			n++
		}
		n = first.run(x, before, n, len(rest))
		for i := range n {
			if !x.Encoding() {
				rest[i] = *first
			}
			rest[i].Lock.fields(x)
		}
		before, rest = first, rest[n:]
	}
}

// SameOutcome reports whether two settlements differ in their locks only. A command holds the outcome of such
// settlements that follow each other once.
func (s *Settlement) SameOutcome(other *Settlement) bool {
	return s.Verb == other.Verb && s.Until == other.Until && s.Reason == other.Reason && s.Description == other.Description &&
		bytes.Equal(s.Properties, other.Properties)
}

var errRun = errors.New("run of settlements is empty, too long, or shorter than the longest possible one")

// run are the outcome and the length of a run, behind the run before it, nil for the first. It returns the length,
// most at most, 0 after an error.
func (s *Settlement) run(x *fields.Codec, before *Settlement, length, most int) int {
	fields.Uint8(x, &s.Verb)
	fields.Text(x, &s.Reason)
	fields.Text(x, &s.Description)
	fields.Int64(x, &s.Until)
	fields.Bytes(x, &s.Properties)
	n := uint64(length)
	fields.Uint64(x, &n)
	if n == 0 || n > uint64(most) || before != nil && s.SameOutcome(before) {
		x.Fail(errRun)
		return 0
	}
	return int(n)
}

// ValidSettlement checks one settlement. Apply checks each settlement alone, so that one that is
// over a limit does not affect the others.
func ValidSettlement(s *Settlement) bool {
	return validVerb(s.Verb) &&
		len(s.Reason) <= reasonBytesMax && len(s.Description) <= reasonBytesMax &&
		len(s.Properties) <= PropertiesBytesMax &&
		validUntil(s.Verb, s.Until)
}

func validVerb(v Verb) bool { return v >= Complete && v <= Release }

// SettleAll returns a settlement with a verb for each of the deliveries.
func SettleAll(deliveries []Delivery, verb Verb) []Settlement {
	settlements := make([]Settlement, len(deliveries))
	for i := range deliveries {
		settlements[i] = Settlement{Lock: deliveries[i].Lock, Verb: verb}
	}
	return settlements
}

// validUntil reports whether a settlement may have this delay: only abandoned messages can be
// delayed.
func validUntil(v Verb, until Instant) bool { return until == 0 || until > 0 && v == Abandon }

// RenewLocks extends locks by the lock duration from now. Result: Codes and Untils,
// one per lock.
type RenewLocks struct {
	Address Address
	Locks   []LockID
}

func (RenewLocks) kind() Kind { return KindRenewLocks }

func (c RenewLocks) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c RenewLocks) Check() Code {
	return CodeIf(Within(len(c.Locks), CommandSettlementsMax) && c.Address.Valid())
}

// Fields lists the fields of the record for the codec.
func (c *RenewLocks) Fields(x *fields.Codec) {
	c.Address.fields(x)
	for i := range fields.Len(x, &c.Locks, lockBytesMin) {
		c.Locks[i].fields(x)
	}
}

// verifySettle decodes and checks a SettleMessages without building it.
func verifySettle(x *fields.Codec) {
	var at Address
	at.fields(x)
	x.Limit(at.Valid())
	rest := x.Count(lockBytesMin)
	x.Limit(Within(rest, CommandSettlementsMax))
	var s, last Settlement
	var before *Settlement
	for rest > 0 && x.Err() == nil {
		n := s.run(x, before, 0, rest)
		x.Limit(ValidSettlement(&s))
		for range n {
			s.Lock.fields(x)
		}
		last, before, rest = s, &last, rest-n
	}
}

// SettleUnlocked settles messages by number that nobody has locked, for operators: Complete deletes ready, deferred and
// scheduled messages, Release makes deferred messages ready. A number that is none of them, or not in one of the states, is
// left out, so that the command can be repeated. Result: Count.
type SettleUnlocked struct {
	Address   Address
	Sequences []SequenceNumber // 1 to 1000
	Verb      Verb             // Complete or Release
	States    StateSet         // of Ready, Deferred and Scheduled; with Release, Deferred only
}

// StateSet is a set of states: bit 1<<s for the state s.
type StateSet uint16

// SetOf returns a set of states.
func SetOf(states ...MessageState) (s StateSet) {
	for _, state := range states {
		s |= 1 << state
	}
	return s
}

// Has reports whether the set has a state.
func (s StateSet) Has(state MessageState) bool { return s&(1<<state) != 0 }

// settleable returns the states of messages that SettleUnlocked settles with a verb.
func settleable(v Verb) StateSet {
	switch v { //nolint:exhaustive // the others need a lock
	case Complete:
		return SetOf(Ready, Deferred, Scheduled)
	case Release:
		return SetOf(Deferred)
	}
	return 0
}

func (SettleUnlocked) kind() Kind                           { return KindSettleUnlocked }
func (c SettleUnlocked) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c SettleUnlocked) Check() Code {
	return CodeIf(Within(len(c.Sequences), commandRedriveMax) && c.Address.Valid() && c.States != 0 && c.States&^settleable(c.Verb) == 0)
}

func (c *SettleUnlocked) fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Uint8(x, &c.Verb)
	states := uint32(c.States)
	fields.Uint32(x, &states)
	x.Limit(states <= 1<<16-1)
	c.States = StateSet(states)
	fields.Uint64s(x, &c.Sequences)
}
