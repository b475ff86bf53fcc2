package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of requests at the same time. Further ones are refused with 503.
const (
	sendsMax = 64  // that send or settle
	pollsMax = 256 // that receive, and may wait

	brokerTimeMax = 30 * time.Second // in which the broker must answer
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

// Config of a server. All fields are required.
type Config struct {
	Broker    Broker
	Authority Authority
	Logger    *slog.Logger
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
}

// Server serves requests about messages.
type Server struct {
	config          Config
	requests, polls chan struct{} // one token per request in flight
}

// New returns a server.
func New(c Config) *Server {
	return &Server{config: c, requests: make(chan struct{}, sendsMax), polls: make(chan struct{}, pollsMax)}
}

// operation is what a request does.
type operation uint8

const (
	send operation = iota + 1
	peekLock
	receiveAndDelete
	unlock
	complete
	renew
)

// target is the entity and message of a request.
type target struct {
	do     operation
	entity string // its path, as the client wrote it
	id     string // message id or sequence number
	token  fsm.LockToken
}

// Claims reports whether a request is one of this package.
func Claims(r *http.Request) bool {
	_, ok := parse(r)
	return ok
}

// parse reads method and path. Words have any case.
func parse(r *http.Request) (target, bool) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return target{}, false
		}
	}
	is := func(fromEnd int, word string) bool {
		return len(parts) > fromEnd && strings.EqualFold(parts[len(parts)-fromEnd], word)
	}
	var t target
	rest := 0
	switch {
	case r.Method == http.MethodPost && is(1, "messages"):
		t.do, rest = send, 1
	case is(1, "head") && is(2, "messages"):
		t.do, rest = map[string]operation{http.MethodPost: peekLock, http.MethodDelete: receiveAndDelete}[r.Method], 2
	case is(3, "messages"):
		var ok bool
		if t.token, ok = parseToken(parts[len(parts)-1]); !ok {
			return target{}, false // an entity may have such a name
		}
		t.do, rest = map[string]operation{http.MethodPost: renew, http.MethodPut: unlock, http.MethodDelete: complete}[r.Method], 3
		t.id = parts[len(parts)-2]
	}
	// The control API has paths below v1 that end with the names of entities.
	if t.do == 0 || parts[0] == "v1" {
		return target{}, false
	}
	t.entity = strings.Join(parts[:len(parts)-rest], "/")
	return t, true
}

// refusal is an answer other than success that is not that of a Code.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// Serve answers a request that Claims accepts.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, from Caller) {
	t, _ := parse(r)
	slots := s.requests
	if t.do == peekLock || t.do == receiveAndDelete {
		slots = s.polls
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		s.refuse(w, r, fmt.Errorf("%w: %d requests are in flight: try again", fsm.ServerBusy, cap(slots)))
		return
	}
	if err := s.serve(w, r, t, from); err != nil {
		s.refuse(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, t target, from Caller) error {
	namespace, err := s.config.Broker.Namespace(r.Context(), r.Host)
	if err != nil {
		return err
	}
	from.Client.Namespace = namespace
	grant, err := s.authorize(r, t, from)
	if err != nil {
		return err
	}
	if grant.OwnNamespace {
		namespace = grant.Namespace
	}
	ctx, cancel := context.WithTimeout(r.Context(), brokerTimeMax)
	defer cancel()
	at, err := s.config.Broker.Resolve(ctx, namespace, t.entity)
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return &refusal{http.StatusGone, fmt.Sprintf("the entity %q does not exist", t.entity)}
	case err != nil:
		return err
	case t.do == send && (at.Kind == fsm.SubscriptionEntity || at.Sub != 0):
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q receives no messages from clients: send to a queue or topic", t.entity)}
	case t.do != send && at.Kind == fsm.TopicEntity:
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q is a topic: receive from a subscription", t.entity)}
	case t.do != send && fsm.IsTemporaryQueue(fsm.EntityPath(t.entity)):
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q is a temporary queue: only the connection that created it receives from it", t.entity)}
	case t.do == send:
		return s.send(ctx, w, r, at, from)
	case t.do == peekLock || t.do == receiveAndDelete:
		return s.receive(w, r, t, at, from)
	}
	return s.settle(ctx, w, t, at)
}

