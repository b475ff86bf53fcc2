package admin

import (
	"net/http"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// TestMetricsModeDecidesWhatCallersSee checks which callers get which metrics.
func TestMetricsModeDecidesWhatCallersSee(t *testing.T) {
	t.Parallel()
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	const remote = "203.0.113.9:5"
	for name, c := range map[string]struct {
		whole, open http.Handler
		from        string
		host        string
		grant       *auth.Grant // of the credential; nil: no credential is sent
		status      int
		want        string
	}{
		"loopback":                           {says("whole"), says("open"), "127.0.0.1:1", "", nil, 200, "whole"},
		"loopback under a foreign name":      {says("whole"), says("open"), "127.0.0.1:1", "evil.example.com", nil, 200, "open"},
		"remote":                             {says("whole"), says("open"), remote, "", nil, 200, "open"},
		"remote, guarded":                    {says("whole"), nil, remote, "", nil, 401, "Unauthorized"},
		"remote operator":                    {says("whole"), says("open"), remote, "", &auth.Grant{Rights: fsm.Manage, Operator: true}, 200, "whole"},
		"remote operator, guarded":           {says("whole"), nil, remote, "", &auth.Grant{Rights: fsm.Manage, Operator: true}, 200, "whole"},
		"a key of a namespace gets no less":  {says("whole"), says("open"), remote, "", &auth.Grant{Rights: fsm.Manage}, 401, "operator"},
		"an operator without Manage neither": {says("whole"), says("open"), remote, "", &auth.Grant{Rights: fsm.Listen, Operator: true}, 401, "to read"},
		"a configured key that may read":     {says("whole"), nil, remote, "", &auth.Grant{Rights: fsm.Read, Configured: true}, 200, "whole"},
		"a stored key that may read":         {says("whole"), nil, remote, "", &auth.Grant{Rights: fsm.Read}, 401, "configured key"},
		"a configured key that may not read": {says("whole"), nil, remote, "", &auth.Grant{Rights: fsm.Listen, Configured: true}, 401, "to read"},
		"off":                                {nil, nil, "127.0.0.1:1", "", nil, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestServer(t)
			r.server.config.Metrics, r.server.config.PublicMetrics = c.whole, c.open
			if c.grant != nil {
				r.server.config.Authority = fakeAuthority{func(_, _, _ string) {}, *c.grant, nil}
			}
			w := do(r.server.handler(), "GET", "/metrics", func(r *http.Request) {
				r.RemoteAddr = c.from
				if c.host != "" {
					r.Host = c.host
				}
				if c.grant != nil {
					r.Header.Set("Authorization", "Bearer a.b.c")
				}
			})
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, c.status, c.want)
			}
		})
	}
}
