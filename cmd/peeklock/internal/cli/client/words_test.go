package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// TestServersOtherThanMembersAreQuoted: a proxy, and a port with or without TLS, say themselves what is wrong.
func TestServersOtherThanMembersAreQuoted(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no upstream\x1b[2J is healthy", http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	for address, want := range map[string]string{
		proxy.URL: `status 502, "no upstream\\x1b[2J is healthy"`,
		strings.Replace(proxy.URL, "http:", "https:", 1):  "the server does not use TLS: write http:// instead of https://",
		strings.Replace(secure.URL, "https:", "http:", 1): "requires TLS: write https:// instead of http://",
	} {
		c := &Client{Process: cli.Process{Env: []string{"PEEKLOCK_SERVER=" + address}}}
		err := c.Call(t.Context(), http.MethodGet, "/v1/queues", nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "from PEEKLOCK_SERVER)") {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}
