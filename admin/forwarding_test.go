package admin

import (
	"net/http"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
)

// TestForwardingNeedsTheRightToSend checks that a key that may manage one entity cannot forward its messages
// to another by any setting of the control API, unless a token permits sending there.
func TestForwardingNeedsTheRightToSend(t *testing.T) {
	t.Parallel()
	owner := signed("sb://localhost/", "owner", "o")
	manager := signed("sb://localhost/", "manager", "m")
	along := func(header, resource, name, key string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set(header, auth.Sign(resource, name, key, time.Now().Add(time.Minute)))
		}
	}
	const to, deadTo = `{"forwardTo":"orders/sub"}`, `{"forwardDeadLetteredMessagesTo":"orders/sub"}`
	for name, c := range map[string]struct {
		method, path, body string
		key, more          func(*http.Request)
		status             int
	}{
		"an entity's key":                  {"PATCH", "/v1/queues/orders", to, owner, nil, 401},
		"an entity's key, dead letters":    {"PATCH", "/v1/queues/orders", deadTo, owner, nil, 401},
		"a topic's key, a subscription":    {"PATCH", "/v1/subscriptions/t/Subscriptions/s", to, owner, nil, 401},
		"to itself":                        {"PATCH", "/v1/queues/orders", `{"forwardTo":"orders"}`, owner, nil, 200},
		"to where it goes already":         {"PATCH", "/v1/queues/forwarding", `{"forwardTo":"Orders","maxDeliveryCount":3}`, signed("sb://localhost/forwarding", "owner", "o"), nil, 200},
		"to nowhere":                       {"PATCH", "/v1/queues/forwarding", `{"forwardTo":""}`, signed("sb://localhost/forwarding", "owner", "o"), nil, 200},
		"with a token":                     {"PATCH", "/v1/queues/orders", to, owner, along(forwardTokenHeader, "sb://localhost/orders/sub", "app", "app-secret"), 200},
		"with the other setting's token":   {"PATCH", "/v1/queues/orders", to, owner, along(forwardDeadLetterTokenHeader, "sb://localhost/orders/sub", "app", "app-secret"), 401},
		"with a token of another":          {"PATCH", "/v1/queues/orders", to, owner, along(forwardTokenHeader, "sb://localhost/orders/sub", "user", "u"), 401},
		"the namespace's key":              {"PATCH", "/v1/queues/orders", to, manager, nil, 200},
		"the namespace's key, made new":    {"PUT", "/v1/queues/new", to, manager, nil, 201},
		"the namespace's key for one":      {"PATCH", "/v1/queues/orders", to, signed("http://localhost/v1/queues/orders", "manager", "m"), nil, 401},
		"the namespace's key for a new":    {"PUT", "/v1/queues/new", to, signed("http://localhost/v1/queues/new", "manager", "m"), nil, 401},
		"an operator in another namespace": {"PUT", "/v1/queues/new?namespace=other", `{"forwardTo":"new"}`, signed("http://localhost/", "root", "root-secret"), nil, 201},
		"no key on this machine":           {"PATCH", "/v1/queues/orders", to, nil, nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newServerWithKeys(t)
			r.request("PUT", "/v1/queues/forwarding", `{"forwardTo":"orders"}`, nil)
			r.request("PUT", "/v1/access/forwarding?rule=owner", `{"rights":["Manage"]}`, nil)
			r.shorten("forwarding", "owner", "o")
			status, body := r.request(c.method, c.path, c.body, func(r *http.Request) {
				for _, change := range []func(*http.Request){c.key, c.more} {
					if change != nil {
						change(r)
					}
				}
			})
			if status != c.status {
				t.Errorf("%d %s, want %d", status, body, c.status)
			}
		})
	}
}
