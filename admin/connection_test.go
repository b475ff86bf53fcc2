package admin

import (
	"net/http"
	"strings"
	"testing"
)

// TestConnectionsAreThoseOfTheNamespace checks that operators see all connections, or those of a namespace that they name, and
// that the key of a namespace sees and closes only its connections.
func TestConnectionsAreThoseOfTheNamespace(t *testing.T) {
	t.Parallel()
	r := newServerWithKeys(t)
	root := signed("http://localhost/", "root", "root-secret")
	manager := signed("sb://localhost/", "manager", "m")
	other := signed("http://other.localhost/", "other", "x")
	for _, c := range []struct {
		name         string
		key          func(*http.Request)
		method, path string
		status       int
		shows        string // ids, of the two connections
	}{
		{"operator", root, "GET", "/v1/connections", 200, "a-1 a-2"},
		{"operator of a namespace", root, "GET", "/v1/connections?namespace=other", 200, "a-2"},
		{"operator, next page", root, "GET", "/v1/connections?after=a-1&max=1", 200, "a-2"},
		{"operator, too many", root, "GET", "/v1/connections?max=501", 400, ""},
		{"manager", manager, "GET", "/v1/connections", 200, "a-1"},
		{"manager elsewhere", manager, "GET", "/v1/connections?namespace=other", 401, ""},
		{"manager of other", other, "GET", "/v1/connections?namespace=other", 200, "a-2"},
		{"owner of a queue", signed("sb://localhost/orders", "owner", "o"), "GET", "/v1/connections", 401, ""},
		{"manager closes its own", manager, "DELETE", "/v1/connections/a-1", 204, ""},
		{"manager closes another's", manager, "DELETE", "/v1/connections/a-2", 404, ""},
		{"operator closes any", root, "DELETE", "/v1/connections/a-2", 204, ""},
	} {
		status, body := r.request(c.method, c.path, "", c.key)
		var shown []string
		for _, id := range []string{"a-1", "a-2"} {
			if strings.Contains(body, `"id":"`+id+`"`) {
				shown = append(shown, id)
			}
		}
		if status != c.status || strings.Join(shown, " ") != c.shows {
			t.Errorf("%s: status %d and connections %v, want %d and %s: %s", c.name, status, shown, c.status, c.shows, body)
		}
	}
	if log := r.audit.String(); !strings.Contains(log, `"connection"`) {
		t.Error("the audit log does not have the closed connections:", log)
	}
}
