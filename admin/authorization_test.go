package admin

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// signed changes a request to one from another machine, signed for a resource.
func signed(resource, name, key string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = "10.0.0.9:1"
		r.Header.Set("Authorization", auth.Sign(resource, name, key, time.Now().Add(time.Minute)))
	}
}

// newServerWithKeys returns a test server with keys of every scope: the operator's (root), of the default
// namespace (manager, app), of a queue and a topic (owner), and of another namespace (other).
func newServerWithKeys(t *testing.T) *testServer {
	t.Helper()
	r := newTestServer(t)
	for _, c := range []struct{ path, body string }{
		{"/v1/access?rule=manager", `{"rights":["Manage"]}`},
		{"/v1/queues/orders", ""},
		{"/v1/queues/orders/sub", ""},
		{"/v1/topics/t", ""},
		{"/v1/subscriptions/t/Subscriptions/s", ""},
		{"/v1/access/orders?rule=owner", `{"rights":["Manage"]}`},
		{"/v1/access/orders?rule=user", `{"rights":["Send","Listen"]}`},
		{"/v1/access/t?rule=owner", `{"rights":["Manage"]}`},
		{"/v1/queues/v1/queues", ""}, // named like a route
		{"/v1/access/v1/queues?rule=owner", `{"rights":["Manage"]}`},
		{"/v1/queues/v1", ""}, // named like all routes
		{"/v1/access/v1?rule=owner", `{"rights":["Manage"]}`},
		{"/v1/namespaces/other", `{"accessRules":[{"name":"other","rights":["Manage"]}]}`},
	} {
		if status, body := r.request("PUT", c.path, c.body, nil); status != http.StatusCreated {
			t.Fatal(c.path, status, body)
		}
	}
	// Short keys that exist remain valid.
	r.shorten("", "manager", "m")
	for _, path := range []string{"orders", "t", "v1/queues", "v1"} {
		r.shorten(path, "owner", "o")
	}
	r.shorten("orders", "user", "u")
	for _, other := range r.others {
		other.shorten("", "other", "x")
	}
	return r
}

