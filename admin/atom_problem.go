package admin

import (
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/fsm"
)

// subCode is the prefix of error texts that clients look for: 40301 makes JavaScript and .NET report a 403 as an invalid
// operation and not as an exceeded quota.
func subCode(code fsm.Code) string {
	switch code { //nolint:exhaustive // the others have none
	case fsm.InvalidArgument, fsm.MessageTooLarge:
		return "SubCode=40000. "
	case fsm.QuotaExceeded:
		return "SubCode=40300. "
	case fsm.NotAllowed, fsm.EntityDisabled:
		return "SubCode=40301. "
	case fsm.EntityNotFound, fsm.RuleNotFound:
		return "SubCode=40400. "
	case fsm.EntityExists, fsm.RuleExists:
		return "SubCode=40900. "
	case fsm.Stale:
		return "SubCode=40901. "
	case fsm.Internal:
		return "SubCode=50000. "
	case fsm.ServerBusy:
		return "SubCode=50004. "
	}
	return ""
}

// replyError answers with the Error element of the service.
func (s *Server) replyError(w http.ResponseWriter, status int, code fsm.Code, message, id string) {
	detail := subCode(code) + strings.TrimSuffix(message, ".") + ". TrackingId:" + id + ", SystemTracker:peeklock, Timestamp:" + time.Now().UTC().Format("2006-01-02T15:04:05")
	s.writeDocument(w, status, atom.ErrorType, atom.ErrorDocument(status, detail))
}
