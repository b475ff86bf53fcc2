package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/fsm"
)

// Broker is the interface of the gateway to the cluster. Every method may be called from any goroutine. The
// broker calls a done function exactly once, from one of its goroutines, possibly before the method returns;
// done must not block and must not call blocking methods of the broker. The broker retries when a leader or a
// connection between members fails, until it gives up with ServerBusy or Timeout.
type Broker interface {
	// Namespace returns the namespace that a host name selects: that of open.hostname, of SASL or of TLS, with
	// or without a port. Unknown names and "" select the default namespace. The error is ServerBusy, for a name that the
	// member cannot look up now; it may take seconds.
	Namespace(ctx context.Context, host string) (fsm.NamespaceID, error)

	// Resolve finds the entity that path names in a namespace, ignoring case. path is already reduced: it has
	// no scheme, host, leading slash or escapes, but keeps a sub-queue suffix. Errors are fsm.Code:
	// EntityNotFound, or ServerBusy while the catalog is not loaded.
	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)

	// CreateEntity creates a queue, a topic, or a subscription that is named by its path and has a rule, or with nil the
	// default; a MaxMessageBytes of 0 means the default of the namespace. When it returns, the subscription gets what is
	// sent to its topic. Errors wrap EntityExists, EntityNotFound (no such topic), InvalidArgument, QuotaExceeded,
	// ServerBusy or Timeout.
	CreateEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error)

	// DeleteEntity deletes an entity with its messages, and a topic with its subscriptions. Errors wrap EntityNotFound,
	// ServerBusy or Timeout.
	DeleteEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string) error

	// Changes returns a channel that is closed when entities may have been created or deleted.
	Changes() <-chan struct{}

	// Deleted returns those of the entities that have been deleted, as far as this member knows; another entity may have
	// the name of one by now. It does not block.
	Deleted(ids []fsm.EntityID) []fsm.EntityID

	// FindSubscriptions returns the paths of the subscriptions of all topics whose names begin and end with given texts,
	// regardless of case, as of the call or later. Errors wrap ServerBusy or Timeout.
	FindSubscriptions(ctx context.Context, namespace fsm.NamespaceID, prefix, suffix string) ([]string, error)

	// Send stores the messages, all or none, and calls done exactly once, possibly before it returns. The
	// caller passes ownership of the messages: neither they nor the payloads and properties that they refer to
	// may be changed after the call, not even after done, because a request that was given up may still be
	// encoded.
	Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code))

	// Receiver opens the source of one receiving link, under locks or with receive-and-delete. It does not block.
	Receiver(at fsm.EntityRef, receiveAndDelete bool) Receiver

	// Settle ends locks. done receives one Code per settlement, in order.
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))

	// Renew extends locks. done receives one Code and one lock end per lock, in order.
	Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))

	// Fetch locks deferred messages by number, or receives and deletes them.
	Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))

	// FetchReady locks ready messages as a peek has shown them, or receives and deletes them, and leaves out those that
	// are not ready any more, or were locked since.
	FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))

	// Peek reads up to max messages from the given number on, in order, without locking them, and stops before
	// the payloads exceed maxBytes (the first is always returned).
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Schedule stores messages, of which some or all have an EnqueueAt, all or none. done receives one number
	// per message, in order, for a scheduled duplicate that was dropped one that no message has; CancelScheduled takes these numbers. As with
	// Send, the caller passes ownership of the messages.
	Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))

	// CancelScheduled removes 1 to 4096 messages that are not enqueued yet, all of them or none:
	// MessageNotFound if one is not scheduled.
	CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code))

	// Purge removes ready messages that were enqueued before a moment (0: at any time), oldest first, at most
	// max (1 to 4000). done receives the number of removed messages; a number below max means that no more
	// remain.
	Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int))

	// PurgeSession is Purge for the messages of one session, whether or not a link holds it, and returns the
	// number of removed messages. Errors are those of Purge, and NotAllowed if the entity has no sessions.
	PurgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, max int) (int, error)

	// Check asks whether operations of a transaction at an entity can succeed: settlements under some locks, or,
	// without locks, sends. done receives one Code per lock, or one: OK, MessageLockLost, SessionLockLost or
	// EntityNotFound; OK too if nobody answers soon, because Transact decides.
	Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code))

	// Reserve reserves one sequence number for each message that a transaction will schedule, in order; numbers that
	// are not used leave a gap. done receives EntityNotFound, EntityDisabled, NotAllowed, InvalidArgument,
	// ServerBusy or Timeout instead.
	Reserve(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))

	// Transact performs a whole transaction exactly once, or nothing. done receives OK or the reason:
	// MessageLockLost, EntityNotFound, EntityDisabled, QuotaExceeded, MessageTooLarge, NotAllowed (settlements
	// in more than one partition), ServerBusy (nothing was done) or Timeout (all or nothing was done).
	Transact(tx fsm.Transaction, done func(fsm.Code))

	// AcceptSession locks a session for one receiving link: the one that wants names, or else the free one with the
	// oldest message, and waits up to wait for one. The entity of wants is ignored. done receives the session, or
	// Timeout when the time is over or cancel was called, SessionCannotBeLocked, SessionLockLost (there is no lock to
	// take over), EntityNotFound, EntityDisabled, NotAllowed (the entity has no sessions) or ServerBusy. The broker
	// releases a session that is granted after cancel.
	AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, Session)) (cancel func())

	// PeekSession is Peek for the messages of one session.
	PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)

	// Sessions lists the names of up to max sessions after the first skip ones: those that have messages or a
	// state, or, if a moment is given, those whose state was set after it.
	Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]string, error)

	// AddRule adds a rule to the subscription at. Errors wrap RuleExists, EntityNotFound, QuotaExceeded,
	// InvalidArgument, ServerBusy or Timeout.
	AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error

	// RemoveRule removes a rule by name: RuleNotFound, EntityNotFound, ServerBusy, Timeout.
	RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error

	// ListRules returns up to max rules of a subscription by name, case-insensitively, after the first skip
	// ones.
	ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error)

	// LockToken converts a LockID to the token that clients see. ParseLockToken converts it back; ok is false
	// if the token was not issued for that entity.
	LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken
	ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool)
}

