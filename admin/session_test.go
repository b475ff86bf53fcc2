package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// Sessions are listed in pages; for an entity without sessions, the answer contains the reason.
func TestSessionsAreListedInPages(t *testing.T) {
	t.Parallel()
	h := newTestServer(t)
	for _, path := range []string{"/v1/queues/grouped", "/v1/queues/plain", "/v1/topics/news", "/v1/subscriptions/news/Subscriptions/all"} {
		body := ""
		if !strings.Contains(path, "plain") && !strings.Contains(path, "topics") {
			body = `{"requiresSession":true}`
		}
		if status, answer := h.request("PUT", path, body, nil); status != http.StatusCreated {
			t.Fatal(path, status, answer)
		}
	}
	h.sessions = []fsm.Session{
		{ID: "", Messages: 3, Ready: 1, Until: 1795176030000},
		{ID: "red", Updated: 1795176000000, Bytes: 12},
	}
	for i := range 2 * pageSessionsMax {
		h.sessions = append(h.sessions, fsm.Session{ID: fmt.Sprint(i), Messages: 1, Ready: 1})
	}
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/v1/sessions/grouped?max=2", 200, `{"sessions":[{"id":"","messages":3,"ready":1,"lockedUntil":"2026-11-20T12:00:30Z","stateBytes":0},` +
			`{"id":"red","messages":0,"ready":0,"stateBytes":12,"stateUpdatedAt":"2026-11-20T12:00:00Z"}],"next":2}`},
		{"/v1/sessions/news/Subscriptions/all?skip=2001&max=1000", 200, `{"sessions":[{"id":"1999","messages":1,"ready":1,"stateBytes":0}]}`},
		{"/v1/sessions/grouped?skip=2002", 200, `{"sessions":[]}`},
		{"/v1/sessions/grouped", 200, `"next":100}`},
		{"/v1/sessions/grouped?max=1000", 200, `"next":1000}`},
		{"/v1/sessions/grouped?max=1001", 400, "max is a number from 1 to 1000"},
		{"/v1/sessions/grouped?skip=-1", 400, "skip is a number from 0"},
		{"/v1/sessions/grouped?top=3", 400, "unknown parameter"},
		{"/v1/sessions/plain", 403, "'plain' has no sessions"},
		{"/v1/sessions/news", 404, "could not be found"},
		{"/v1/sessions/none", 404, "'none' could not be found"},
		{"/v1/sessions/", 400, "names no queue"},
	} {
		status, answer := h.request("GET", c.path, "", nil)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %.300s, want %d with %s", c.path, status, answer, c.status, c.want)
		}
	}
}
