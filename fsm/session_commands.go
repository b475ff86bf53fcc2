package fsm

import (
	"encoding/binary"

	"github.com/peeklock/peeklock/fsm/fields"
)

// SessionLock identifies one lock of a session: its holder receives the messages of the session, in
// order, and nobody else does. Epoch counts the session locks of an entity, so a SessionLock is
// never reused; Epoch 0 is none.
//
// Messages of a session have no lock times of their own: a message that is locked under a session
// stays locked as long as the session.
type SessionLock struct {
	ID    string `json:"ID"` // "" is a valid session
	Epoch uint64 `json:"Epoch"`
}

// SessionToken is a secret of whoever holds the lock of a session not exclusively: with it, another receiver takes the
// lock over.
type SessionToken [16]byte

// AcceptSession locks a session for the entity's LockDuration: the one named, also if it has no
// messages, or the unlocked one with the oldest ready message. Result: Session and Untils[0];
// empty, and OK, if no session is available. A repeated command returns the lock as it is now, or
// nothing if it has ended. Refused with SessionCannotBeLocked (locked by another receiver),
// EntityNotFound, EntityDisabled, or NotAllowed without sessions.
//
// A lock with a Token is not exclusive. TakeOver with that token ends it, but the messages that are locked under it
// stay locked under the new one, which has the same token and begins now: whoever has their locks settles them. Refused
// with SessionCannotBeLocked if the session is locked exclusively or with another token, and with SessionLockLost if
// it is not locked.
type AcceptSession struct {
	Entity   EntityID
	Named    bool
	ID       string       // at most 128 characters
	Token    SessionToken // zero: exclusive
	TakeOver bool         // a named session, by its Token
}

// RenewSession extends a session lock by the lock duration from now. Result: Untils[0], or
// SessionLockLost.
type RenewSession struct {
	Entity EntityID
	Lock   SessionLock
}

// ReleaseSession ends a session lock: messages locked under it return to their place, and no failed
// delivery is counted. Releasing a lock that has ended is OK.
type ReleaseSession struct {
	Entity EntityID
	Lock   SessionLock
}

// SetSessionState stores an opaque value with a session for its holder; Clear removes it, an empty
// State does not. Refused with SessionLockLost, or MessageTooLarge above the entity's
// MaxMessageBytes. It counts in the entity's bytes: QuotaExceeded.
type SetSessionState struct {
	Entity EntityID
	Lock   SessionLock
	State  []byte
	Clear  bool
}

// grows reports whether the command sets a state, and does not clear it.
func (c SetSessionState) grows() bool { return len(c.State) > 0 }

// Session is one session in a list of sessions.
type Session struct {
	ID       string  `json:"ID"`
	Messages uint64  `json:"Messages"` // in the main queue, in every state
	Ready    uint64  `json:"Ready"`    // of those
	Until    Instant `json:"Until"`    // end of the lock, 0 if it is not locked
	Updated  Instant `json:"Updated"`  // when its state was set last, 0 if it has none
	Bytes    uint64  `json:"Bytes"`    // of the state
}

// appendSession appends the session of a message: 0 for none, else the length + 1 and the
// text.
func appendSession(dst []byte, session string, has bool) []byte {
	if !has {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(session))+1), session...)
}

// ReadSession decodes the output of appendSession; the text aliases the input.
func ReadSession(r *fields.Codec) (session []byte, has bool) {
	n := r.Uvarint()
	switch {
	case n == 0:
		return nil, false
	case n-1 > uint64(len(r.Buf)):
		r.Fail(fields.ErrShort)
		return nil, false
	}
	n--
	session = r.Buf[:n:n]
	r.Buf = r.Buf[n:]
	return session, true
}

// checkSession reports whether a session can have this id.
func checkSession(id string) bool { return len(id) <= SessionIDBytesMax }

// fieldSession is the session of a message, or the one that is accepted.
func fieldSession(x *fields.Codec, session *string, has *bool) {
	if x.Encoding() {
		x.Buf = appendSession(x.Buf, *session, *has)
		return
	}
	text, found := ReadSession(x)
	*session, *has = string(text), found
}

// fields of a lock of a session: one byte if there is none.
func (l *SessionLock) fields(x *fields.Codec) {
	if fields.Uint64(x, &l.Epoch); l.Epoch != 0 {
		fields.Text(x, &l.ID)
	}
}

// valid reports whether the lock can be one of a session.
func (l *SessionLock) valid() bool { return checkSession(l.ID) && l.Epoch != 0 }

func (AcceptSession) kind() Kind                           { return KindAcceptSession }
func (c AcceptSession) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c AcceptSession) Check() Code {
	return CodeIf(checkSession(c.ID) && (c.Named || c.ID == "") && (!c.TakeOver || c.Named && c.Token != SessionToken{}))
}

// Fields lists the fields of the record for the codec.
func (c *AcceptSession) Fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	fieldSession(x, &c.ID, &c.Named)
	fieldToken(x, &c.Token)
	fields.Bool(x, &c.TakeOver)
}

// fieldToken is the token of a lock, one byte if there is none.
func fieldToken(x *fields.Codec, token *SessionToken) {
	has := *token != SessionToken{}
	if fields.Bool(x, &has); !has {
		return
	}
	if fields.Key(x, (*[16]byte)(token)); *token == (SessionToken{}) {
		x.Fail(fields.ErrFlag)
	}
}

func (RenewSession) kind() Kind                           { return KindRenewSession }
func (c RenewSession) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c RenewSession) Check() Code { return CodeIf(c.Lock.valid()) }

func (c *RenewSession) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	c.Lock.fields(x)
}

func (ReleaseSession) kind() Kind                           { return KindReleaseSession }
func (c ReleaseSession) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c ReleaseSession) Check() Code { return CodeIf(c.Lock.valid()) }

func (c *ReleaseSession) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	c.Lock.fields(x)
}

func (SetSessionState) kind() Kind                           { return KindSetSessionState }
func (c SetSessionState) encode(x fields.Codec) fields.Codec { c.Fields(&x); return x }

// Check implements [Command].
func (c SetSessionState) Check() Code {
	if len(c.State) > MessageBytesMax {
		return MessageTooLarge
	}
	return CodeIf(c.Lock.valid() && (!c.Clear || len(c.State) == 0))
}

// Fields lists the fields of the record for the codec.
func (c *SetSessionState) Fields(x *fields.Codec) {
	fields.Uint64(x, &c.Entity)
	c.Lock.fields(x)
	fields.Bool(x, &c.Clear)
	fields.Bytes(x, &c.State)
}
