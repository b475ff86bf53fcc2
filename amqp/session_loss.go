package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A session lock ends at the leader of its partition, which tells only receivers that wait for messages. A link
// without credit learns it here: when the last known end of its lock has passed, it asks the leader whether
// the lock was extended, for example by the renewal of a message. A link whose lock has ended gets no more messages and
// is detached: at once if the client has no message of it in hand, otherwise when the client asks for more
// (docs/service-bus-protocol.md#holding-a-session). .NET's session processor never recovers from a detach while its
// handler works.

const (
	// From the end of a lock to the first question, or to the detach. The Python client may wait for messages for as long
	// as the lock lasts: its wait, which began a little later, ends before the link does.
	sessionLossGrace = 500 * time.Millisecond
	sessionLossEvery = 250 * time.Millisecond // shortest interval between two questions
	heldWithin       = 60 * time.Second       // one question
	lostLinkMax      = 10 * time.Minute       // how long a link whose session is lost may stay attached
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
	ctx, cancel := context.WithTimeout(context.Background(), heldWithin)
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
	case l.state != attached || l.sessionLost || c.phase >= phaseClosing:
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

// loseSessionSoon ends the deliveries of a link whose session lock has ended just now, as its receiver says. mu is held.
func (l *outgoingLink) loseSessionSoon() {
	c := l.session.conn
	if !l.holdsNothing() {
		l.loseSession(context.Background())
		return
	}
	time.AfterFunc(sessionLossGrace, func() {
		c.mu.Lock()
		defer c.unlock()
		if c.phase < phaseClosing {
			l.loseSession(context.Background())
		}
	})
}

// loseSession ends the deliveries of a link whose session lock has ended, and detaches it if the client has no delivery
// in hand. Otherwise the link stays until the client's next flow after it has settled all of them, because the client
// works on them: settlements are refused, unless another receiver has taken the session over and the message is still
// locked. mu is held.
func (l *outgoingLink) loseSession(ctx context.Context) {
	if l.state != attached || l.sessionLost {
		return
	}
	l.sessionLost = true
	s := l.session
	if l.partial.rest != nil {
		delete(s.unsettled, l.partial.id)
		s.countUnsettled()
		l.release([]fsm.Delivery{{Lock: l.partial.lock}})
		l.partial.aborted = true
	}
	if l.holdsNothing() {
		l.detachLost(ctx)
		return
	}
	l.dropQueued()
	l.flush() // aborts the partial delivery
	if l.credit.drain {
		l.endDrain()
	}
	l.lossTimer = time.AfterFunc(lostLinkMax, func() { //nolint:contextcheck // the timer outlives the call
		c := s.conn
		c.mu.Lock()
		defer c.unlock()
		if c.phase < phaseClosing {
			l.detachLost(context.Background())
		}
	})
}

// holdsNothing reports whether the client has settled all deliveries of the link, and has got the answers. mu is held.
func (l *outgoingLink) holdsNothing() bool { return l.settling == 0 && !l.hasUnsettled() }

// hasUnsettled reports whether the client has not settled all deliveries of the link. mu is held.
func (l *outgoingLink) hasUnsettled() bool {
	for _, u := range l.session.unsettled {
		if u.link == l {
			return true
		}
	}
	return false
}

// flowAfterLoss handles a flow for a link whose session is lost: there is no credit any more, and a client that has
// settled everything learns of the loss. mu is held.
func (l *outgoingLink) flowAfterLoss(f *wire.Flow) {
	switch {
	case l.state != attached:
	case l.holdsNothing():
		l.detachLost(context.Background())
	case f.Drain:
		l.credit.flow(f.DeliveryCount, 0, true)
		l.endDrain()
	case f.Echo:
		l.emitFlow(false)
	}
	l.lossFlow = l.lossFlow || !l.hasUnsettled()
}

// settledAfterLoss detaches a link whose session is lost if the answers to settlements were all that held it. mu is held.
func (l *outgoingLink) settledAfterLoss(ctx context.Context) {
	if l.sessionLost && l.lossFlow && l.holdsNothing() {
		l.detachLost(ctx)
	}
}

// detachLost detaches a link whose session is lost. Its unsettled deliveries stay known until the client has detached
// too, so that settlements that crossed the detach get the right answer. mu is held.
func (l *outgoingLink) detachLost(ctx context.Context) {
	l.detachWithError(ctx, l, refusal.ReplyOf(fsm.SessionLockLost).Cause)
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