// Each key gives access to its resources through each API, and to nothing else.
func TestKeysReachTheirResourcesOnly(t *testing.T) {
	t.Parallel()
	root := signed("http://localhost/", "root", "root-secret")
	manager := signed("sb://localhost/", "manager", "m")
	owner := signed("sb://localhost/orders", "owner", "o")
	wide := signed("sb://localhost/", "owner", "o") // the key of an entity, signing for the namespace
	topic := signed("sb://localhost/t", "owner", "o")
	other := signed("http://other.localhost/", "other", "x")
	queue := entryOf("QueueDescription", "")
	for _, c := range []struct {
		name         string
		key          func(*http.Request)
		method, path string
		body         string
		change       func(*http.Request)
		status       int
	}{
		{"operator", root, "GET", "/v1/status", "", nil, 200},
		{"operator", root, "GET", "/v1/namespaces", "", nil, 200},
		{"operator", root, "PUT", "/v1/queues/new?namespace=other", "", nil, 201},
		{"operator", root, "GET", "/v1/queues/none?namespace=none", "", nil, 404},
		{"operator, unsigned", nil, "GET", "/v1/status", "", nil, 200},

		{"manager", manager, "GET", "/v1/status", "", nil, 401},
		{"manager", manager, "GET", "/v1/namespaces", "", nil, 401},
		{"manager", manager, "GET", "/v1/namespaces/default", "", nil, 401},
		{"manager", manager, "DELETE", "/v1/namespaces/other", "", nil, 401},
		{"manager", manager, "GET", "/v1/endpoints", "", nil, 200},
		{"manager", manager, "GET", "/v1/queues", "", nil, 200},
		{"manager", manager, "GET", "/v1/access", "", nil, 200},
		{"manager", manager, "PUT", "/v1/queues/new", "", nil, 201},
		{"manager", manager, "PUT", "/new", queue, nil, 201},
		{"manager", manager, "GET", "/orders", "", nil, 200},
		{"manager", manager, "GET", "/$namespaceinfo", "", nil, 200},
		{"manager elsewhere", manager, "GET", "/v1/queues?namespace=other", "", nil, 401},
		{"manager elsewhere", manager, "GET", "/v1/queues?namespace=none", "", nil, 401}, // does not reveal which namespaces exist
		{"manager, whole URL", signed("http://localhost:5300/v1/queues/orders", "manager", "m"), "GET", "/v1/queues/orders", "", nil, 200},

		{"owner", owner, "GET", "/v1/queues/orders", "", nil, 200},
		{"owner", owner, "PATCH", "/v1/queues/Orders", "{}", nil, 200},
		{"owner", owner, "POST", "/v1/purge/orders", "", nil, 200},
		{"owner", owner, "GET", "/v1/access/orders", "", nil, 200},
		{"owner", owner, "PUT", "/v1/access/orders?rule=r", `{"rights":["Send"]}`, nil, 201},
		{"owner", owner, "GET", "/orders", "", nil, 200},
		{"owner", owner, "PUT", "/orders", queue, update, 200},
		{"owner", owner, "DELETE", "/orders", "", nil, 200},
		{"owner", owner, "GET", "/v1/endpoints", "", nil, 401}, // signed for the URL, to which the key does not belong
		{"owner", owner, "GET", "/v1/endpoints?entity=orders", "", nil, 200},
		{"user", signed("sb://localhost/", "user", "u"), "GET", "/v1/endpoints?entity=orders", "", nil, 200},
		{"owner", wide, "GET", "/v1/queues/orders", "", nil, 200},
		{"owner", wide, "GET", "/orders", "", nil, 200},
		{"owner", wide, "GET", "/v1/queues", "", nil, 401},
		{"owner", wide, "GET", "/$Resources/Queues", "", nil, 401},
		{"owner", wide, "GET", "/v1/access", "", nil, 401},
		{"owner", wide, "PUT", "/v1/queues/orders", "", nil, 401},
		{"owner", wide, "PUT", "/orders", queue, nil, 401},
		{"owner", wide, "GET", "/v1/status", "", nil, 401},
		{"owner of another", wide, "GET", "/v1/queues/orders/sub", "", nil, 401},
		{"owner of another", owner, "GET", "/orders/sub", "", nil, 401},
		{"owner of another", owner, "PUT", "/orders/made", queue, nil, 401},
		{"user", signed("sb://localhost/orders", "user", "u"), "GET", "/v1/queues/orders", "", nil, 401},
		{"user", signed("sb://localhost/orders", "user", "u"), "GET", "/orders", "", nil, 401},

		{"owner of a topic", topic, "GET", "/t/Subscriptions/s", "", nil, 200},
		{"owner of a topic", topic, "GET", "/t/Subscriptions/s/Rules/$Default", "", nil, 200},
		{"owner of a topic", topic, "DELETE", "/t/Subscriptions/s", "", nil, 200},
		{"owner of a topic", topic, "GET", "/t/Subscriptions", "", nil, 200},
		{"owner of a topic", topic, "GET", "/v1/subscriptions?topic=t", "", nil, 200},
		{"owner of a topic", topic, "GET", "/v1/rules/t/Subscriptions/s", "", nil, 200},
		{"owner of a topic", topic, "PUT", "/t/Subscriptions/new", entryOf("SubscriptionDescription", ""), nil, 401},
		{"owner of a topic", topic, "GET", "/v1/subscriptions?topic=orders", "", nil, 401},

		// A queue that is named like a route gives no access to the route.
		{"a name like a route", signed("http://localhost/v1/queues", "owner", "o"), "GET", "/v1/queues", "", nil, 401},
		{"a name like a route", signed("http://localhost/v1/queues", "owner", "o"), "GET", "/v1/queues/orders", "", nil, 401},
		{"a name like a route", signed("http://localhost/v1/queues", "owner", "o"), "GET", "/v1/queues?api-version=2021-05", "", nil, 200},

		{"a name like all routes", signed("http://localhost/v1", "owner", "o"), "GET", "/v1/queues", "", nil, 401},
		{"a name like all routes", signed("http://localhost/v1", "owner", "o"), "GET", "/v1/status", "", nil, 401},
		{"a name like all routes", signed("http://localhost/v1", "owner", "o"), "DELETE", "/v1/queues/orders", "", nil, 401},
		{"a name like all routes", signed("http://localhost/v1", "owner", "o"), "GET", "/v1/queues/v1", "", nil, 200},

		{"of another namespace", other, "GET", "/v1/queues", "", nil, 401},
		{"of another namespace, signed for this host", signed("http://localhost/", "other", "x"), "GET", "/v1/queues?namespace=other", "", nil, 401},
		{"operator, an entity of this host", signed("http://localhost/orders", "root", "root-secret"), "GET", "/v1/queues/orders?namespace=other", "", nil, 401},
		{"operator, through another namespace", signed("http://other.localhost/", "root", "root-secret"), "GET", "/v1/queues?namespace=default", "", host("other.localhost"), 200},
		{"operator, another namespace's host", signed("http://other.localhost/", "root", "root-secret"), "GET", "/v1/queues", "", nil, 401},
		{"of another namespace", other, "GET", "/v1/queues?namespace=other", "", nil, 200},
		{"of another namespace", other, "GET", "/v1/namespaces/other", "", nil, 401},
		{"of another namespace", signed("http://other.localhost/", "other", "x"), "GET", "/v1/queues", "", host("other.localhost"), 200},
		{"of another namespace", signed("http://other.localhost/", "other", "x"), "GET", "/$Resources/Queues", "", host("other.localhost"), 200},
		{"app of the configuration", signed("http://localhost/", "app", "app-secret"), "GET", "/v1/endpoints", "", nil, 200},
		{"app of the configuration", signed("http://localhost/", "app", "app-secret"), "GET", "/v1/queues", "", nil, 401},
		{"nobody", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, "GET", "/v1/queues?namespace=none", "", nil, 401},
		{"nobody", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, "GET", "/v1/none", "", nil, 401},
		{"nobody", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, "GET", "/$other", "", nil, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, body := newServerWithKeys(t).request(c.method, c.path, c.body, func(r *http.Request) {
				for _, change := range []func(*http.Request){c.key, c.change} {
					if change != nil {
						change(r)
					}
				}
			})
			if status != c.status {
				t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, body, c.status)
			}
		})
	}
}

