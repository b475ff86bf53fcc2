package fsm

import "encoding/binary"

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
