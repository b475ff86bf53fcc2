package fsm

import "encoding/binary"

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

// AcceptSession locks a session for the entity's LockDuration: the one named, also if it has no
// messages, or the unlocked one with the oldest ready message. Result: Session and Untils[0];
// empty, and OK, if no session is available. A repeated command returns the lock as it is now, or
// nothing if it has ended. Refused with SessionCannotBeLocked (locked by another receiver),
// EntityNotFound, EntityDisabled, or NotAllowed without sessions.
type AcceptSession struct {
	Entity EntityID
	Named  bool
	ID     string // at most 128 characters
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

func (AcceptSession) command() {}

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

// session reads what appendSession wrote; the text aliases the input.
func (r *reader) session() (session []byte, has bool) {
	n := r.uvarint()
	switch {
	case n == 0:
		return nil, false
	case n-1 > uint64(len(r.b)):
		r.fail(errShort)
		return nil, false
	}
	n--
	session = r.b[:n:n]
	r.b = r.b[n:]
	return session, true
}

// appendSessionLock appends a lock of a session: one byte when there is none.
func appendSessionLock(dst []byte, l SessionLock) []byte {
	dst = binary.AppendUvarint(dst, l.Epoch)
	if l.Epoch == 0 {
		return dst
	}
	return appendString(dst, l.ID)
}

func (r *reader) sessionLock() SessionLock {
	l := SessionLock{Epoch: r.uvarint()}
	if l.Epoch != 0 {
		l.ID = r.string()
	}
	return l
}

func appendAcceptSession(dst []byte, c AcceptSession) []byte {
	return appendSession(binary.AppendUvarint(dst, uint64(c.Entity)), c.ID, c.Named)
}

func (r *reader) acceptSession() AcceptSession {
	c := AcceptSession{Entity: EntityID(r.uvarint())}
	id, named := r.session()
	c.ID, c.Named = string(id), named
	return c
}

func appendSetSessionState(dst []byte, c SetSessionState) []byte {
	dst = appendSessionLock(binary.AppendUvarint(dst, uint64(c.Entity)), c.Lock)
	return appendBytes(appendBool(dst, c.Clear), c.State)
}

func (r *reader) setSessionState() SetSessionState {
	return SetSessionState{Entity: EntityID(r.uvarint()), Lock: r.sessionLock(), Clear: r.bool(), State: r.bytes()}
}

// validSessionCommand is [Check] of the commands about sessions.
func validSessionCommand(c Command) Code {
	switch c := c.(type) {
	case AcceptSession:
		return codeIf(checkSession(c.ID) && (c.Named || c.ID == ""))
	case RenewSession:
		return codeIf(checkSession(c.Lock.ID) && c.Lock.Epoch != 0)
	case ReleaseSession:
		return codeIf(checkSession(c.Lock.ID) && c.Lock.Epoch != 0)
	case SetSessionState:
		if len(c.State) > messageBytesMax {
			return MessageTooLarge
		}
		return codeIf(checkSession(c.Lock.ID) && c.Lock.Epoch != 0 && (!c.Clear || len(c.State) == 0))
	}
	return InvalidArgument
}

// checkSession says whether a session may be called so.
func checkSession(id string) bool { return len(id) <= sessionIDBytesMax }

func (RenewSession) command()    {}
func (ReleaseSession) command()  {}
func (SetSessionState) command() {}
