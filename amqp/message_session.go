package amqp

import (
	"context"
	"crypto/rand"
	"math"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Message sessions are unrelated to AMQP sessions: a receiving link requests one by a filter of its source,
// and holds it until the link ends.

// Names for message sessions in an attach (docs/service-bus-protocol.md#link-properties,
// #accepting-a-session).
const (
	sessionFilterKey      = wire.Symbol("com.microsoft:session-filter")
	nonExclusiveFilterKey = "com.microsoft:non-exclusive-session-filter" // the client appends ":list"
	lockedUntilUTCKey     = wire.Symbol("com.microsoft:locked-until-utc")
	openTimeoutKey        = wire.Symbol("com.microsoft:timeout")
)

const (
	acceptWithin    = 60 * time.Second // wait for a session, if the client sends no time
	acceptWithinMax = 10 * time.Minute
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
			if ms, ok := message.IntegerOf(pair.Value); ok && ms >= 0 {
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

// keepsSession reports whether the session of a link must stay locked when the link ends: transactions settle messages of
// it. mu is held.
func (l *outgoingLink) keepsSession() bool {
	return l.messageSession != nil && l.enlisted > 0 && !l.sessionLost && !l.receiverClosed
}

// keepSession keeps the session of a link that has ended until the transactions have ended, for as long as a transaction
// may be open at most. The lock is not renewed. mu is held.
func (l *outgoingLink) keepSession() {
	if l.lock == lockWaiting {
		l.cancel()
	}
	if l.sessionKept {
		return
	}
	l.sessionKept = true
	l.lossTimer = time.AfterFunc(transaction.Within, func() {
		c := l.session.conn
		c.mu.Lock()
		defer c.unlock()
		if !l.receiverClosed {
			l.receiverClosed = true
			l.releaseSession()
		}
	})
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