// fakeAuthority is an Authority that gives the answers that a test sets.
type fakeAuthority struct {
	asked func(kind, token, audience string)
	grant auth.Grant
	err   error
}

func (o fakeAuthority) TokenFor(_ context.Context, _ auth.Client, kind, token string, targets ...auth.Target) (auth.Grant, error) {
	o.asked(kind, token, targets[0].Path)
	return o.grant, o.err
}

// JWTs are sent with the scheme before them and, by the Go client, without.
func TestJWTsAreAcceptedInBothForms(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer a.b.c": "jwt a.b.c", "bearer  a.b.c": "jwt a.b.c", "a.b.c": "jwt a.b.c", "Bearer opaque": "jwt opaque",
		"SharedAccessSignature sr=a.b.c&sig=x": auth.KindSAS + " SharedAccessSignature sr=a.b.c&sig=x", "a.b": auth.KindSAS + " a.b",
	} {
		for _, path := range []string{"/v1/queues", "/$Resources/Queues"} {
			r := newTestServer(t)
			got := ""
			r.server.config.Authority = fakeAuthority{func(kind, token, _ string) { got = kind + " " + token }, auth.Grant{Rights: fsm.Manage}, nil}
			if status, body := r.request("GET", path, "", func(r *http.Request) { r.Header.Set("Authorization", header) }); status != 200 || got != want {
				t.Errorf("%s: asked for %q, answered %d %s", header, got, status, body)
			}
		}
	}
}

// Both APIs tell a client that failed too often when to retry, and do so also while the member is busy.
func TestTooManyFailuresGet429(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		after  string
	}{
		{&auth.TooManyFailuresError{After: 1200 * time.Millisecond}, http.StatusTooManyRequests, "2"},
		{fmt.Errorf("check: %w", &auth.TooManyFailuresError{}), http.StatusTooManyRequests, "1"},
		{fmt.Errorf("%w: wait", fsm.ServerBusy), http.StatusServiceUnavailable, "1"},
	} {
		r := newTestServer(t)
		r.server.config.Authority = fakeAuthority{func(string, string, string) {}, auth.Grant{}, c.err}
		for _, path := range []string{"/v1/queues", "/$Resources/Queues"} {
			w := do(r.server.http.Handler, "GET", path, signed("http://localhost/", "root", "root-secret"))
			if w.Code != c.status || w.Header().Get("Retry-After") != c.after || !strings.Contains(w.Body.String(), "busy") {
				t.Errorf("%s: %d, %v, %s", path, w.Code, w.Header(), w.Body.String())
			}
		}
	}
}

// delayingAuthority is an Authority that delays its answers until the context of the call ends, as the keyring
// does for failures.
type delayingAuthority struct{ waiting chan struct{} }

func (h delayingAuthority) TokenFor(ctx context.Context, from auth.Client, _, _ string, _ ...auth.Target) (auth.Grant, error) {
	from.Release()
	from.Release()
	h.waiting <- struct{}{}
	<-ctx.Done()
	return auth.Grant{}, fsm.Unauthorized
}

