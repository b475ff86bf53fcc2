package amqp

import (
	"context"
	"crypto/rand"
	"math"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Message sessions are unrelated to AMQP sessions: a receiving link requests one by a filter of its source,
// and holds it until the link ends.

// Names for message sessions in an attach (docs/service-bus-protocol.md#link-properties,
// #accepting-a-session).
const (
	sessionFilterKey  = wire.Symbol("com.microsoft:session-filter")
	lockedUntilUTCKey = wire.Symbol("com.microsoft:locked-until-utc")
	openTimeoutKey    = wire.Symbol("com.microsoft:timeout")
)

const (
	acceptWithin     = 60 * time.Second // wait for a session, if the client sends no time
	acceptWithinMax  = 10 * time.Minute
	sessionsAtOnce   = 1000             // sessions of one answer
	sessionWithin    = 60 * time.Second // one operation on a session
	farFutureMillis  = 253402300800000  // the year 10000: a later moment means "whenever"
	sessionBytesMax  = 1 << 20          // names of sessions in one answer
	bytesPerNameMost = 4 * message.NameCharactersMax
)

// Descriptors of the filter for a session that is not held exclusively (docs/service-bus-protocol.md#non-exclusive-sessions).
const (
	nonExclusiveDescriptor        = wire.Symbol("com.microsoft:non-exclusive-session-filter:list")
	nonExclusiveCode       uint64 = 0x000000137000000E
)

// sessionFilter is the session that a link requests. The reply has the same form: the Go client sends a
// described value and the others a plain one, and each refuses the other form.
type sessionFilter struct {
	wants      fsm.AcceptSession
	key        any
	descriptor any // nil: plain
}

// sessionFilterOf reads the filter of a source, nil if it requests no session.
func sessionFilterOf(filter wire.Map) (found *sessionFilter, cause refusal.Cause) {
	for _, pair := range filter {
		var f *sessionFilter
		switch key, _ := wire.AsText(pair.Key); {
		case strings.HasPrefix(key, nonExclusiveFilterKey):
			f, cause = nonExclusiveFilterOf(pair)
		case key == string(sessionFilterKey):
			f, cause = exclusiveFilterOf(pair)
		default:
			continue
		}
		switch {
		case cause.Condition != "":
			return nil, cause
		case found != nil:
			return nil, refusal.New(wire.ConditionInvalidField, "The receiver has two session filters. Leave one out.")
		}
		found = f
	}
	return found, refusal.Cause{}
}

// exclusiveFilterOf reads the filter for a session that is held exclusively.
func exclusiveFilterOf(pair wire.Pair) (*sessionFilter, refusal.Cause) {
	f := &sessionFilter{key: sessionFilterKey}
	value := pair.Value
	if d, ok := value.(wire.Described); ok {
		switch d.Descriptor.(type) {
		case uint64, wire.Symbol:
			f.descriptor = d.Descriptor
		default:
			return nil, refusal.New(wire.ConditionInvalidField, "The session filter has a descriptor that is neither a number nor a symbol. Correct it.")
		}
		value = d.Value
	}
	return f, f.setName(value)
}

// nonExclusiveFilterOf reads the filter for a session that is not held exclusively: a list of the session id, or null
// for the next one, and of the token of the lock that is taken over, or null.
func nonExclusiveFilterOf(pair wire.Pair) (*sessionFilter, refusal.Cause) {
	d, _ := pair.Value.(wire.Described)
	fields, ok := d.Value.([]any)
	if !ok || d.Descriptor != nonExclusiveCode && d.Descriptor != nonExclusiveDescriptor {
		return nil, refusal.New(wire.ConditionInvalidField, "The filter for a non-exclusive session is not a described list. Correct it.")
	}
	name, token := fieldOf(fields, 0), fieldOf(fields, 1)
	f := &sessionFilter{key: pair.Key, descriptor: d.Descriptor}
	if cause := f.setName(name); cause.Condition != "" {
		return nil, cause
	}
	switch v := token.(type) {
	case nil:
		_, _ = rand.Read(f.wants.Token[:])                                                          // it never fails
		f.wants.Token[6], f.wants.Token[8] = f.wants.Token[6]&0x0f|0x40, f.wants.Token[8]&0x3f|0x80 // a random uuid: never zero
	case wire.UUID:
		f.wants.Token, f.wants.TakeOver = fsm.SessionToken(v), true
	default:
		return nil, refusal.New(wire.ConditionInvalidField, "The lock token of the session is neither a uuid nor null. Correct it.")
	}
	if f.wants.TakeOver && (!f.wants.Named || f.wants.Token == fsm.SessionToken{}) {
		return nil, refusal.New(wire.ConditionInvalidField, "A session lock is taken over by the id of the session and the token of the lock. Give both.")
	}
	return f, refusal.Cause{}
}

// fieldOf returns a field of a list, nil for one that is left out at its end.
func fieldOf(fields []any, i int) any {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// setName sets the session that is wanted; nil is the next one available.
func (f *sessionFilter) setName(value any) refusal.Cause {
	switch v := value.(type) {
	case nil:
	case string:
		if err := message.CheckName("session id", []byte(v)); err != nil {
			return refusal.New(wire.ConditionInvalidField, "The session id has more than %d characters. Use a shorter one.", message.NameCharactersMax)
		}
		f.wants.Named, f.wants.ID = true, v
	default:
		return refusal.New(wire.ConditionInvalidField, "The session filter is neither a string nor null. Correct it.")
	}
	return refusal.Cause{}
}

// reply returns the filter that names the accepted session, and the token of its lock if it is not exclusive.
func (f *sessionFilter) reply(name string) wire.Map {
	var value any = name
	if f.wants.Token != (fsm.SessionToken{}) {
		value = []any{name, wire.UUID(f.wants.Token)}
	}
	if f.descriptor != nil {
		value = wire.Described{Descriptor: f.descriptor, Value: value}
	}
	return wire.Map{{Key: f.key, Value: value}}
}

// openTimeout returns how long a client wants to wait for its link to open.
func openTimeout(properties wire.Map) time.Duration {
	for _, pair := range properties {
		if pair.Key == openTimeoutKey || pair.Key == string(openTimeoutKey) {
			if ms, ok := integerOf(pair.Value); ok && ms >= 0 {
				return min(time.Duration(min(ms, math.MaxInt32))*time.Millisecond, acceptWithinMax)
			}
		}
	}
	return acceptWithin
}

// sessionMismatch returns the reason why a receiving link cannot be attached because of sessions.
func (l *outgoingLink) sessionMismatch(at *fsm.EntityRef) refusal.Cause {
	has := at.Settings.RequiresSession && at.Sub == fsm.MainQueue
	switch {
	case has && l.wantedSession == nil:
		return refusal.New(wire.ConditionNotAllowed, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. Accept a session of '%s'.", at.Name)
	case !has && l.wantedSession != nil:
		return refusal.New(wire.ConditionNotAllowed, "It is not possible for an entity that does not require sessions to create a sessionful message receiver. Use a receiver without session.")
	}
	return refusal.Cause{}
}

// acceptSession requests the session of a link whose entity is known. The attach is answered only after the
// session is granted. mu is held.
func (l *outgoingLink) acceptSession(place fsm.EntityRef) {
	c := l.session.conn
	l.entity = place
	if l.acceptBusyUntil.IsZero() {
		l.acceptBusyUntil = time.Now().Add(min(attachBusyMax, l.acceptTimeout))
	}
	c.brokerCalls = append(c.brokerCalls, func() {
		cancel := c.config.Broker.AcceptSession(place, l.wantedSession.wants, l.receiveAndDelete, l.acceptTimeout, l.sessionAccepted)
		c.mu.Lock()
		over := l.state != attaching
		l.cancelAccept = cancel
		c.unlock()
		if over {
			cancel()
		}
	})
}

// sessionAccepted is the done function of AcceptSession.
func (l *outgoingLink) sessionAccepted(code fsm.Code, held Session) {
	c := l.session.conn
	ctx := context.Background()
	defer c.recovered(ctx)
	c.mu.Lock()
	defer c.unlock()
	if l.state != attaching || c.phase >= phaseClosing {
		if held != nil {
			c.brokerCalls = append(c.brokerCalls, held.Close)
		}
		return
	}
	if code == fsm.ServerBusy && time.Now().Before(l.acceptBusyUntil) { // see resolvePath
		time.AfterFunc(attachPauseMin, l.repeatAccept)
		return
	}
	if code != fsm.OK {
		cause := refusal.ReplyOf(code).WithEntity(c.urlOf(l.path)).Cause
		if code == fsm.Timeout {
			cause = refusal.Later(wire.ConditionTimeout, "There is no session to accept that has messages and is not held by somebody else. Accept again.")
		}
		l.refuseAttaching(ctx, cause)
		return
	}
	l.messageSession, l.receiver = held, held
	l.reply.Source.Filter = l.wantedSession.reply(held.Name())
	l.reply.Properties = append(l.reply.Properties, wire.Pair{Key: lockedUntilUTCKey, Value: message.Ticks(held.Until())})
	l.completeAttach(ctx, l, l.entity)
	l.watchSession()
}

// repeatAccept requests the session again, after the broker was busy.
func (l *outgoingLink) repeatAccept() {
	c := l.session.conn
	c.mu.Lock()
	defer c.unlock()
	if l.state == attaching && c.phase < phaseClosing {
		l.acceptSession(l.entity)
	}
}

// heldSession finds the session of a request among those that links of the connection hold: by the name of the
// session, which the Go client omits when it requests deferred messages, and by the name of the link. ok is
// false if there is none: then resp is the answer.
//
// A link whose session is lost is found by its own name only, and its requests are refused.
func (c *conn) heldSession(r *request, body wire.Map) (held Session, resp response, ok bool) {
	held, lost, resp := c.findSession(r, body)
	if resp.Condition == "" && lost {
		resp = responseFor(fsm.SessionLockLost)
	}
	return held, resp, resp.Condition == ""
}

// findSession is heldSession, but also returns a session that is lost.
func (c *conn) findSession(r *request, body wire.Map) (held Session, lost bool, resp response) {
	name, named := body.Get("session-id").(string)
	link := r.argument("associated-link-name")
	if !named && link == "" {
		return nil, false, badRequest("The request needs a session-id. Give the id of the session.")
	}
	c.mu.Lock()
	defer c.unlock()
	for _, s := range c.sessions {
		for _, e := range s.links {
			l, receives := e.(*outgoingLink)
			if !receives || l.messageSession == nil || l.state != attached || l.entity.ID != r.at.ID || named && l.messageSession.Name() != name {
				continue
			}
			if l.name == link {
				return l.messageSession, l.sessionLost, response{}
			}
			if named && !l.sessionLost && (held == nil || l.messageSession.Until() > held.Until()) { // of two, one was taken over
				held = l.messageSession
			}
		}
	}
	if held == nil {
		return nil, false, responseFor(fsm.SessionLockLost)
	}
	return held, false, response{}
}

// requestedSession returns the name of the session of a request, whether or not a link holds it; false if the
// request concerns the whole entity.
func (c *conn) requestedSession(r *request, body wire.Map) (name string, one bool) {
	if at := &r.at; !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
		return "", false
	}
	if name, one = body.Get("session-id").(string); one {
		return name, true
	}
	if held, _, _ := c.findSession(r, body); held != nil { // the Go client sends only the name of its link
		return held.Name(), true
	}
	return "", false
}

// releaseSession releases the session of a link. mu is held.
func (l *outgoingLink) releaseSession() {
	c := l.session.conn
	c.brokerCalls = append(c.brokerCalls, func() { l.messageSession.Release(l.sessionReleased) })
}

// sessionReleased answers the client's detach, if the detach ended the link: a client that has closed a
// receiver may tell others that the session is free.
func (l *outgoingLink) sessionReleased() {
	c := l.session.conn
	defer c.recovered(context.Background())
	c.mu.Lock()
	defer c.unlock()
	l.sessionFree = true
	if l.pendingDetach == nil {
		return
	}
	s := l.session
	if c.phase < phaseClosing && (!s.ended || s.endsLater) {
		c.emit(s.channel, l.pendingDetach)
	}
	l.pendingDetach = nil
	if s.releasing--; s.releasing == 0 {
		s.finishEnd()
	}
}

// renewSessionLock extends the lock of a session.
func (c *conn) renewSessionLock(ctx context.Context, r *request, body wire.Map) {
	held, resp, ok := c.heldSession(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	held.Renew(func(code fsm.Code, until fsm.Instant) {
		resp := responseFor(code)
		if code == fsm.OK {
			resp.body = wire.Map{{Key: "expiration", Value: time.UnixMilli(int64(until))}}
		}
		c.respond(ctx, r, resp)
	})
}

// getSessionState answers with the state that is stored with a session; the answer contains the key even if
// there is no state.
func (c *conn) getSessionState(ctx context.Context, r *request, body wire.Map) {
	defer c.recovered(ctx)
	held, resp, ok := c.heldSession(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	state, err := held.State(ctx)
	if err != nil {
		c.respond(ctx, r, responseFor(refusal.CodeOf(err)))
		return
	}
	var value any
	if len(state) > 0 { // an empty state reads back as none
		value = state
	}
	c.respond(ctx, r, success(wire.Map{{Key: "session-state", Value: value}}))
}

func (c *conn) setSessionState(ctx context.Context, r *request, body wire.Map) {
	defer c.recovered(ctx)
	held, state, resp, ok := c.stateToSet(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	if err := held.SetState(ctx, state); err != nil {
		c.respond(ctx, r, responseFor(refusal.CodeOf(err)))
		return
	}
	c.respond(ctx, r, success(nil))
}

// stateToSet returns the session of a request and the state in it, nil for none. ok is false if the connection does not hold the
// session or the state has another type: then resp is the answer.
func (c *conn) stateToSet(r *request, body wire.Map) (held Session, state []byte, resp response, ok bool) {
	if held, resp, ok = c.heldSession(r, body); !ok {
		return nil, nil, resp, false
	}
	switch v := body.Get("session-state").(type) {
	case nil:
	case []byte:
		state = append(state, v...) // nil without bytes, as the Go client clears a state
	default:
		return nil, nil, badRequest("session-state is neither binary nor null. Give it as one of them."), false
	}
	return held, state, response{}, true
}

// listSessions answers with the names of sessions: those with messages or state, or those whose state was set
// after a moment.
func (c *conn) listSessions(ctx context.Context, r *request, body wire.Map) {
	defer c.recovered(ctx)
	skip, _ := integerOf(body.Get("skip"))
	top, ok := integerOf(body.Get("top"))
	if !ok || top < 1 || skip < 0 || skip > math.MaxInt32 {
		c.respond(ctx, r, badRequest("The request needs a positive top, and a skip that is not negative."))
		return
	}
	updated := body.Get("last-updated-time")
	after, given := message.InstantOf(updated)
	if _, isDescribed := updated.(wire.Described); isDescribed && !given {
		c.respond(ctx, r, badRequest("last-updated-time is not a time. Give it as a timestamp, or as a com.microsoft:datetime-offset."))
		return
	}
	if !given || after <= 0 || after >= farFutureMillis {
		after = 0
	}
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	names, err := c.config.Broker.Sessions(ctx, r.at, after, int(skip), int(min(top, sessionsAtOnce, sessionBytesMax/bytesPerNameMost)))
	switch {
	case err != nil:
		c.respond(ctx, r, responseFor(refusal.CodeOf(err)))
	case len(names) == 0:
		c.respond(ctx, r, noContent("No sessions.", nil))
	default:
		c.respond(ctx, r, success(wire.Map{
			{Key: "skip", Value: int32(int(skip) + len(names))},
			{Key: "sessions-ids", Value: wire.Array{Values: names}},
		}))
	}
}

// applySessions adapts messages to an entity: an entity without sessions stores messages without a session,
// and one that requires sessions refuses messages without one.
func applySessions(at *fsm.EntityRef, messages []fsm.Message) error {
	switch {
	case at.Settings.RequiresSession:
		for i := range messages {
			if !messages[i].HasSession {
				return message.NewError(wire.ConditionNotAllowed, "the SessionId was not set, and entities that have session support enabled can only receive messages that have the SessionId set to a valid value")
			}
		}
	case at.Kind != fsm.TopicEntity:
		for i := range messages {
			m := &messages[i]
			if m.HasSession && len(at.Shards) > 0 {
				m.PartitionKey = m.Session // it still binds the message to a shard
			}
			m.Session, m.HasSession = "", false
		}
	}
	return nil
}
