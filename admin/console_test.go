package admin

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/console"
)

const pageMark = `<div id="app">`

func newConsoleServer(t *testing.T, mode console.Mode, trustAll bool) http.Handler {
	t.Helper()
	r := newTestServer(t)
	r.server.config.Console, r.server.config.TrustAll = mode, trustAll
	return r.server.handler()
}

func withHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestConsoleIsServedToBrowsersOnly checks that requests of Service Bus clients for entities below the path of the console
// reach these, and that a browser that opens the page gets it.
func TestConsoleIsServedToBrowsersOnly(t *testing.T) {
	t.Parallel()
	h := newConsoleServer(t, console.On, false)
	for _, c := range []struct {
		method, path string
		change       func(*http.Request)
		page         bool
	}{
		{"GET", "/console", withHeader("Accept", "text/html"), true},
		{"HEAD", "/console", withHeader("Accept", "text/html"), true},
		{"GET", "/console/", withHeader("Accept", "*/*"), true},
		{"GET", "/console/queues/a%2Fb?tab=send", withHeader("Accept", "text/html"), true},
		{"GET", "/console/messages/head", withHeader("Accept", "text/html"), true},
		{"GET", "/consoles", withHeader("Accept", "text/html"), false},
		{"GET", "/console?api-version=2021-05", withHeader("Accept", "text/html"), false},
		{"GET", "/console/assets?API-VERSION=2021-05", withHeader("Accept", "text/html"), true}, // names of parameters are exact
		{"GET", "/console", withHeader("Accept", "application/atom+xml"), false},
		{"GET", "/console/assets/Subscriptions/a", withHeader("Content-Type", "application/atom+xml;type=entry"), false},
		{"GET", "/console", withHeader("Authorization", "SharedAccessSignature sr=x"), false},
		{"PUT", "/console", withHeader("Accept", "text/html"), false},
		{"DELETE", "/console/assets", withHeader("Accept", "text/html"), false},
		{"POST", "/console/messages", withHeader("Accept", "text/html"), false},
		{"GET", "/v1/queues/console", withHeader("Accept", "text/html"), false},
	} {
		w := do(h, c.method, c.path, c.change)
		page := w.Code == http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
		if page != c.page || c.page && c.method == http.MethodGet && !strings.Contains(w.Body.String(), pageMark) {
			t.Errorf("%s %s: got %d %s, want the page: %v", c.method, c.path, w.Code, w.Header().Get("Content-Type"), c.page)
		}
	}
}

func TestRootSendsBrowsersToTheConsole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   console.Mode
		change func(*http.Request)
		to     string
	}{
		{console.On, withHeader("Accept", "text/html,*/*;q=0.8"), "/console"},
		{console.ReadOnly, withHeader("Accept", "text/html"), "/console"},
		{console.Off, withHeader("Accept", "text/html"), ""},
		{console.On, withHeader("Accept", "*/*"), ""},
		{console.On, withHeader("Accept", "application/atom+xml, text/html"), ""},
		{console.On, func(r *http.Request) { r.Header.Set("Accept", "text/html"); r.Header.Set("Authorization", "x") }, ""},
	} {
		w := do(newConsoleServer(t, c.mode, false), "GET", "/", c.change)
		if got := w.Header().Get("Location"); got != c.to {
			t.Errorf("mode %q: got status %d and location %q, want %q", c.mode, w.Code, got, c.to)
		}
	}
}

