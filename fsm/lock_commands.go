package fsm

import "github.com/peeklock/peeklock/fsm/fields"

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

func (LockMessages) kind() Kind { return KindLockMessages }

func (c LockMessages) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c LockMessages) Check() Code {
	return CodeIf(Within(int(c.Max), CommandMessagesMax) && c.Address.Valid())
}

// Fields lists the fields of the record for the codec.
func (c *LockMessages) Fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Uint32(x, &c.Max)
	fields.Uint32(x, &c.MaxBytes)
	fields.Bool(x, &c.Delete)
	c.Session.fields(x)
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

func (FetchDeferred) kind() Kind { return KindFetchDeferred }

func (c FetchDeferred) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c FetchDeferred) Check() Code {
	return CodeIf(Within(len(c.Sequences), commandFetchMax) && c.Address.Valid())
}

// Fields lists the fields of the record for the codec.
func (c *FetchDeferred) Fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Bool(x, &c.Delete)
	fields.Uint64s(x, &c.Sequences)
	c.Session.fields(x)
}

// FetchReady locks ready messages that a peek has shown, or removes them with Delete, for receivers that select
// messages. Result: Deliveries, in the order of Seen. A message is left out if it is not ready, has expired, or was
// locked since the peek, which may have changed it. Refused with EntityDisabled if the status of the entity forbids receiving,
// and NotAllowed if the entity has sessions.
type FetchReady struct {
	Address Address
	Seen    []LockID // with the epochs of the last locks
	Delete  bool
}

func (FetchReady) kind() Kind { return KindFetchReady }

func (c FetchReady) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c FetchReady) Check() Code {
	return CodeIf(Within(len(c.Seen), commandFetchMax) && c.Address.Valid())
}

// Fields lists the fields of the record for the codec.
func (c *FetchReady) Fields(x *fields.Codec) {
	c.Address.fields(x)
	fields.Bool(x, &c.Delete)
	for i := range fields.Len(x, &c.Seen, lockBytesMin) {
		c.Seen[i].fields(x)
	}
}
