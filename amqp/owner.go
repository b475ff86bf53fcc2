package amqp

import (
	"context"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/fsm"
)

// owner is a connection as the packages below this one see it.
type owner conn

// Lock locks the mutex of the connection.
func (o *owner) Lock() { o.mu.Lock() }

// Unlock unlocks it, and makes the calls that Later collected.
func (o *owner) Unlock() { (*conn)(o).unlock() }

// Later makes a call to the broker at the next Unlock. mu is held.
func (o *owner) Later(call func()) { o.brokerCalls = append(o.brokerCalls, call) }

// Recovered handles a panic, see conn.recovered.
func (o *owner) Recovered(ctx context.Context) {
	if p := recover(); p != nil {
		(*conn)(o).panicked(ctx, p)
	}
}

// Committed counts what a transaction has settled. mu is held.
func (o *owner) Committed(work *fsm.Transaction) { o.stats.CountCommitted(work) }

// CountSettled counts the messages that the broker has settled.
func (o *owner) CountSettled(settlements []fsm.Settlement, codes []fsm.Code) {
	o.mu.Lock()
	defer o.Unlock()
	o.stats.CountSettled(settlements, codes)
}

// HoldResponse counts bytes of responses that are being assembled.
func (o *owner) HoldResponse(bytes int) {
	o.mu.Lock()
	defer o.Unlock()
	o.memory.responseBytes += bytes
}

// ShortOfMemory reports whether the connection is to hold no more. mu is held.
func (o *owner) ShortOfMemory() bool { return (*conn)(o).memory.shortOfMemory() }

// MemoryRefusal returns the reason why no messages are taken because memory is short.
func (o *owner) MemoryRefusal() refusal.Cause {
	c := (*conn)(o)
	if !c.memory.shortOfMemory() {
		return refusal.Cause{}
	}
	return c.refuseForMemory()
}

// BusyReason adds to a server-busy refusal why the member accepts no messages.
func (o *owner) BusyReason(code fsm.Code, cause refusal.Cause) refusal.Cause {
	return (*conn)(o).withBusyReason(code, cause)
}

// URLOf returns the address of an entity as the service writes it in texts for the client.
func (o *owner) URLOf(path string) string { return (*conn)(o).urlOf(path) }

// CountRefused counts a token that was refused.
func (o *owner) CountRefused() { o.totals.Logins.Add(1) }

// Closing reports whether the connection is closing. mu is held.
func (o *owner) Closing() bool { return o.phase >= phaseClosing }

// Authenticated records that the connection is authenticated. From now on, the memory that the connection holds counts
// for a key, or a subject, of its namespace. mu is held.
func (o *owner) Authenticated(key string) {
	if o.openWork != nil {
		o.openWork(key)
	}
	o.memory.account.Assign(budget.Owner{Namespace: uint32(o.credentials.Namespace()), Key: key})
	if o.onAuthenticated != nil {
		o.onAuthenticated()
	}
}

// GrantsChanged resets the timer. mu is held.
func (o *owner) GrantsChanged() { (*conn)(o).resetTimer() }

// RightsLost detaches the links that no grant covers any longer, including those whose attach is not complete. mu is
// held.
func (o *owner) RightsLost(ctx context.Context, now time.Time, lost login.Lost) {
	for _, s := range o.sessions {
		for _, e := range s.links {
			l := e.base()
			if path, ok, _ := l.permitted(now); !ok {
				l.detach(ctx, e, lost.Refusal(path, l.right))
			}
		}
	}
}

// HeldSession finds the session of an entity that a link of the connection holds: that of the link of a name, or the
// session of a name if it is named; nil if there is none. A session that is lost is found by its link only.
func (o *owner) HeldSession(at fsm.EntityID, name string, named bool, link string) (management.Session, bool) {
	o.mu.Lock()
	defer o.Unlock()
	var held Session
	for _, s := range o.sessions {
		for _, e := range s.links {
			l, receives := e.(*outgoingLink)
			if !receives || l.messageSession == nil || l.state != attached || l.entity.ID != at || named && l.messageSession.Name() != name {
				continue
			}
			if l.name == link {
				return l.messageSession, l.sessionLost
			}
			if named && !l.sessionLost && (held == nil || l.messageSession.Until() > held.Until()) { // of two, one was taken over
				held = l.messageSession
			}
		}
	}
	if held == nil {
		return nil, false
	}
	return held, false
}

// auditEntity records a change of the entities, as the administration interfaces do.
// mu is not held.
func (c *conn) auditEntity(ctx context.Context, operation string, entity fsm.EntityKind, path string, err error) {
	event, outcome := auditTemporaryQueue, "ok"
	switch entity {
	case fsm.QueueEntity:
	case fsm.TopicEntity:
		event = auditTemporaryTopic
	case fsm.SubscriptionEntity:
		event = auditSubscription
	}
	if err != nil {
		outcome = err.Error()
	}
	c.mu.Lock()
	kind, who := c.credentials.Who(path)
	c.mu.Unlock()
	c.credentials.Audit(ctx, slog.LevelInfo, event, slog.String("operation", operation), slog.String("name", path),
		slog.String("kind", kind), slog.String("who", who), slog.String("outcome", outcome))
}

// Events of the audit log: entities that were created for a link, or deleted after it.
const (
	auditTemporaryQueue = "temporary_queue"
	auditTemporaryTopic = "temporary_topic"
	auditSubscription   = "subscription"
)