// TestConsoleNeedsTLSOrThisMachine checks who gets the page without TLS: browsers on the member's machine, and in an emulator
// those that name a loopback host, because a published port of a container has the address of a bridge.
func TestConsoleNeedsTLSOrThisMachine(t *testing.T) {
	t.Parallel()
	const loopback, remote = "127.0.0.1:1", "10.1.2.3:1"
	for _, c := range []struct {
		from, host            string
		trustAll, tls, served bool
	}{
		{loopback, "localhost:5300", false, false, true},
		{loopback, "evil.example:5300", false, false, false}, // its DNS name was pointed at this machine
		{remote, "localhost:5300", false, false, false},
		{remote, "broker.example:5300", false, false, false},
		{remote, "broker.example:5300", false, true, true},
		{remote, "localhost:5300", true, false, true},
		{remote, "broker.example:5300", true, false, false},
	} {
		w := do(newConsoleServer(t, console.On, c.trustAll), "GET", "/console", func(r *http.Request) {
			r.RemoteAddr, r.Host = c.from, c.host
			if c.tls {
				r.TLS = &tls.ConnectionState{HandshakeComplete: true}
			}
		})
		if served := w.Code == http.StatusOK; served != c.served {
			t.Errorf("%+v: got %d %s", c, w.Code, w.Body)
		} else if !served && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "tls_cert")) {
			t.Errorf("%+v: got %d %s, want 403 that names tls_cert", c, w.Code, w.Body)
		}
	}
}

// TestConsoleMayCallTheIdentityProvider checks that the page learns how to sign in, and may call the provider and nothing else.
func TestConsoleMayCallTheIdentityProvider(t *testing.T) {
	t.Parallel()
	const local = "connect-src 'self'; "
	r := newTestServer(t)
	r.server.config.Console = console.On
	page := do(r.server.handler(), "GET", "/console", withHeader("Accept", "text/html"))
	if got := page.Header().Get("Content-Security-Policy"); !strings.Contains(got, local) || strings.Contains(page.Body.String(), "oidc") {
		t.Errorf("without a provider: got the policy %q and %s, want %q", got, page.Body, local)
	}
	r.server.config.ConsoleSignIn = console.SignIn{Issuer: "https://a.example/t", ClientID: `"><script>`, Scopes: "openid x", Origins: []string{"https://a.example", "https://b.example:1"}}
	h := r.server.handler()
	for _, path := range []string{"/console", "/console/console.js"} {
		const want = "connect-src 'self' https://a.example https://b.example:1; "
		if got := do(h, "GET", path, withHeader("Accept", "*/*")).Header().Get("Content-Security-Policy"); !strings.Contains(got, want) {
			t.Errorf("%s: got the policy %q, want %q", path, got, want)
		}
	}
	const want = `<meta name="peeklock-oidc" data-issuer="https://a.example/t" data-client-id="&#34;&gt;&lt;script&gt;" data-scopes="openid x" data-origins="https://a.example https://b.example:1" />`
	if got := do(h, "GET", "/console", withHeader("Accept", "text/html")).Body.String(); !strings.Contains(got, want) {
		t.Errorf("got the page %s, want in it %s", got, want)
	}
}

func TestConsoleThatIsOffIsNotServed(t *testing.T) {
	t.Parallel()
	w := do(newConsoleServer(t, console.Off, false), "GET", "/console", withHeader("Accept", "text/html"))
	if strings.Contains(w.Body.String(), pageMark) {
		t.Errorf("got the page with status %d, want none", w.Code)
	}
}

func TestConsoleIsPackedAndKeptByBrowsers(t *testing.T) {
	t.Parallel()
	h := newConsoleServer(t, console.ReadOnly, false)
	w := do(h, "GET", "/console/console.js", withHeader("Accept-Encoding", "gzip, br"))
	if got := w.Header().Get("Content-Encoding"); got != "gzip" || w.Code != http.StatusOK {
		t.Fatalf("got status %d and encoding %q, want 200 and gzip", w.Code, got)
	}
	const bundleBytesMax = 150_000
	if w.Body.Len() > bundleBytesMax {
		t.Errorf("the packed script has %d bytes, want at most %d", w.Body.Len(), bundleBytesMax)
	}
	if again := do(h, "GET", "/console/console.js", func(r *http.Request) {
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	}); again.Code != http.StatusNotModified {
		t.Errorf("with the ETag of the file: got %d, want 304", again.Code)
	}
	page := do(h, "GET", "/console", withHeader("Accept", "text/html"))
	if !strings.Contains(page.Body.String(), `name="peeklock-console" content="read-only"`) {
		t.Errorf("the page does not say that it is read-only: %s", page.Body)
	}
	for header, want := range map[string]string{
		"Content-Security-Policy": "script-src 'self'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
	} {
		if got := page.Header().Get(header); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}
