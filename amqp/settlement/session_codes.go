package settlement

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/fsm"
)

// heldWithin limits a question about the lock of a session.
const heldWithin = 60 * time.Second

// Session has the method of amqp.Session that SessionCodes calls.
type Session interface {
	// Held returns the end of the lock of the session, or fsm.SessionLockLost.
	Held(ctx context.Context) (fsm.Instant, error)
}

// SessionCodes returns the codes of settlements or renewals of messages of a session: a message lock that has
// ended with the lock of its session is answered as a lost session, because clients react to the two
// differently. The mutex is not held.
func SessionCodes(ctx context.Context, held Session, codes []fsm.Code) (as []fsm.Code, lost bool) {
	ctx, cancel := context.WithTimeout(ctx, heldWithin)
	defer cancel()
	if _, err := held.Held(ctx); err == nil || refusal.CodeOf(err) != fsm.SessionLockLost {
		return codes, false
	}
	return LostCodes(codes), true
}

// LostCodes returns codes in which lost sessions replace lost messages.
func LostCodes(codes []fsm.Code) []fsm.Code {
	as := slices.Clone(codes)
	for i := range as {
		if as[i] == fsm.MessageLockLost {
			as[i] = fsm.SessionLockLost
		}
	}
	return as
}
