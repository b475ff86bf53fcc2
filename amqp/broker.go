package amqp

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Broker is everything that the gateway asks of the cluster. Every method may be called from
// any goroutine. A done function is called exactly once, from a goroutine of the
// broker's, possibly before the method returns; it must not block and must not call
// blocking methods of the broker. The broker retries when a leader or a connection between
// members fails, until it gives up with ServerBusy or Timeout.
type Broker interface {
	// Namespace returns the namespace that a host name selects: that of open.hostname, of SASL or
	// of TLS, with or without a port. Unknown names and "" select the default namespace. It
	// does not block.
	Namespace(host string) fsm.NamespaceID

	// Resolve finds the entity that path (already reduced: no scheme, host, leading
	// slash or escapes; sub-queue suffix still on) names in a namespace, without regard to
	// case. Errors are fsm.Code: EntityNotFound, ServerBusy while the catalog is not loaded.
	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)

	// Send stores the messages, all or none, and calls done exactly once, possibly before it returns. The caller
	// gives the messages away: neither they nor what they refer to (payloads, properties) may be changed after
	// the call, not even after done, because a request that was given up may still be encoded.
	Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code))

	// Receiver opens the source of one receiving link. It does not block.
	Receiver(at fsm.EntityRef, takes bool) Receiver

	// Settle ends locks. done gets one Code per settlement, in order.
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))

	// Renew extends locks. done gets one Code and one lock end per lock, in order.
	Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))

	// Fetch locks deferred messages by number, or receives and deletes them.
	Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery))

	// Peek reads up to max messages from the number on, in order, without locking,
	// and stops before the payloads exceed maxBytes (the first is always returned).
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Schedule stores messages, some or all of which have an EnqueueAt, all or none. done
	// gets one number per message, in order, 0 for a duplicate that was dropped;
	// CancelScheduled takes these numbers. The messages are given away as with Send.
	Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))

	// CancelScheduled removes 1 to 4096 messages that are not enqueued yet, all of them
	// or none: MessageNotFound when one is not scheduled.
	CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code))

	// Purge removes ready messages that were enqueued before a moment (0: at any time),
	// oldest first, at most max (1 to 4000). done gets how many it removed; fewer than max means
	// that there are no more.
	Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int))

	// PurgeSession is Purge for the messages of one session, whether or not a link holds it, and
	// returns how many it removed. Errors are those of Purge, and NotAllowed where there are no
	// sessions.
	PurgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, max int) (int, error)

	// Transact does all of a transaction, once, or nothing. done gets OK or the reason:
	// MessageLockLost, EntityNotFound, EntityDisabled, QuotaExceeded, MessageTooLarge,
	// NotAllowed (settlements in more than one partition), ServerBusy (nothing was done) or
	// Timeout (all or nothing was done).
	Transact(tx fsm.Transaction, done func(fsm.Code))

	// AcceptSession locks a session for one receiving link: the one named, or for nil the
	// free one with the oldest message, and waits up to wait for one. done gets the
	// session; or Timeout when the time is over or cancel was called, SessionCannotBeLocked,
	// EntityNotFound, EntityDisabled, NotAllowed (no sessions there) or ServerBusy. A session
	// that is granted after cancel is released by the broker.
	AcceptSession(at fsm.EntityRef, name *string, takes bool, wait time.Duration, done func(fsm.Code, Session)) (cancel func())

	// PeekSession is Peek for the messages of one session.
	PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Sessions lists the names of up to max sessions, without the first skip ones: those that have
	// messages or a state, or, with a moment, those whose state was set after it.
	Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]string, error)

	// AddRule adds a rule to the subscription at a place. Errors wrap RuleExists,
	// EntityNotFound, QuotaExceeded, InvalidArgument, ServerBusy or Timeout.
	AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error

	// RemoveRule removes a rule by name: RuleNotFound, EntityNotFound, ServerBusy, Timeout.
	RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error

	// ListRules returns up to max rules of a subscription in the order of their creation, without
	// the first skip ones.
	ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error)

	// LockToken turns a LockID into the token that clients see. ParseLockToken turns it back; ok is
	// false when the token was not made for that entity.
	LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken
	ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool)
}

// Receiver is the source of one receiving link. At most one Lock is outstanding.
type Receiver interface {
	// Lock asks for up to max messages of together at most maxBytes (but at least one
	// message) and waits up to wait for the first. done gets the locked messages, or none
	// when the time is over or Cancel was called; a Code other than OK or Timeout means that
	// the entity cannot be received from any more (EntityNotFound, EntityDisabled) or not
	// now (ServerBusy).
	Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery))
	// Cancel ends the waiting of an outstanding Lock soon; done is still called, and
	// may still bring messages.
	Cancel()
	// Close cancels and frees the receiver. Locks already granted stay as they are.
	Close()
}

// Session is a session of messages held by one receiving link, and its Receiver: Lock returns its
// messages in order, and SessionLockLost when the session is no longer held. The methods of
// Broker settle and renew its messages.
type Session interface {
	Receiver
	// Release is Close, but releases the session first, with the messages that are locked under it, and
	// counts no failed delivery. done is called when another receiver can have the session, or when the
	// broker has given up. To be called once; Close alone does the same and reports nothing.
	Release(done func())
	// Name returns the session's name.
	Name() string
	// Until returns the end of the lock as it is known here; it rises with Renew.
	Until() fsm.Instant
	// Renew extends the lock of the session and of all messages locked under it.
	Renew(done func(fsm.Code, fsm.Instant))
	// State returns the state that is stored with the session, nil for none (which an empty state is
	// not). Errors are fsm.Code: SessionLockLost, ServerBusy, Timeout.
	State(ctx context.Context) ([]byte, error)
	// SetState stores a state with the session; nil removes it.
	SetState(ctx context.Context, state []byte) error
	// Fetch is that of Broker for messages of this session.
	Fetch(sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
}

// Grant is what a credential allows on a connection, and where.
type Grant struct {
	Rights fsm.Rights
	// Namespace and Path say where: the entity at Path, as fsm.PathKey writes it, and the paths
	// below it (fsm.PathAbove). "" is the whole namespace.
	Namespace fsm.NamespaceID
	Path      string
	// OfEntity says that it rests on an access rule of one entity: then Path is never "".
	OfEntity bool
	Expires  time.Time // zero: never
	// Name is the access rule or the subject of the credential: its connections share one part of
	// the memory budget.
	Name string
	// Valid reports whether the credential is still valid: its rule may have been removed, or its key
	// regenerated. nil: always. Cheap; may be called from any goroutine.
	Valid func() bool
}

// Authorizer checks credentials. Its methods may be called from any goroutine and do not
// block for long. Errors say, in words fit for the client, what is wrong; they wrap
// fsm.Unauthorized, fsm.InvalidArgument (cannot be read), or fsm.ServerBusy when the
// address of the client has failed too often recently.
type Authorizer interface {
	// Token checks a put-token: kind is "servicebus.windows.net:sastoken" or "jwt",
	// audience the URI that the client names. The gateway does not parse it: the Grant says where it is valid.
	Token(ctx context.Context, from Client, kind, token, audience string) (Grant, error)
	// Password checks SASL PLAIN: name of an access rule and key.
	Password(ctx context.Context, from Client, user, password string) (Grant, error)
	// Certificate checks SASL EXTERNAL: the certificate of the client, which TLS
	// verified against the authorities for clients.
	Certificate(ctx context.Context, from Client, certificate *x509.Certificate) (Grant, error)
}

// Client is the client that a credential comes from.
type Client struct {
	Namespace fsm.NamespaceID
	Peer      net.Addr
}