// authorize checks that the caller may send to the entity, or listen to it; the grant is empty for a caller that needs none.
// Clients sign the entity, what is above it, or the URL up to any part of it.
func (s *Server) authorize(r *http.Request, t target, from Caller) (auth.Grant, error) {
	if from.Token == "" {
		if from.Trusted {
			return auth.Grant{}, nil
		}
		return auth.Grant{}, fmt.Errorf("%w: MissingToken: sign with a key (header Authorization: SharedAccessSignature)", fsm.Unauthorized)
	}
	path, err := auth.TargetPath(r.URL.Path)
	if err != nil {
		return auth.Grant{}, err
	}
	name := fsm.PathKey(t.entity)
	ofEntity := auth.TargetOf(name)
	grant, err := s.config.Authority.TokenFor(r.Context(), from.Client, from.Kind, from.Token, ofEntity, auth.Target{Path: path, Entity: ofEntity.Entity})
	if err != nil {
		if errors.Is(err, fsm.InvalidArgument) { // clients check their credentials only after a 401
			return auth.Grant{}, fmt.Errorf("%w: %s", fsm.Unauthorized, err.Error())
		}
		return auth.Grant{}, err
	}
	need, word := fsm.Listen, "Listen"
	if t.do == send {
		need, word = fsm.Send, "Send"
	}
	if grant.Rights&need == 0 {
		return auth.Grant{}, fmt.Errorf("%w: the key does not have the right %q", fsm.Unauthorized, word)
	}
	return grant, nil
}

// statusOf is the only table from codes to statuses of this interface. They are those of the service's pages: 403, not 413,
// for a message that is too large.
func statusOf(code fsm.Code) int {
	switch code { //nolint:exhaustive // the others are internal errors
	case fsm.InvalidArgument:
		return http.StatusBadRequest
	case fsm.Unauthorized:
		return http.StatusUnauthorized
	case fsm.QuotaExceeded, fsm.MessageTooLarge, fsm.EntityDisabled:
		return http.StatusForbidden
	case fsm.NotAllowed:
		return http.StatusMethodNotAllowed
	case fsm.EntityNotFound:
		return http.StatusGone
	case fsm.MessageLockLost, fsm.MessageNotFound, fsm.SessionLockLost:
		return http.StatusNotFound
	case fsm.ServerBusy:
		return http.StatusServiceUnavailable
	case fsm.Timeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// refuse answers with the Error element of the service, and logs the error with the same tracking id.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refused *refusal
	var ofMessage *message.Error
	var code fsm.Code
	status, text := http.StatusInternalServerError, err.Error()
	switch {
	case errors.As(err, &refused):
		status = refused.status
	case errors.As(err, &ofMessage):
		status, text = statusOfMessage(ofMessage), ofMessage.Text
	case errors.As(err, &code):
		status = statusOf(code)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		status = http.StatusGatewayTimeout
	}
	if errors.As(err, new(*auth.TooManyFailuresError)) {
		status = http.StatusTooManyRequests
	}
	level := slog.LevelDebug
	if status == http.StatusInternalServerError {
		level, text = slog.LevelError, "internal error: search the log of this member for the tracking id"
	}
	tracking := atom.NewTrackingID()
	s.config.Logger.Log(r.Context(), level, "message request refused", "tracking_id", tracking, "method", r.Method, "path", r.URL.Path, "status", status, "error", err.Error())
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "SharedAccessSignature")
	}
	w.Header().Set("Content-Type", atom.ErrorType)
	w.WriteHeader(status)
	_, _ = w.Write(atom.ErrorDocument(status, atom.ErrorDetail(text, tracking)).Bytes()) //nolint:gosec // Document escapes every text
}
