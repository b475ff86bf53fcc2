package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/admin/dataplane"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Limits of the listener. Together they bound the memory that clients can occupy: 512 connections with 16 KiB of headers
// and 128 KiB of body each, 128 requests in flight.
const (
	connectionsMax   = 512
	requestsMax      = 128        // in flight; further ones are refused with ServerBusy
	bodyBytesMax     = 128 * 1024 // the largest rule is 64 KiB without the JSON
	headerWaitMax    = 5 * time.Second
	requestReadMax   = 10 * time.Second
	requestTimeMax   = 30 * time.Second // in which Control must answer
	responseWriteMax = 45 * time.Second // requestTimeMax and the time to write
	answerWriteMax   = 10 * time.Second // in which the client must have read an answer, and a second more for answerBytesPerSecondMin
	idleMax          = 2 * time.Minute

	answerShareWithin = 5 * time.Second // for the share of an answer that is still to be built, before the request is refused
)

// reservedPart is the part of the bytes that all owners share which an answer takes at most before it is built.
const reservedPart = 8

// answerBytesPerSecondMin is how fast clients must read long answers.
const answerBytesPerSecondMin = 256 << 10

// Work of requests in units, as of package work: about 10 us of a processor. Requests of operators through the control socket, of
// callers that need no key, and for the health of the member are not limited.
const (
	workPerSecond                = 5000 // of one client with a key
	workBurst                    = 50_000
	publicWorkPerSecond          = 100 // of one address without a key, for /metrics
	publicWorkBurst              = 5000
	unauthenticatedWorkPerSecond = 2000 // of one address, for requests that no key pays for
	unauthenticatedWorkBurst     = 10_000
	unauthenticatedCost          = 10     // a request that no key pays for
	workPerSecondPerProcessor    = 10_000 // of all requests
	workBurstsPerSecond          = 10

	readCost        = 5
	writeCost       = 25   // an entry in the log of the catalog
	entriesPerUnit  = 4    // entities, rules or sessions that a list reads
	skippedPerUnit  = 1000 // rules or sessions before a page
	skippedMax      = 1 << 21
	testedPerUnit   = 2       // rules that a rule test compiles and evaluates
	bodyUnitBytes   = 4 << 10 // of the body of a request
	messagesPerUnit = 16      // messages that a request looks at or deletes
	peekWork        = 20      // a request to the leaders of an entity
	changeWork      = inspect.ChangeMessagesMax / messagesPerUnit
	sendAgainWork   = 25  // a dead letter that is sent again, in a transaction
	answerUnitBytes = 512 // of an answer
)

// Authority verifies credentials. [auth.Keyring] implements it. Errors wrap fsm.Unauthorized, InvalidArgument or
// ServerBusy.
type Authority interface {
	TokenFor(ctx context.Context, from auth.Client, kind, token string, targets ...auth.Target) (auth.Grant, error)
}

// Config of a server. Listener, Control, Authority, Ready and Logger are required.
type Config struct {
	Listener  net.Listener // closed by the server
	Local     Local        // the zero value: no local listener
	Control   Control
	Authority Authority
	Ready     func() bool // reports whether clients should be sent to this member; for /readyz and /health
	// TrackChanges returns a context for Control, and a function that reports whether Control may have changed
	// something with it: after that, ServerBusy is answered as Timeout, so that no client repeats what was done.
	// nil: Control answers ServerBusy only before its first change.
	TrackChanges func(context.Context) (tracked context.Context, changed func() bool)
	// NamespaceUsage returns what a namespace stores, as it is known, and the number of its queues and topics; nil: answers do
	// not have it.
	NamespaceUsage func(fsm.NamespaceID) (stored fsm.Usage, queuesAndTopics int)
	// NamespaceShares returns what a namespace holds of the memory and the disk of this member, with its shares; nil: answers do
	// not have them.
	NamespaceShares func(fsm.NamespaceID) []topology.Holding
	// QuotaReason returns why no more is stored for a namespace and what to do, "" if it is not known; nil: answers do not say
	// it.
	QuotaReason func(fsm.NamespaceID) string
	// TrustLoopback accepts unsigned requests from this machine as requests of an operator. Every relay of
	// connections on this machine is then trusted too.
	TrustLoopback bool
	// TrustAll accepts unsigned requests from everywhere as requests of an operator, for development.
	TrustAll bool
	// RequireTLS is shown to clients: the AMQP addresses of members accept TLS only.
	RequireTLS bool
	// ReadinessChecks are the parts of Ready, and further facts for /readyz?verbose; /livez fails while one of
	// LivenessChecks is not OK. Neither function may block. nil: no checks.
	// In connection strings ClientPort replaces ControlPort: every port speaks AMQP, but applications are given the one
	// that is meant for them. "": the port of the request stays.
	ControlPort, ClientPort string

	// Examine returns the conditions that only this member can see, of its disk, its certificates and its process; nil: there are
	// none. It must not block.
	Examine func() condition.Findings

	ReadinessChecks, LivenessChecks func() []api.Check
	Logger                          *slog.Logger
	// Accounts are those of the owners of requests, which share what the member can give at a time; nil: requests are limited all
	// together only.
	Accounts *account.Accounts
	// Slow logs requests that took SlowAfter or longer, except backups; nil or 0: none.
	Slow      *slog.Logger
	SlowAfter time.Duration
	// CA is a certificate in PEM that GET /ca.pem answers to everybody; nil: there is none.
	CA []byte
	// Console is whether the web console is served; the zero value: it is not.
	Console       console.Mode
	ConsoleSignIn console.SignIn
	// Messages serves the requests about messages that its package claims; nil: there are none.
	Messages *dataplane.Server
	// Finder finds messages for the routes about single messages; nil: these answer NotImplemented.
	Finder *inspect.Finder
	// Operations are further operations of operators, by method and path as in "POST /reset"; the result, if not nil, is
	// answered as JSON. They take precedence over all other routes.
	Operations map[string]func(*http.Request) (any, error)
	Audit      *slog.Logger // changes with their callers, and missing rights; nil: Logger
	// Metrics serves /metrics to operators and to callers that need no key; nil: /metrics does not exist.
	// PublicMetrics serves it to other callers without a credential; nil: they are refused.
	Metrics, PublicMetrics http.Handler
}

// Local is the access of operators on this machine, without a key.
type Local struct {
	Listener net.Listener // reachable only by operators, such as a Unix socket; closed by the server
	// Endpoint is the host:port in the connection strings that answers contain, because clients cannot use the
	// address of Listener; "": answers contain no connection strings.
	Endpoint string
}

// Validate returns an error when a required field is missing.
func (c Config) Validate() error {
	if c.Listener == nil || c.Control == nil || c.Authority == nil || c.Ready == nil || c.Logger == nil {
		return errors.New("admin: Listener, Control, Authority, Ready and Logger are needed")
	}
	return nil
}

// core is what the APIs share: the cluster, who may do what, limits, the audit log, and answers. It is safe for concurrent use.
type core struct {
	config   Config
	requests chan struct{} // one token per request in flight
	// localRequests counts the requests through Local, so that other requests cannot occupy the slots of the
	// operator.
	localRequests chan struct{}
	work          *work.Shared
	streams       *streams
	// onClose registers a function to be called when closing begins; stop unregisters it.
	onClose func(call func()) (stop func() bool)
}
