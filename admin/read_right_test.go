package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/operation"
)

// A key with the right to read opens every route that shows settings or figures, and no other: no message, no key, no change and nothing
// of the cluster. The requests are those of the table, so a new route is tested, too.
func TestReadKeysOpenSettingsAndFiguresOnly(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	const address = "http://localhost/"
	status, body := s.request("PUT", "/v1/access?rule=viewer", `{"rights":["Read"],"primaryKey":"viewer-secret-of-16"}`, nil)
	if status != http.StatusCreated || !strings.Contains(body, `"rights":["Read"]`) {
		t.Fatalf("create the key: %d %s", status, body)
	}
	s.server.config.Control = newGenerousControl(2)
	requests := maximalControl()
	var opened []string
	for _, to := range (&controlAPI{s.server.core}).routes() {
		isRead := to.Right == operation.ReadEntity || to.Right == operation.ReadNamespace || to.Right == operation.AnyKey
		if isRead && (to.Method() != http.MethodGet || to.change != "") {
			t.Errorf("%s changes something and needs %s only", to.Name, to.Right)
		}
		request := requests[to.Name]
		status, body := s.request(to.Method(), fillPath(to.Path(), request.path), request.body, signed(address, "viewer", "viewer-secret-of-16"))
		if wasOpened := status == http.StatusOK; wasOpened != isRead || !isRead && (status != http.StatusUnauthorized || !strings.Contains(body, "right") && !strings.Contains(body, "operator")) {
			t.Errorf("%s, which needs %s: %d %.200s", to.Name, to.Right, status, body)
		}
		if isRead {
			opened = append(opened, to.Name)
		}
	}
	slices.Sort(opened)
	want := []string{
		"getDescription", "getQueue", "getRates", "getRules", "getSubscription", "getTopic", "listEndpoints", "listQueues", "listRates", "listSessions", "listSubscriptions", "listTopics", "streamEvents",
	}
	if !slices.Equal(opened, want) {
		t.Errorf("a key with the right to read opens %q, want %q", opened, want)
	}
}

// The key of one entity that may read sees that entity, and not the namespace. Other rights do not include reading, except Manage.
func TestReadIsARightOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newServerWithKeys(t)
	if status, body := s.request("PUT", "/v1/access/orders?rule=viewer", `{"rights":["Read"],"primaryKey":"viewer-secret-of-16"}`, nil); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	viewer, app := signed("http://localhost/orders", "viewer", "viewer-secret-of-16"), signed("http://localhost/", "reader", "reader-secret")
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		status int
	}{
		{"/v1/queues/orders", viewer, http.StatusOK},
		{"/v1/rates/orders", viewer, http.StatusOK},
		{"/v1/queues/orders/sub", viewer, http.StatusUnauthorized},
		{"/v1/queues", viewer, http.StatusUnauthorized},
		{"/v1/events?max=1", viewer, http.StatusUnauthorized},
		{"/v1/messages/orders", viewer, http.StatusUnauthorized},
		{"/v1/queues/orders", app, http.StatusUnauthorized},
		{"/v1/events?max=1", app, http.StatusUnauthorized},
		{"/v1/events?max=1", signed("http://localhost/", "root", "root-secret"), http.StatusOK},
	} {
		if status, body := s.request("GET", c.path, "", c.change); status != c.status {
			t.Errorf("%s: %d %.200s, want %d", c.path, status, body, c.status)
		}
	}
}

// Answers of the service's administration API do not show the right to read, which its clients do not know. A client that writes back what
// it has read changes nothing, and rules with no other right stay.
func TestATOMDoesNotShowTheRightToRead(t *testing.T) {
	t.Parallel()
	s := newServerWithKeys(t)
	for rule, rights := range map[string]string{"a-viewer": `["Read"]`, "sender": `["Read","Send"]`} {
		if status, body := s.request("PUT", "/v1/access/orders?rule="+rule, `{"rights":`+rights+`}`, nil); status != http.StatusCreated {
			t.Fatal(status, body)
		}
	}
	before := s.entities["orders"]
	status, entry := s.request("GET", "/orders?api-version=2021-05", "", nil)
	if status != http.StatusOK || strings.Contains(entry, "viewer") || strings.Contains(entry, ">Read<") || !strings.Contains(entry, "sender") {
		t.Fatalf("%d %s, want the rule sender without the right to read", status, entry)
	}
	status, _ = s.request("PUT", "/orders?api-version=2021-05", entry, func(r *http.Request) {
		r.Header.Set("If-Match", "*")
		r.Header.Set("Content-Type", atom.EntryType)
	})
	after := s.entities["orders"]
	if status != http.StatusOK || after.AccessVersion != before.AccessVersion || !slices.EqualFunc(before.Access, after.Access, equalAccessRule) {
		t.Errorf("%d: the rules were %+v and are %+v, want no change", status, before.Access, after.Access)
	}
	rules, err := completeShownRules(nil, before.Access)
	if err != nil || len(rules) != 1 || rules[0].Name != "a-viewer" {
		t.Errorf("without rules %+v stay (%v), want a-viewer", rules, err)
	}
}
