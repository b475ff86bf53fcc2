package management

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

const (
	sessionsAtOnce   = 1000             // sessions of one answer
	sessionWithin    = 60 * time.Second // one operation on a session
	farFutureMillis  = 253402300799999  // the last millisecond of the year 9999, the largest time of .NET; from there on it means "whenever"
	sessionBytesMax  = 1 << 20          // names of sessions in one answer
	bytesPerNameMost = 4 * message.NameCharactersMax
)

// heldSession finds the session of a request among those that links of the connection hold: by the name of the
// session, which the Go client omits when it requests deferred messages, and by the name of the link. ok is
// false if there is none: then resp is the answer.
// A link whose session is lost is found by its own name only, and its requests are refused.
func (m *Manager) heldSession(r *Request, body wire.Map) (held Session, resp Response, ok bool) {
	held, lost, resp := m.findSession(r, body)
	if resp.Condition == "" && lost {
		resp = ResponseFor(fsm.SessionLockLost)
	}
	return held, resp, resp.Condition == ""
}

// findSession is heldSession, but also returns a session that is lost.
func (m *Manager) findSession(r *Request, body wire.Map) (held Session, lost bool, resp Response) {
	name, named := body.Get("session-id").(string)
	if !named && r.LinkName == "" {
		return nil, false, badRequest("The request needs a session-id. Give the id of the session.")
	}
	if held, lost = m.conn.HeldSession(r.At.ID, name, named, r.LinkName); held == nil {
		return nil, false, ResponseFor(fsm.SessionLockLost)
	}
	return held, lost, Response{}
}

// requestedSession returns the name of the session of a request, whether or not a link holds it; false if the
// request concerns the whole entity.
func (m *Manager) requestedSession(r *Request, body wire.Map) (name string, one bool) {
	if at := &r.At; !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
		return "", false
	}
	if name, one = body.Get("session-id").(string); one {
		return name, true
	}
	if held, _, _ := m.findSession(r, body); held != nil { // the Go client sends only the name of its link
		return held.Name(), true
	}
	return "", false
}

// renewSessionLock extends the lock of a session.
func (m *Manager) renewSessionLock(ctx context.Context, r *Request, body wire.Map) {
	held, resp, ok := m.heldSession(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	held.Renew(func(code fsm.Code, until fsm.Instant) {
		resp := ResponseFor(code)
		if code == fsm.OK {
			resp.Body = wire.Map{{Key: "expiration", Value: time.UnixMilli(int64(until))}}
		}
		r.Respond(ctx, resp)
	})
}

// getSessionState answers with the state that is stored with a session; the answer contains the key even if
// there is no state.
func (m *Manager) getSessionState(ctx context.Context, r *Request, body wire.Map) {
	held, resp, ok := m.heldSession(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	state, err := held.State(ctx)
	if err != nil {
		r.Respond(ctx, ResponseFor(refusal.CodeOf(err)))
		return
	}
	var value any
	if len(state) > 0 { // an empty state reads back as none
		value = state
	}
	r.Respond(ctx, success(wire.Map{{Key: "session-state", Value: value}}))
}

func (m *Manager) setSessionState(ctx context.Context, r *Request, body wire.Map) {
	held, state, resp, ok := m.stateToSet(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	if err := held.SetState(ctx, state); err != nil {
		r.Respond(ctx, ResponseFor(refusal.CodeOf(err)))
		return
	}
	r.Respond(ctx, success(nil))
}

// stateToSet returns the session of a request and the state in it, nil for none. ok is false if the connection does not hold the
// session or the state has another type: then resp is the answer.
func (m *Manager) stateToSet(r *Request, body wire.Map) (held Session, state []byte, resp Response, ok bool) {
	if held, resp, ok = m.heldSession(r, body); !ok {
		return nil, nil, resp, false
	}
	switch v := body.Get("session-state").(type) {
	case nil:
	case []byte:
		state = append(state, v...) // nil without bytes, as the Go client clears a state
	default:
		return nil, nil, badRequest("session-state is neither binary nor null. Give it as one of them."), false
	}
	return held, state, Response{}, true
}

// listSessions answers with the names of sessions: those with messages or state, or those whose state was set
// after a moment.
func (m *Manager) listSessions(ctx context.Context, r *Request, body wire.Map) {
	skip, _ := message.IntegerOf(body.Get("skip"))
	top, ok := message.IntegerOf(body.Get("top"))
	if !ok || top < 1 || skip < 0 || skip > math.MaxInt32 {
		r.Respond(ctx, badRequest("The request needs a positive top, and a skip that is not negative."))
		return
	}
	updated := body.Get("last-updated-time")
	after, given := message.InstantOf(updated)
	if _, isDescribed := updated.(wire.Described); isDescribed && !given {
		r.Respond(ctx, badRequest("last-updated-time is not a time. Give it as a timestamp, or as a com.microsoft:datetime-offset."))
		return
	}
	if !given || after <= 0 || after >= farFutureMillis {
		after = 0
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	names, err := m.broker.Sessions(ctx, r.At, after, int(skip), int(min(top, sessionsAtOnce, sessionBytesMax/bytesPerNameMost)))
	switch {
	case err != nil:
		r.Respond(ctx, ResponseFor(refusal.CodeOf(err)))
	case len(names) == 0:
		r.Respond(ctx, noContent("No sessions.", nil))
	default:
		r.Respond(ctx, success(wire.Map{
			{Key: "skip", Value: int32(int(skip) + len(names))},
			{Key: "sessions-ids", Value: wire.Array{Values: names}},
		}))
	}
}

// withSessionCodes passes then the codes of a request that settled or renewed messages by their tokens, as
// settlement.SessionCodes does for a link. It may call then later, from another goroutine. The mutex is not held.
func (m *Manager) withSessionCodes(ctx context.Context, r *Request, body wire.Map, codes []fsm.Code, then func([]fsm.Code)) {
	at := &r.At
	if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue || !slices.Contains(codes, fsm.MessageLockLost) {
		then(codes)
		return
	}
	held, resp, ok := m.heldSession(r, body)
	switch {
	case ok:
		go func() {
			defer m.conn.Recovered(ctx)
			codes, _ := settlement.SessionCodes(ctx, held, codes)
			then(codes)
		}()
	case resp.Condition == wire.ConditionSessionLockLost:
		then(settlement.LostCodes(codes))
	default: // the request names no session
		then(codes)
	}
}
