package fsm

// SessionLock names one grant of a session: who holds it receives the messages of the
// session, in order, and nobody else does. Epoch counts the grants of all sessions of an
// entity, so a SessionLock is never granted twice; Epoch 0 is none.
//
// The messages of a session have no lock ends of their own: a message locked under a
// session is locked as long as the session.
type SessionLock struct {
	ID    string `json:"ID"` // "" is a session too
	Epoch uint64 `json:"Epoch"`
}

// AcceptSession locks a session for the entity's LockDuration: the one named, also when it
// has no messages, or the one with the oldest ready message that nobody holds. Result:
// Session and Untils[0]; nothing, and OK, when no session is to be had. Asked again it is
// answered with the grant as it stands, or not found if that has ended. Refused with
// SessionCannotBeLocked (somebody holds it), EntityNotFound, EntityDisabled, or NotAllowed
// where there are no sessions.
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

// ReleaseSession ends a session lock: what is locked under it returns to its place and no
// attempt is counted. One that has ended already is OK.
type ReleaseSession struct {
	Entity EntityID
	Lock   SessionLock
}

// SetSessionState keeps an opaque value with a session for its holder; Clear takes it away,
// which an empty State does not. Refused with SessionLockLost, or MessageTooLarge above
// the entity's MaxMessageBytes. It counts in the entity's bytes: QuotaExceeded.
type SetSessionState struct {
	Entity EntityID
	Lock   SessionLock
	State  []byte
	Clear  bool
}

func (AcceptSession) command()   {}
func (RenewSession) command()    {}
func (ReleaseSession) command()  {}
func (SetSessionState) command() {}

// Session is a session as it is listed.
type Session struct {
	ID       string  `json:"ID"`
	Messages uint64  `json:"Messages"` // in the main queue, in every state
	Ready    uint64  `json:"Ready"`    // of those
	Until    Instant `json:"Until"`    // end of the lock, 0 when nobody holds it
	Updated  Instant `json:"Updated"`  // when its state was set last, 0 when it has none
	Bytes    uint64  `json:"Bytes"`    // of the state
}
