package amqp

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Broker is all that the gateway asks of the broker. Every method may be called from
// any goroutine. A done function is called exactly once, from a goroutine of the
// broker's, possibly before the method returns; it must not block and must not call back into the
// broker's blocking methods. Failures of leaders and connections between members
// stay inside: the broker retries and the caller only sees time pass, until the
// broker gives up with ServerBusy or Timeout.
type Broker interface {
	// Namespace is the namespace that a host name selects: that of open.hostname, of SASL or
	// of TLS, a port included or not. Unknown ones and "" are in the default namespace. It
	// does not block.
	Namespace(host string) fsm.NamespaceID

	// Resolve finds the entity that path (already reduced: no scheme, host, leading
	// slash or escapes; sub-queue suffix still on) names in a namespace, without regard to
	// case. Errors are fsm.Code: EntityNotFound, ServerBusy while the catalog is not loaded.
	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)

	// Send stores the messages, all or none. The payloads must not be changed afterwards
	// (they may still be read after done).
	Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code))

	// Receiver opens a receiver for one receiving link. It does not block.
	Receiver(at fsm.EntityRef, takes bool) Receiver

	// Settle ends locks. done gets one Code per settlement, in order.
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))

	// Renew extends locks. done gets one Code and one lock end per lock, in order.
	Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))

	// Fetch locks deferred messages by number, or takes them for good.
	Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery))

	// Peek reads up to max messages from the number on, in order, without locking,
	// and stops before the payloads exceed maxBytes (the first is always given).
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Schedule stores messages, of which some or all carry an EnqueueAt, all or none. done
	// gets one number per message, in order, 0 for a duplicate that was dropped;
	// CancelScheduled takes these numbers. The rules of Send hold.
	Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))

	// CancelScheduled removes messages whose time has not come (1 to 4096), all of them
	// or none: MessageNotFound when one is not waiting to be enqueued.
	CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code))

	// Purge removes ready messages that were enqueued before a moment (0: whenever),
	// oldest first, at most max (1 to 4000). done gets how many went; fewer than max says
	// that there were no more.
	Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int))

	// PurgeSession is Purge for the messages of one session, whether or not a link holds it, and
	// returns how many it removed. Errors are as those of Purge, and NotAllowed where there are no
	// sessions.
	PurgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, max int) (int, error)

	// Transact does all of a transaction, once, or nothing. done gets OK, or why it cannot be
	// done: MessageLockLost, EntityNotFound, EntityDisabled, QuotaExceeded, MessageTooLarge,
	// NotAllowed (settlements in more than one partition), ServerBusy (nothing was done) or
	// Timeout (all or nothing was done).
	Transact(tx fsm.Transaction, done func(fsm.Code))

	// AcceptSession locks a session for one receiving link: the one named, or for nil the
	// one with the oldest message that nobody holds, waiting up to wait for one. done gets the
	// session; or Timeout when the time ran out or cancel was called, SessionCannotBeLocked,
	// EntityNotFound, EntityDisabled, NotAllowed (no sessions there) or ServerBusy. A session
	// that is granted after cancel is released by the broker.
	AcceptSession(at fsm.EntityRef, name *string, takes bool, wait time.Duration, done func(fsm.Code, Session)) (cancel func())

	// PeekSession is Peek for the messages of one session.
	PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Sessions lists the names of up to max sessions, without the first skip: those that have
	// messages or a state, or, with a moment, those whose state was set after it.
	Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]string, error)

	// AddRule adds a rule to the subscription at a place. Errors wrap RuleExists,
	// EntityNotFound, QuotaExceeded, InvalidArgument, ServerBusy or Timeout.
	AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error

	// RemoveRule removes a rule by name: RuleNotFound, EntityNotFound, ServerBusy, Timeout.
	RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error

	// ListRules gives up to max rules of a subscription in the order of their making, without
	// the first skip.
	ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error)

	// Seal turns a LockID into the token that clients see; Unseal turns it back and
	// says false when the token was not made for that place.
	LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken
	ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool)
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
	// Close cancels and frees the receiver. Locks already granted stay as they are.
	Close()
}

// Session is a session held by one receiving link, as its Receiver: Lock gives its
// messages in order, and SessionLockLost when it is not held any more. The methods of
// Broker settle and renew its messages.
type Session interface {
	Receiver
	// Release is Close that gives the session back first, with what is locked under it, and
	// counts no attempt. done is called when somebody else can have the session, or when the
	// broker has given up. Once; Close alone does the same and tells nobody.
	Release(done func())
	// Name is the session's name.
	Name() string
	// Until is the end of the lock as it is known here; it rises with Renew.
	Until() fsm.Instant
	// Renew extends the lock of the session and of all messages locked under it.
	Renew(done func(fsm.Code, fsm.Instant))
	// State is what was kept with the session, nil for nothing (which an empty state is
	// not). Errors are fsm.Code: SessionLockLost, ServerBusy, Timeout.
	State(ctx context.Context) ([]byte, error)
	// SetState keeps a state with the session; nil takes it away.
	SetState(ctx context.Context, state []byte) error
	// Fetch is that of Broker for messages of this session.
	Fetch(sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery))
}

// Grant is what a credential allows on a connection, and where.
type Grant struct {
	Rights fsm.Rights
	// Namespace and Path are what was authorized: the place at Path, as fsm.PathKey has it, and what
	// is below it (fsm.PathAbove). "" is the whole namespace.
	Namespace fsm.NamespaceID
	Path      string
	// OfEntity says that it rests on a rule of one entity: then Path is never "".
	OfEntity bool
	Expires  time.Time // zero: never
	// Name is the rule or the subject that the credential is of: what its connections hold is
	// counted together.
	Name string
	// Still says whether the credential counts yet: its rule may have gone, or its key been
	// regenerated. nil: for good. Cheap; may be called from any goroutine.
	Valid func() bool
}

// Authorizer checks credentials. Its methods may be called from any goroutine and do not
// block for long. Errors say, in words fit for the client, what is wrong; they wrap
// fsm.Unauthorized, fsm.InvalidArgument (cannot be read), or fsm.ServerBusy when peer, the
// address that the client comes from, has failed too often of late.
type Authorizer interface {
	// Token checks a put-token: kind is "servicebus.windows.net:sastoken" or "jwt",
	// audience the URI that the client names. The gateway does not read it: what it means is in the
	// Grant.
	Token(ctx context.Context, from Client, kind, token, audience string) (Grant, error)
	// Password checks SASL PLAIN: rule name and key.
	Password(ctx context.Context, from Client, user, password string) (Grant, error)
	// Certificate checks SASL EXTERNAL: the certificate that the client proved to have, which
	// was verified against the authorities for clients.
	Certificate(ctx context.Context, from Client, certificate *x509.Certificate) (Grant, error)
}

// Client is who asks to be let in.
type Client struct {
	Namespace fsm.NamespaceID
	Peer      net.Addr
}
