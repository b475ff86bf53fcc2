package partition

import (
	"errors"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The errors that callers branch on.
var (
	// ErrNotLeader means that this replica is not the leader now: ask another.
	ErrNotLeader = errors.New("not the leader of the group")
	// ErrClosed means that the group is closed or has stopped.
	ErrClosed = errors.New("group is closed")
	// ErrTransferUsed means that this leader has already tried to transfer leadership in its term: a second
	// try can wedge raft, so it is refused until the next leadership.
	ErrTransferUsed = errors.New("leadership transfer was tried before in this term")
)

// Outcome is the end of a submission.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota + 1 // applied; Result is meaningful
	Refused                    // certainly not in the log: ask the leader
	Unknown                    // may or may not have been applied: submit it again with the same Header
)

// Answer reports the end of a submission.
type Answer struct {
	Outcome Outcome
	// Final is set in a Refused answer that a retry will not change soon: the leader refuses commands that make data
	// grow because of SetReadOnly or Config.Refuses. The caller gets the Code of its Result.
	Final bool
	// Result of a Refused answer has the Code ServerBusy when a queue of this leader is full, that of a Final one, and OK when
	// this replica is not the leader.
	Result fsm.Result
}

// LockRequest waits at the leader until messages are ready, or until a session can be accepted.
type LockRequest struct {
	Header fsm.Header
	Lock   fsm.LockMessages
	// Accept, if it is not nil, is proposed instead of Lock. It names no session: a request for a named
	// session never waits and goes through Submit.
	Accept *fsm.AcceptSession
	Until  time.Time // end of the wait: Done then gets the outcome Done without deliveries
	Done   func(Answer)
}
