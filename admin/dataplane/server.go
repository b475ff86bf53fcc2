package dataplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
)

// Broker is the interface of the server to the cluster: the methods of the same names of the gateway's Broker.
type Broker interface {
	Namespace(ctx context.Context, host string) (fsm.NamespaceID, error)
	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)
	Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code))
	Receiver(at fsm.EntityRef, receiveAndDelete bool) Receiver
	Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))
	Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))
	Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error)
	LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken
	ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool)
}

// Receiver is the source of one receive, as that of the gateway.
type Receiver interface {
	Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery))
	Cancel()
	Close()
}

// Authority verifies credentials, as that of package admin.
type Authority interface {
	TokenFor(ctx context.Context, from auth.Client, kind, token string, targets ...auth.Target) (auth.Grant, error)
}

// Config of a server. All fields but Accounts and QuotaReason are required.
type Config struct {
	Broker    Broker
	Authority Authority
	Logger    *slog.Logger
	Accounts  *account.Accounts // of the owners of requests; nil: requests are limited all together only
	// QuotaReason returns why no more is stored for a namespace and what to do, "" if it is not known; nil: answers do not say
	// it.
	QuotaReason func(fsm.NamespaceID) string
	// Throttled counts a request for an entity that is refused with ServerBusy; nil: not counted.
	Throttled func(*fsm.Entity)
}

// Caller is what package admin knows about the client of a request.
type Caller struct {
	Trusted bool // needs no credential
	Secure  bool // has sent the request over TLS
	Client  auth.Client
	// Kind and Token are the credential; Token is "" without one.
	Kind, Token string
	// Spelling returns the name of a header as the client wrote it, for its canonical form.
	Spelling func(canonical string) string
	// SignedIn is called when the credential has been accepted, or none is needed. It may be nil.
	SignedIn func()
}

// Server serves requests about messages.
type Server struct {
	config          Config
	requests, polls chan struct{} // one token per request in flight
}

// refusal is an answer other than success that is not that of a Code.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }
