package amqp

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A session lock ends at the leader of its partition, which tells only receivers that wait for messages. A link
// without credit learns it here: when the last known end of its lock has passed, it asks the leader whether
// the lock was extended, for example by the renewal of a message. A link whose lock has ended is detached
// (docs/service-bus-protocol.md#holding-a-session).

const (
	// From the end of a lock to the first question, or to the detach. The Python client may wait for messages for as long
	// as the lock lasts: its wait, which began a little later, ends before the link does.
	sessionLossGrace = 500 * time.Millisecond
	sessionLossEvery = 250 * time.Millisecond // shortest interval between two questions
)

// watchSession asks for the end of the session lock of a link when it is due. mu is held.
func (l *outgoingLink) watchSession() {
	l.askAgain(sessionLossGrace + time.Until(time.UnixMilli(int64(l.messageSession.Until()))))
}

// askAgain sets the timer of watchSession. mu is held.
func (l *outgoingLink) askAgain(wait time.Duration) {
	l.lossTimer = time.AfterFunc(wait, l.checkSession)
}

// checkSession asks for the end of the lock, and detaches the link if the lock has ended.
func (l *outgoingLink) checkSession() {
	c := l.session.conn
	ctx, cancel := context.WithTimeout(context.Background(), sessionWithin)
	defer cancel()
	defer c.recovered(ctx)
	until := l.messageSession.Until()
	lost := false
	if time.Now().After(time.UnixMilli(int64(until))) { // it was not renewed through the link
		until, lost = l.sessionEnd(ctx)
	}
	c.mu.Lock()
	defer c.unlock()
	switch {
	case l.state != attached || c.phase >= phaseClosing:
	case lost:
		l.loseSession(ctx)
	default:
		l.askAgain(max(sessionLossEvery, sessionLossGrace+time.Until(time.UnixMilli(int64(until)))))
	}
}

// sessionEnd asks the leader for the end of the session lock of a link; lost reports that it has ended. An
// unknown end is 0. mu is not held.
func (l *outgoingLink) sessionEnd(ctx context.Context) (until fsm.Instant, lost bool) {
	until, err := l.messageSession.Held(ctx)
	switch {
	case err == nil:
		return until, false
	case refusal.CodeOf(err) == fsm.SessionLockLost, refusal.CodeOf(err) == fsm.EntityNotFound:
		return 0, true
	}
	return 0, false
}

// loseSessionSoon detaches a link whose session lock has ended just now, as its receiver says. mu is held.
func (l *outgoingLink) loseSessionSoon() {
	c := l.session.conn
	time.AfterFunc(sessionLossGrace, func() {
		c.mu.Lock()
		defer c.unlock()
		if c.phase < phaseClosing {
			l.loseSession(context.Background())
		}
	})
}

// loseSession detaches a link whose session lock has ended. Its unsettled deliveries stay known until the
// client has detached too, so that settlements that crossed the detach get the right answer. mu is held.
func (l *outgoingLink) loseSession(ctx context.Context) {
	if l.state == attached {
		l.sessionLost = true
		l.detachWithError(ctx, l, refusal.ReplyOf(fsm.SessionLockLost).Cause)
	}
}

// forgetLost forgets the deliveries of a link that has lost its session. mu is held.
func (l *outgoingLink) forgetLost() {
	if !l.sessionLost {
		return
	}
	l.sessionLost = false
	l.forgetUnsettled()
}

// forgetUnsettled forgets the unsettled deliveries of a link. mu is held.
func (l *outgoingLink) forgetUnsettled() {
	s := l.session
	for id, u := range s.unsettled {
		if u.link == l {
			delete(s.unsettled, id)
		}
	}
	s.countUnsettled()
	s.unsettledFreed()
}

// refuseLost answers settlements of deliveries whose link has lost its session. mu is held.
func (s *session) refuseLost(ctx context.Context, mine []settledDelivery) {
	for _, t := range mine {
		s.reject(s.conn.newError(ctx, refusal.ReplyOf(fsm.SessionLockLost).Cause, "path", t.link.path), t.id, t.id)
	}
}

// sessionCodes returns the codes of settlements or renewals of messages of a session: a message lock that has
// ended with the lock of its session is answered as a lost session, because clients react to the two
// differently. mu is not held.
func sessionCodes(ctx context.Context, held Session, codes []fsm.Code) (as []fsm.Code, lost bool) {
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
// sessionCodes does for a link. It may call then later, from another goroutine. mu is not held.
func (c *conn) withSessionCodes(ctx context.Context, r *request, body wire.Map, codes []fsm.Code, then func([]fsm.Code)) {
	at := &r.at
	if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue || !slices.Contains(codes, fsm.MessageLockLost) {
		then(codes)
		return
	}
	held, resp, ok := c.heldSession(r, body)
	switch {
	case ok:
		go func() {
			defer c.recovered(ctx)
			codes, _ := sessionCodes(ctx, held, codes)
			then(codes)
		}()
	case resp.Condition == wire.ConditionSessionLockLost:
		then(lostCodes(codes))
	default: // the request names no session
		then(codes)
	}
}
