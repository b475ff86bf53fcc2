package fsm

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

func (AcceptSession) command()   {}
func (RenewSession) command()    {}
func (ReleaseSession) command()  {}
func (SetSessionState) command() {}

// Session is one session in a list of sessions.
type Session struct {
	ID       string  `json:"ID"`
	Messages uint64  `json:"Messages"` // in the main queue, in every state
	Ready    uint64  `json:"Ready"`    // of those
	Until    Instant `json:"Until"`    // end of the lock, 0 if it is not locked
	Updated  Instant `json:"Updated"`  // when its state was set last, 0 if it has none
	Bytes    uint64  `json:"Bytes"`    // of the state
}
