package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// httpStatus is the HTTP form of a Code.
type httpStatus struct {
	status int
	name   string
}

// statusOf is the only table from codes to HTTP. A code that is not listed is Internal, and a test fails if a
// code is added to fsm and not here. Clients treat 409 and 503 as in the official administration API.
func statusOf(code fsm.Code) httpStatus {
	switch code {
	case fsm.OK:
		return httpStatus{http.StatusOK, "OK"}
	case fsm.EntityNotFound:
		return httpStatus{http.StatusNotFound, "EntityNotFound"}
	case fsm.EntityExists:
		return httpStatus{http.StatusConflict, "EntityExists"}
	case fsm.MessageLockLost:
		return httpStatus{http.StatusGone, "MessageLockLost"}
	case fsm.MessageNotFound:
		return httpStatus{http.StatusNotFound, "MessageNotFound"}
	case fsm.MessageTooLarge:
		return httpStatus{http.StatusRequestEntityTooLarge, "MessageTooLarge"}
	case fsm.QuotaExceeded:
		return httpStatus{http.StatusForbidden, "QuotaExceeded"}
	case fsm.InvalidArgument:
		return httpStatus{http.StatusBadRequest, "InvalidArgument"}
	case fsm.NotAllowed:
		return httpStatus{http.StatusForbidden, "NotAllowed"}
	case fsm.Unauthorized:
		return httpStatus{http.StatusUnauthorized, "Unauthorized"}
	case fsm.ServerBusy:
		return httpStatus{http.StatusServiceUnavailable, "ServerBusy"}
	case fsm.Timeout:
		return httpStatus{http.StatusGatewayTimeout, "Timeout"}
	case fsm.Stale:
		return httpStatus{http.StatusConflict, "Stale"}
	case fsm.Internal:
		return httpStatus{http.StatusInternalServerError, "Internal"}
	case fsm.NotImplemented:
		return httpStatus{http.StatusNotImplemented, "NotImplemented"}
	case fsm.EntityDisabled:
		return httpStatus{http.StatusForbidden, "EntityDisabled"}
	case fsm.RuleNotFound:
		return httpStatus{http.StatusNotFound, "RuleNotFound"}
	case fsm.RuleExists:
		return httpStatus{http.StatusConflict, "RuleExists"}
	case fsm.SessionLockLost:
		return httpStatus{http.StatusGone, "SessionLockLost"}
	case fsm.SessionCannotBeLocked:
		return httpStatus{http.StatusConflict, "SessionCannotBeLocked"}
	case fsm.NamespaceFull:
		return httpStatus{http.StatusForbidden, "NamespaceFull"}
	case fsm.PreconditionFails:
		return httpStatus{http.StatusPreconditionFailed, "PreconditionFails"}
	}
	return httpStatus{http.StatusInternalServerError, "Internal"}
}

// codeOf returns the code in an error. The end of a context is Timeout; an error without a code is Internal.
func codeOf(err error) fsm.Code {
	var code fsm.Code
	switch {
	case errors.As(err, &code):
		return code
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fsm.Timeout
	}
	return fsm.Internal
}

// unknownIfChanged returns the error of a request for its caller and for the audit log: Timeout, the unknown outcome, for
// ServerBusy after a part of the request may have been done.
func unknownIfChanged(r *http.Request, err error) error {
	if codeOf(err) == fsm.ServerBusy && mayHaveChanged(r) {
		return fmt.Errorf("%w: partially applied before the cluster became unavailable: %s", fsm.Timeout, err.Error())
	}
	return err
}

// writeProblem answers with the problem of an error, and logs the error with the same tracking id.
func (s *core) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	err = unknownIfChanged(r, err)
	code := codeOf(err)
	if code == fsm.NamespaceFull && s.config.QuotaReason != nil {
		if reason := s.config.QuotaReason(contextOf(r).namespace); reason != "" {
			err = fmt.Errorf("%w: %s", fsm.NamespaceFull, reason)
		}
	}
	a := statusOf(code)
	if errors.As(err, new(*auth.TooManyFailuresError)) {
		a.status = http.StatusTooManyRequests
	}
	level := slog.LevelDebug
	message := err.Error()
	if code == fsm.Internal {
		// The error is for the log only: it may name paths and hosts.
		level, message = slog.LevelError, "internal error: search the log of this member for the tracking id"
	}
	id := atom.NewTrackingID()
	s.config.Logger.Log(r.Context(), level, "HTTP request refused", "tracking_id", id,
		"method", r.Method, "path", r.URL.Path, "status", a.status, "error", err.Error())
	if code == fsm.ServerBusy {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter(err)))
	}
	if code == fsm.Unauthorized {
		w.Header().Set("WWW-Authenticate", "SharedAccessSignature")
	}
	if isATOM(r) {
		replyError(w, a.status, code, message, id)
		return
	}
	s.writeJSON(w, r, a.status, &api.Problem{Code: a.name, Message: message, TrackingID: id})
}

// retryAfter is the value of the header Retry-After, in whole seconds.
func retryAfter(err error) int {
	var tooMany *auth.TooManyFailuresError
	if errors.As(err, &tooMany) {
		return max(1, int(math.Ceil(tooMany.After.Seconds())))
	}
	return 1
}

// writeJSON writes value as JSON. An error of writing is ignored: the client has gone.
func (s *core) writeJSON(w http.ResponseWriter, r *http.Request, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.config.Logger.ErrorContext(r.Context(), "failed to encode answer", "path", r.URL.Path, "error", err.Error())
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
