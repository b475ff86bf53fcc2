package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A refused change of a setting that is fixed at creation names the setting, as in the service.
func TestARefusedChangeNamesTheFixedProperty(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.request("PUT", "/q", entryOf("QueueDescription", ""), nil)
	r.request("PUT", "/t", entryOf("TopicDescription", ""), nil)
	r.request("PUT", "/t/Subscriptions/s", entryOf("SubscriptionDescription", ""), nil)
	const property = "The value for the %[1]s property of an existing %[2]s cannot be changed. "
	const partitioning = "Partitioning cannot be changed for %[2]s. "
	for _, c := range []struct{ path, kind, property, want string }{
		{"/q", "Queue", "RequiresSession", property},
		{"/q", "Queue", "RequiresDuplicateDetection", property},
		{"/q", "Queue", "EnablePartitioning", partitioning},
		{"/t", "Topic", "RequiresDuplicateDetection", property},
		{"/t", "Topic", "EnablePartitioning", partitioning},
		{"/t/Subscriptions/s", "Subscription", "RequiresSession", property},
	} {
		status, body := r.request("PUT", c.path, entryOf(c.kind+"Description", "<"+c.property+">true</"+c.property+">"), update)
		want := "<Detail>SubCode=40000. " + fmt.Sprintf(c.want, c.property, c.kind)
		if status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", c.path, status, body, want)
		}
	}
}

// A valid key without the right to manage gets the refusals of the service: reading a queue or topic that does not exist
// is not found. Without a valid key nobody learns what exists.
func TestWithoutTheRightToManageRefusalsAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	const (
		read   = "<Detail>Manage,EntityRead claims required for this operation. "
		write  = "<Detail>Authorization failed for specified action: Manage,EntityWrite. "
		remove = "<Detail>Authorization failed for specified action: Manage,EntityDelete. "
	)
	of := func(operation string) string {
		return "<Detail>401 SubCode=40100: Unauthorized : Unauthorized access for '" + operation + "' operation on endpoint 'sb://localhost:5300/t"
	}
	queue, subscription, rule := entryOf("QueueDescription", ""), entryOf("SubscriptionDescription", ""), entryOf("RuleDescription", "")
	r := newServerWithKeys(t)
	app := signed("http://localhost/", "app", "app-secret")
	for _, c := range []struct {
		method, path, body string
		change             func(*http.Request)
		status             int
		want               string
	}{
		{"GET", "/none", "", nil, 404, "The messaging entity 'none' could not be found."},
		{"GET", "/orders", "", nil, 401, read},
		{"GET", "/t", "", nil, 401, read},
		{"GET", "/$Resources/Queues", "", nil, 401, read},
		{"GET", "/$Resources/Topics", "", nil, 401, read},
		{"PUT", "/none", queue, nil, 401, write},
		{"PUT", "/none", queue, update, 401, write},
		{"PUT", "/orders", queue, update, 401, write},
		{"DELETE", "/orders", "", nil, 401, remove},
		{"DELETE", "/none", "", nil, 401, remove},
		{"GET", "/t/Subscriptions/s", "", nil, 401, of("GetSubscription")},
		{"GET", "/t/Subscriptions/none", "", nil, 401, of("GetSubscription")},
		{"GET", "/t/Subscriptions", "", nil, 401, of("EnumerateSubscriptions")},
		{"PUT", "/t/Subscriptions/none", subscription, nil, 401, of("CreateOrUpdateSubscription")},
		{"PUT", "/t/Subscriptions/s", subscription, update, 401, of("CreateOrUpdateSubscription")},
		{"DELETE", "/t/Subscriptions/s", "", nil, 401, of("DeleteSubscription")},
		{"GET", "/t/Subscriptions/s/Rules/none", "", nil, 401, of("GetRule")},
		{"GET", "/t/Subscriptions/s/Rules", "", nil, 401, of("EnumerateRules")},
		{"PUT", "/t/Subscriptions/s/Rules/r", rule, nil, 401, of("CreateOrUpdateRule")},
		{"DELETE", "/t/Subscriptions/s/Rules/$Default", "", nil, 401, of("DeleteRule")},
	} {
		status, body := r.request(c.method, c.path, c.body, func(q *http.Request) {
			app(q)
			if c.change != nil {
				c.change(q)
			}
		})
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, body, c.status, c.want)
		}
	}
	for name, key := range map[string]func(*http.Request){
		"a wrong key":                signed("http://localhost/", "app", "wrong"),
		"a key of another namespace": signed("http://other.localhost/", "other", "x"),
		"a key of another entity":    signed("sb://localhost/orders", "user", "u"),
		"no key":                     func(q *http.Request) { q.RemoteAddr = "10.0.0.9:1" },
	} {
		if status, body := r.request("GET", "/none", "", key); status != http.StatusUnauthorized || strings.Contains(body, "could not be found") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, _ := r.request("GET", "/orders", "", nil); status != http.StatusOK {
		t.Error("a refused request deleted the queue")
	}
}
