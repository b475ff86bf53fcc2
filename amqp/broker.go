package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Broker is all that the gateway asks of the house. Every method may be called from
// any goroutine. A done function is called exactly once, from a goroutine of the
// broker's, possibly before the method returns; it must not block and must not call back into the
// broker's blocking methods. Failures of leaders and connections between members
// stay inside: the broker retries and the caller only sees time pass, until the
// broker gives up with ServerBusy or Timeout.
type Broker interface {
	// Resolve finds the entity that path (already reduced: no scheme, host, leading
	// slash or escapes; sub-queue suffix still on) names, without regard to case.
	// Errors are fsm.Code: EntityNotFound, ServerBusy while the catalog is not loaded.
	Resolve(ctx context.Context, path string) (fsm.Place, error)

	// Send stores the messages, all or none. The payloads must not be changed afterwards
	// (they may still be read after done).
	Send(at fsm.Place, messages []fsm.Message, done func(fsm.Code))

	// Receiver opens a lane for one receiving link. It does not block.
	Receiver(at fsm.Place, takes bool) Receiver

	// Settle ends locks. done gets one Code per settlement, in order.
	Settle(at fsm.Place, settlements []fsm.Settlement, done func([]fsm.Code))

	// Renew extends locks. done gets one Code and one lock end per lock, in order.
	Renew(at fsm.Place, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))

	// Fetch locks deferred messages by number, or takes them for good.
	Fetch(at fsm.Place, sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery))

	// Peek reads up to max messages from the number on, in order, without locking,
	// and stops before the payloads exceed maxBytes (the first is always given).
	Peek(ctx context.Context, at fsm.Place, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Schedule stores messages, of which some or all carry an EnqueueAt, all or none. done
	// gets one number per message, in order, 0 for a duplicate that was dropped;
	// CancelScheduled takes these numbers. The rules of Send hold.
	Schedule(at fsm.Place, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))

	// CancelScheduled removes messages whose time has not come (1 to 4096), all of them
	// or none: MessageNotFound when one is not waiting to be enqueued.
	CancelScheduled(at fsm.Place, sequences []fsm.SequenceNumber, done func(fsm.Code))

	// Purge removes ready messages that were enqueued before a moment (0: whenever),
	// oldest first, at most max (1 to 4000). done gets how many went; fewer than max says
	// that there were no more.
	Purge(at fsm.Place, before fsm.Instant, max int, done func(fsm.Code, int))

	// Seal turns a LockID into the token that clients see; Unseal turns it back and
	// says false when the token was not made for that place.
	Seal(at fsm.Place, id fsm.LockID) fsm.LockToken
	Unseal(at fsm.Place, token fsm.LockToken) (fsm.LockID, bool)
}

// Receiver is the source of one receiving link. At most one Lock is outstanding.
type Receiver interface {
	// Lock asks for up to max messages of together at most maxBytes (one message at
	// least) and waits up to wait for the first. done gets what was locked, or nothing
	// when the time ran out or Cancel came; a Code other than OK or Timeout means that
	// the entity cannot be received from any more (EntityNotFound, EntityDisabled) or not
	// now (ServerBusy).
	Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery))
	// Cancel ends the waiting of an outstanding Lock soon; done is still called, and
	// may still bring messages.
	Cancel()
	// Close cancels and frees the lane. Locks already granted stay as they are.
	Close()
}

// Grant is what a credential allows on a connection.
type Grant struct {
	Rights  fsm.Rights
	Expires time.Time // zero: never
}

// Authorizer checks credentials. Both methods may be called from any goroutine and
// do not block for long. Errors say, in words fit for the client, what is wrong.
type Authorizer interface {
	// Token checks a put-token: kind is "servicebus.windows.net:sastoken" or "jwt",
	// audience the URI that the client names.
	Token(ctx context.Context, kind, token, audience string) (Grant, error)
	// Password checks SASL PLAIN: rule name and key.
	Password(ctx context.Context, user, password string) (Grant, error)
}
