package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of requests at the same time. Further ones are refused with 503. Within them one owner holds at most as many as are
// free (package account).
const (
	sendsMax = account.HTTPMessagesMax // that send or settle
	pollsMax = account.HTTPPollsMax    // that receive, and may wait

	brokerTimeMax = 30 * time.Second // in which the broker must answer
)

// New returns a server.
func New(c Config) *Server {
	return &Server{config: c, requests: make(chan struct{}, sendsMax), polls: make(chan struct{}, pollsMax)}
}

// Serve answers a request that Claims accepts.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, from Caller) {
	t, _ := parse(r)
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
	if from.SignedIn != nil {
		from.SignedIn()
	}
	if grant.OwnNamespace {
		namespace = grant.Namespace
	}
	var of *account.Account // nil for a caller that needs no key
	if from.Token != "" {
		of = s.config.Accounts.Open(account.Owner{Namespace: uint32(namespace), Key: grant.Name})
	}
	held, err := s.place(t.do.waits, of)
	if err != nil {
		return err
	}
	defer held.end(w)
	ctx, cancel := context.WithTimeout(r.Context(), brokerTimeMax)
	defer cancel()
	at, err := s.config.Broker.Resolve(ctx, namespace, t.entity)
	sends := t.do.Right == operation.SendEntity
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return &refusal{http.StatusGone, fmt.Sprintf("the entity %q does not exist", t.entity)}
	case err != nil:
		return err
	case sends && (at.Kind == fsm.SubscriptionEntity || at.Sub != 0):
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q receives no messages from clients: send to a queue or topic", t.entity)}
	case !sends && at.Kind == fsm.TopicEntity:
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q is a topic: receive from a subscription", t.entity)}
	case !sends && fsm.IsTemporaryQueue(fsm.EntityPath(t.entity)):
		return &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("%q is a temporary queue: only the connection that created it receives from it", t.entity)}
	case !t.do.waits:
		r = r.WithContext(ctx)
	}
	err = t.do.serve(s, &request{w, r, at, t, from, held})
	if errors.Is(err, fsm.ServerBusy) && s.config.Throttled != nil {
		s.config.Throttled(&at.Entity)
	}
	return s.explainFull(namespace, err)
}

// explainFull adds to the refusal of a full namespace which limit that is.
func (s *Server) explainFull(namespace fsm.NamespaceID, err error) error {
	if errors.Is(err, fsm.NamespaceFull) && s.config.QuotaReason != nil {
		if reason := s.config.QuotaReason(namespace); reason != "" {
			return fmt.Errorf("%w: %s", fsm.NamespaceFull, reason)
		}
	}
	return err
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
	if t.do.Right == operation.SendEntity {
		need, word = fsm.Send, "Send"
	}
	if grant.Rights&need == 0 {
		return auth.Grant{}, fmt.Errorf("%w: the key does not have the right %q", fsm.Unauthorized, word)
	}
	return grant, nil
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
	_, _ = w.Write(atom.ErrorDocument(status, atom.ErrorDetail(text, tracking)).Bytes())
}

// statusOf is the only table from codes to statuses of this interface. They are those of the service's pages: 403, not 413,
// for a message that is too large.
func statusOf(code fsm.Code) int {
	switch code { //nolint:exhaustive // the others are internal errors
	case fsm.InvalidArgument:
		return http.StatusBadRequest
	case fsm.Unauthorized:
		return http.StatusUnauthorized
	case fsm.QuotaExceeded, fsm.NamespaceFull, fsm.MessageTooLarge, fsm.EntityDisabled:
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