// Delayed answers take no slots from other requests, and do not delay the close of the server.
func TestFailuresTakeNoSlots(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	h := delayingAuthority{make(chan struct{})}
	r.server.config.Authority = h
	var all sync.WaitGroup
	for range 2 * requestsMax {
		all.Go(func() {
			if status, body := r.request("GET", "/v1/queues", "", signed("http://localhost/", "root", "wrong")); status != http.StatusUnauthorized {
				t.Errorf("%d %s", status, body)
			}
		})
		<-h.waiting
	}
	if n := len(r.server.requests); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
	if status, body := r.request("GET", "/v1/queues", "", nil); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if err := r.server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
}

// auditLine is one line of the audit log.
type auditLine struct {
	Level, Msg, Event, Who, Peer, Operation, Kind, Name, Rule, Namespace, Outcome, Path, Reason string
}

// The audit log has one line for every change, by any caller through either API, including failed ones, and
// one for every missing right. It has no lines for reads, and no secrets.
func TestAuditLogHasEveryChangeAndNoSecret(t *testing.T) {
	t.Parallel()
	r := newServerWithKeys(t)
	manager := signed("sb://localhost/", "manager", "m")
	rules := "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k</KeyName><PrimaryKey>secret-text-for-k</PrimaryKey></AuthorizationRule></AuthorizationRules>"
	for _, c := range []struct {
		method, path, body string
		change             func(*http.Request)
		want               []auditLine
	}{
		{"PUT", "/v1/queues/a", "", nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "queue", Name: "a", Outcome: "OK"}}},
		{"PUT", "/v1/queues/a", "", manager, []auditLine{{Who: "manager", Operation: "create", Kind: "queue", Name: "a", Outcome: "EntityExists"}}},
		{"PATCH", "/v1/queues/a", `{"lockDuration":"0s"}`, nil, []auditLine{{Who: "loopback", Operation: "update", Kind: "queue", Name: "a", Outcome: "InvalidArgument"}}},
		{"GET", "/v1/queues/a", "", nil, nil},
		{"PUT", "/v1/access/a?rule=r", `{"rights":["Send"],"primaryKey":"secret-text-for-r"}`, nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "access_rule", Name: "a", Rule: "r", Outcome: "OK"}}},
		{"PUT", "/v1/access/a?rule=r&replace=true", `{"rights":["Send"]}`, nil, []auditLine{{Who: "loopback", Operation: "update", Kind: "access_rule", Name: "a", Rule: "r", Outcome: "OK"}}},
		{"POST", "/v1/regenerate/a", `{"rule":"r","which":"primary"}`, nil, []auditLine{{Who: "loopback", Operation: "regenerate", Kind: "access_rule", Name: "a", Rule: "r", Outcome: "OK"}}},
		{"POST", "/v1/purge/a", "", nil, []auditLine{{Who: "loopback", Operation: "purge", Kind: "messages", Name: "a", Outcome: "OK"}}},
		{"DELETE", "/v1/queues/a", "", manager, []auditLine{{Who: "manager", Operation: "delete", Kind: "queue", Name: "a", Outcome: "OK"}}},
		{"PUT", "/v1/rules/t/Subscriptions/s?name=n", `{"filter":{"kind":"true"}}`, nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "rule", Name: "t/Subscriptions/s", Rule: "n", Outcome: "OK"}}},
		{"PUT", "/v1/namespaces/new", "", nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "namespace", Name: "new", Outcome: "OK"}}},
		{"PUT", "/v1/queues/a?namespace=other", "", nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "queue", Name: "a", Namespace: "other", Outcome: "OK"}}},

		{"PUT", "/b", entryOf("QueueDescription", ""), manager, []auditLine{{Who: "manager", Operation: "create", Kind: "queue", Name: "b", Outcome: "OK"}}},
		{"PUT", "/b", entryOf("QueueDescription", rules), update, []auditLine{{Who: "loopback", Operation: "update", Kind: "access_rules", Name: "b", Outcome: "OK"}, {Who: "loopback", Operation: "update", Kind: "queue", Name: "b", Outcome: "OK"}}},
		{"PUT", "/t/Subscriptions/s/Rules/n", entryOf("RuleDescription", ""), update, []auditLine{{Who: "loopback", Operation: "update", Kind: "rule", Name: "t/Subscriptions/s", Rule: "n", Outcome: "OK"}}},
		{"DELETE", "/t", "", nil, []auditLine{{Who: "loopback", Operation: "delete", Kind: "topic", Name: "t", Outcome: "OK"}}},
		{"PUT", "/b", "<", nil, []auditLine{{Who: "loopback", Operation: "create", Kind: "entity", Name: "b", Outcome: "InvalidArgument"}}},
		{"GET", "/b", "", nil, nil},

		{"DELETE", "/v1/queues/b", "", signed("http://localhost/", "app", "app-secret"), []auditLine{{Level: "WARN", Event: "right_missing", Who: "app", Operation: "DELETE", Path: "/v1/queues/b", Reason: "unauthorized: the key does not have the right to manage"}}},
		{"GET", "/v1/status", "", manager, []auditLine{{Level: "WARN", Event: "right_missing", Who: "manager", Operation: "GET", Path: "/v1/status", Reason: "unauthorized: the operation concerns the whole cluster and needs an operator's key: one that the members are configured with"}}},
	} {
		r.audit.Reset()
		status, body := r.request(c.method, c.path, c.body, c.change)
		text := r.audit.String()
		if strings.Contains(text, "secret-text") {
			t.Errorf("%s %s: a secret is logged: %s", c.method, c.path, text)
		}
		var got []auditLine
		for decoder := json.NewDecoder(strings.NewReader(text)); ; {
			var one auditLine
			if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err, text)
			}
			got = append(got, one)
		}
		for i := range c.want {
			w := &c.want[i]
			w.Msg, w.Peer = "audit", "127.0.0.1:1"
			if w.Who != "loopback" {
				w.Peer = "10.0.0.9:1"
			}
			for field, normal := range map[*string]string{&w.Level: "INFO", &w.Event: "admin_change", &w.Namespace: "default"} {
				if *field == "" {
					*field = normal
				}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s (%d %s)\n%s", c.method, c.path, status, body, diff)
		}
	}
}

