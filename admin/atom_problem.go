package admin

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// subCode is what stands before the text of an error, for clients that look for it: 40301
// makes JavaScript and .NET call a 403 an invalid operation and not a quota.
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

// replyError answers with the Error element of the service. It is never empty: .NET before
// 7.18.4 and JavaScript fail on an empty body.
func (s *Server) replyError(w http.ResponseWriter, status int, code fsm.Code, message, id string) {
	x := &xmlWriter{}
	x.open("Error")
	x.leaf("Code", strconv.Itoa(status))
	x.leaf("Detail", subCode(code)+strings.TrimSuffix(message, ".")+". TrackingId:"+id+", SystemTracker:peeklock, Timestamp:"+time.Now().UTC().Format("2006-01-02T15:04:05"))
	x.end("Error")
	s.replyXML(w, status, atomErrorType, x)
}

// codeOr is the Code in an error, or another when there is none.
func codeOr(err error, other fsm.Code) fsm.Code {
	var code fsm.Code
	if errors.As(err, &code) {
		return code
	}
	return other
}