// Receiver is the source of one receiving link. At most one Lock is outstanding.
type Receiver interface {
	// Lock requests up to max messages of together at most maxBytes (but at least one message) and waits up to
	// wait for the first. done receives the locked messages, or none when the time is over or Cancel was
	// called. A Code other than OK or Timeout means that the entity cannot be received from any longer
	// (EntityNotFound, EntityDisabled) or at the moment (ServerBusy).
	Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery))
	// Cancel ends the wait of an outstanding Lock soon; done is still called, and may still receive messages.
	Cancel()
	// Close cancels and frees the receiver. Locks already granted remain.
	Close()
}

// Session is a message session held by one receiving link, and the Receiver of that link: Lock returns the
// messages of the session in order, and SessionLockLost when the link no longer holds the session. The methods
// of Broker settle and renew these messages.
type Session interface {
	Receiver
	// Release is Close, but first releases the session and the messages that are locked under it, without
	// counting failed deliveries. done is called when another receiver can lock the session, or when the
	// broker has given up. Release must be called only once; Close alone has the same effect and reports
	// nothing.
	Release(done func())
	// Name returns the session's name.
	Name() string
	// Until returns the last known end of the lock; Renew extends it.
	Until() fsm.Instant
	// Renew extends the lock of the session and of all messages locked under it.
	Renew(done func(fsm.Code, fsm.Instant))
	// Held asks the leader for the end of the lock, also after Until; 0 if it does not tell. Errors are
	// fsm.Code: SessionLockLost, EntityNotFound, ServerBusy, Timeout.
	Held(ctx context.Context) (fsm.Instant, error)
	// State returns the state that is stored with the session, nil for none (an empty state is not nil).
	// Errors are fsm.Code: SessionLockLost, ServerBusy, Timeout.
	State(ctx context.Context) ([]byte, error)
	// SetState stores a state with the session; nil removes the state.
	SetState(ctx context.Context, state []byte) error
	// StateChange returns what a transaction does to set the state as SetState does.
	StateChange(state []byte) fsm.StateAt
	// Fetch is Broker.Fetch for messages of this session.
	Fetch(sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
}

type (
	// Authorizer checks credentials; see login.Authorizer.
	Authorizer = login.Authorizer
	// Grant describes the rights that a credential gives; see login.Grant.
	Grant = login.Grant
	// Client is the client that presents a credential.
	Client = login.Client
)