// tlsConn is a connection whose TLS was terminated by another listener.
type tlsConn struct{ net.Conn }

func (tlsConn) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{HandshakeComplete: true}
}

type tlsListener struct {
	net.Listener
	on bool
}

func (l tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.on {
		conn = tlsConn{conn}
	}
	return conn, err
}

// Links and connection strings use the address by which the client reached the server.
func TestLinksAreHTTPSOverTLS(t *testing.T) {
	t.Parallel()
	for scheme, on := range map[string]bool{"http": false, "https": true} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h := newFakeControl()
		h.namespace.Access = []fsm.AccessRule{{Name: "k", Primary: "s", Rights: fsm.Manage}}
		server, err := Open(t.Context(), Config{TrustLoopback: true, Listener: tlsListener{l, on}, Control: h, Authority: fakeAuthority{}, Ready: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if body := get(t, "http://"+l.Addr().String()+"/$namespaceinfo"); !strings.Contains(body, "<id>"+scheme+"://") {
			t.Errorf("TLS %t: %s", on, body)
		}
		// A client that uses TLS must not be told to connect without it.
		if body := get(t, "http://"+l.Addr().String()+"/v1/access"); strings.Contains(body, emulatorFlag) == on || !strings.Contains(body, "Endpoint=") {
			t.Errorf("TLS %t: %s", on, body)
		}
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A client that sends headers or body too slowly is disconnected. The test runs in a bubble, in virtual time.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipes := kit.NewPipeListener()
		newTestServerOn(t, pipes)
		for name, c := range map[string]struct {
			sent string
			most time.Duration
			want string
		}{
			"headers": {"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nX-", headerWaitMax, ""},
			"body":    {"PUT /v1/queues/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", requestReadMax, "HTTP/1.1 400"},
			"XML":     {"PUT /q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n<entry>", requestReadMax, "HTTP/1.1 400"},
		} {
			conn := pipes.Dial(t, func(server net.Conn) net.Conn { return loopbackConn{server} })
			begun := time.Now()
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Fatal(name, err)
			}
			_ = conn.SetReadDeadline(begun.Add(c.most + 10*time.Second))
			first, _ := bufio.NewReader(conn).ReadString('\n')
			if took := time.Since(begun); took != c.most || !strings.HasPrefix(first, c.want) {
				t.Errorf("%s: %q after %s, want %q after %s", name, first, took, c.want, c.most)
			}
			_ = conn.Close()
		}
	})
}

// loopbackConn is a connection from this machine.
type loopbackConn struct{ net.Conn }

func (loopbackConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }
