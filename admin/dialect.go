package admin

import (
	"net"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/console"
	"github.com/peeklock/peeklock/fsm"
)

// atomMediaType is part of the media types that administration clients name in Accept or Content-Type.
const atomMediaType = "atom+xml"

// isATOM reports whether a request is for the administration API of the service: the client names an api-version or an
// ATOM media type, or the path is none of the control API. So a client that names the version can manage a queue named
// "health".
func isATOM(r *http.Request) bool {
	if namesATOM(r) {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch first {
	case "", "v1", "health", "livez", "readyz", "metrics":
		return false
	}
	return true
}

// namesATOM reports whether a request names an api-version or an ATOM media type.
func namesATOM(r *http.Request) bool {
	if r.URL.Query().Has(atom.VersionParameter) {
		return true
	}
	for _, header := range []string{"Accept", "Content-Type"} {
		if strings.Contains(strings.ToLower(r.Header.Get(header)), atomMediaType) {
			return true
		}
	}
	return false
}

// hostOf returns the host by which the client reaches this member, without the port.
func hostOf(r *http.Request) string {
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		return name
	}
	return r.Host
}

// writeDocument writes a finished document. An error of writing is ignored: the client has gone.
func writeDocument(w http.ResponseWriter, status int, kind string, x *atom.Document) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(x.Bytes())
}

// subCode is the prefix of error texts that clients look for: 40301 makes JavaScript and .NET report a 403 as an invalid
// operation and not as an exceeded quota.
func subCode(code fsm.Code) string {
	switch code { //nolint:exhaustive // the others have none
	case fsm.InvalidArgument, fsm.MessageTooLarge:
		return "SubCode=40000. "
	case fsm.QuotaExceeded, fsm.NamespaceFull:
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
func replyError(w http.ResponseWriter, status int, code fsm.Code, message, id string) {
	writeDocument(w, status, atom.ErrorType, atom.ErrorDocument(status, atom.ErrorDetail(subCode(code)+message, id)))
}

// isConsole reports whether a request is for the web console. A queue may be named console: clients of the service name an
// api-version or an ATOM media type, or sign their requests, and a browser that opens a page does none of that.
func isConsole(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Authorization") != "" || namesATOM(r) {
		return false
	}
	return r.URL.Path == console.Path || strings.HasPrefix(r.URL.Path, console.Path+"/")
}

// asksForPage reports whether a request for the root comes from a browser, which is sent to the console.
func asksForPage(r *http.Request) bool {
	return r.URL.Path == "/" && r.Method == http.MethodGet && r.Header.Get("Authorization") == "" && !namesATOM(r) &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
