package admin

import (
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/console"
)

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

// serveConsole serves the console over TLS, and without TLS to browsers on this machine only: a page over plain HTTP could be
// changed on its way, and would have the key of whoever signs in. With TrustAll a browser may come through the
// published port of a container, so its address says nothing, and the host that it names decides.
func (s *core) serveConsole(page http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if connection.IsSecure(r) || fromLoopback(r) || s.config.TrustAll && connection.IsLoopbackHost(r.Host) {
			page.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "The console is served over HTTPS, and over HTTP to a browser on the member's own machine (http://localhost). "+
			"Give the member a certificate (settings tls_cert and tls_key) and open https://, or forward a port: ssh -L 5300:localhost:5300 MEMBER.", http.StatusForbidden)
	}
}
