package admin

import (
	"net/http"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/dataplane"
)

// serveMessages serves a request about messages.
func (s *core) serveMessages(w http.ResponseWriter, r *http.Request) {
	kind, token := parseAuthorization(r.Header.Get("Authorization"))
	s.config.Messages.Serve(w, r, dataplane.Caller{
		Trusted: s.trustedCaller(r) != "", Secure: connection.IsSecure(r), Client: s.authClient(r), Kind: kind, Token: token,
		Spelling: connection.Spelling(r),
	})
}
