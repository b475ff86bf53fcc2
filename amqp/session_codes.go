package amqp

import (
	"context"
	"slices"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// sessionCodes returns the codes of settlements or renewals of messages of a session: a message lock that has
// ended with the lock of its session is answered as a lost session, because clients react to the two
// differently. The mutex is not held.
func sessionCodes(ctx context.Context, held heldSession, codes []fsm.Code) (as []fsm.Code, lost bool) {
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	if _, err := held.Held(ctx); err == nil || refusal.CodeOf(err) != fsm.SessionLockLost {
		return codes, false
	}
	return lostCodes(codes), true
}

// lostCodes returns codes in which lost sessions replace lost messages.
func lostCodes(codes []fsm.Code) []fsm.Code {
	as := slices.Clone(codes)
	for i := range as {
		if as[i] == fsm.MessageLockLost {
			as[i] = fsm.SessionLockLost
		}
	}
	return as
}

// withSessionCodes passes then the codes of a request that settled or renewed messages by their tokens, as
// sessionCodes does for a link. It may call then later, from another goroutine. The mutex is not held.
func (m *manager) withSessionCodes(ctx context.Context, r *managed, body wire.Map, codes []fsm.Code, then func([]fsm.Code)) {
	at := &r.at
	if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue || !slices.Contains(codes, fsm.MessageLockLost) {
		then(codes)
		return
	}
	held, resp, ok := m.heldSession(r, body)
	switch {
	case ok:
		go func() {
			defer m.conn.Recovered(ctx)
			codes, _ := sessionCodes(ctx, held, codes)
			then(codes)
		}()
	case resp.Condition == wire.ConditionSessionLockLost:
		then(lostCodes(codes))
	default: // the request names no session
		then(codes)
	}
}
