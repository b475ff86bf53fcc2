package management

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of one request to the management node. A request above a limit is refused or gets a shorter answer.
const (
	PeekMessagesMax  = 250              // messages of one peek
	PeekBytesMax     = 1 << 20          // payloads of one peek
	TokensMax        = 4096             // lock tokens or sequence numbers of one request
	FetchAtOnceMax   = 64               // deferred messages requested from the broker at a time
	PurgeMessagesMax = 4000             // messages of one batch delete: the maximum of the cloud
	FetchBytesMax    = 8 << 20          // payloads of one answer, above which no more are fetched
	rulesAtOnceMin   = 16               // rules requested from the broker at first, when it is not known how long they are
	rulesAtOnceMax   = 100              // rules requested from the broker at a time
	rulesPageBytes   = 1 << 20          // of rules requested from the broker at a time; fewer are requested when they are long
	rulesBytesMax    = 4 << 20          // rules of one answer, above which no more are requested
	PeekWithin       = 60 * time.Second // one peek
	RuleWithin       = 60 * time.Second // one operation on rules
)

// Conn is what a Manager needs of its connection. Its methods may be called concurrently.
type Conn interface {
	// Lock locks the mutex that guards the transactions of the connection; Unlock unlocks it.
	sync.Locker
	// Recovered is deferred by goroutines and by functions that the broker calls. It handles a panic.
	Recovered(ctx context.Context)
	// HeldSession finds the session of an entity that a link of the connection holds: that of the link of a name, or
	// the session of a name if it is named; nil if there is none. A session that is lost is found by its link only.
	HeldSession(at fsm.EntityID, name string, named bool, link string) (held Session, lost bool)
	// CountSettled counts the messages that the broker has settled.
	CountSettled(settlements []fsm.Settlement, codes []fsm.Code)
	// HoldResponse counts bytes of responses that are being assembled; negative when they are not held any longer.
	HoldResponse(bytes int)
	// MemoryRefusal returns the reason why no messages are taken because memory is short, and counts the refusal.
	// Its condition is empty otherwise.
	MemoryRefusal() refusal.Cause
	// BusyReason adds to a server-busy refusal why the member accepts no messages.
	BusyReason(code fsm.Code, cause refusal.Cause) refusal.Cause
}

// Broker has the methods of amqp.Broker that a Manager calls; the same rules apply to them.
type Broker interface {
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))
	Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))
	Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
	PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
	Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]string, error)
	Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))
	CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code))
	Reserve(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber))
	Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int))
	PurgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, max int) (int, error)
	AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error
	RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error
	ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error)
	LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken
	ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool)
}

// Session has the methods of amqp.Session that a Manager calls; the same rules apply to them.
type Session interface {
	Name() string
	Renew(done func(fsm.Code, fsm.Instant))
	Held(ctx context.Context) (fsm.Instant, error)
	State(ctx context.Context) ([]byte, error)
	SetState(ctx context.Context, state []byte) error
	StateChange(state []byte) fsm.StateAt
	Fetch(sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
}

// Request is one request to the management node of an entity. It does not change while Manager.Perform handles it.
type Request struct {
	At          fsm.EntityRef   // the entity
	Path        string          // of the node
	URL         string          // of the entity, as the service names it to the client
	NodeURL     string          // of the node, in the same form
	LinkName    string          // the link that the request is associated with; "" for none
	Transaction *transaction.ID // the transaction that it belongs to; nil for none
	Body        any             // of the amqp-value section
	// Respond answers the request. It must be called once, without the mutex of the connection.
	Respond func(context.Context, Response)
}

// Manager performs the requests to the management nodes of a connection. It holds no state of its own.
type Manager struct {
	conn         Conn
	broker       Broker
	transactions *transaction.Set
	log          *slog.Logger
}

// New returns the Manager of a connection. The mutex of conn guards transactions.
func New(conn Conn, broker Broker, transactions *transaction.Set, log *slog.Logger) *Manager {
	return &Manager{conn, broker, transactions, log}
}
