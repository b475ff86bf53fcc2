package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server with a fake cluster that is called without a network.
type testServer struct {
	*fakeControl
	server *Server
	ready  atomic.Bool
	unwell atomic.Bool
	log    bytes.Buffer
	audit  bytes.Buffer
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newTestServerOn(t, l)
}

func newTestServerOn(t *testing.T, l net.Listener) *testServer {
	t.Helper()
	r := &testServer{fakeControl: newFakeControl()}
	ring, err := auth.New(auth.Config{Rules: r.fakeControl, Keys: []auth.Key{
		{Name: "root", Primary: "root-secret", Rights: fsm.Manage},
		{Name: "app", Primary: "app-secret", Rights: fsm.Send},
		{Name: "reader", Primary: "reader-secret", Rights: fsm.Listen},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.server, err = Open(t.Context(), Config{Listener: l, TrustLoopback: true, Control: r.fakeControl, Finder: inspect.New(fakeMessages{control: r.fakeControl}), Authority: ring, Ready: r.ready.Load, ReadinessChecks: r.parts, LivenessChecks: r.live, Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Audit: slog.New(slog.NewJSONHandler(&r.audit, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // a second close has no effect
			if err := r.server.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// request performs a request as a caller at remote and returns status and body.
func (r *testServer) request(method, path, body string, change func(*http.Request)) (int, string) {
	w := do(r.server.http.Handler, method, path, func(request *http.Request) {
		request.Body = io.NopCloser(strings.NewReader(body))
		if change != nil {
			change(request)
		}
	})
	return w.Code, w.Body.String()
}

func do(h http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://localhost:5300"+path, nil)
	request.RemoteAddr = "127.0.0.1:1"
	change(request)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w
}

func TestQueuesAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/queues/orders/new", "", 201, `"lockDuration":"30s","maxDeliveryCount":10,"maxMessageBytes":262144,"defaultMessageTimeToLive":"forever","deadLetteringOnMessageExpiration":false,"requiresDuplicateDetection":false,"duplicateDetectionHistoryTimeWindow":"10m0s","autoDeleteOnIdle":"forever","maxSizeInMegabytes":1024,"status":"Active","userMetadata":"","forwardTo":"","forwardDeadLetteredMessagesTo":"","requiresSession":false,"enablePartitioning":false,"deadLetterTimeToLive":"forever","retryDelay":"0s","retryDelayMax":"0s","partition":3`},
		{"PUT", "/v1/queues/orders/new", "", 409, `"code":"EntityExists"`},
		{"PUT", "/v1/queues/b", `{"lockDuration":"PT1M","maxDeliveryCount":3}`, 201, `"lockDuration":"1m0s","maxDeliveryCount":3`},
		{"PATCH", "/v1/queues/B", `{"maxDeliveryCount":4}`, 200, `"lockDuration":"1m0s","maxDeliveryCount":4`},
		{"GET", "/v1/queues/orders/new", "", 200, `"counts":{"active":7`},
		{"GET", "/v1/queues?max=1&counts=true", "", 200, `"next":"b"`},
		{"GET", "/v1/queues?max=1&after=b", "", 200, `"name":"orders/new"`},
		{"GET", "/v1/queues?after=orders/new", "", 200, `{"queues":[]}`},
		{"DELETE", "/v1/queues/b", "", 204, ""},
		{"DELETE", "/v1/queues/b", "", 404, `The messaging entity 'b' could not be found.`},
		{"GET", "/v1/queues/b", "", 404, `"code":"EntityNotFound"`},
		{"PATCH", "/v1/queues/b", "{}", 404, `"trackingId":"`},
		{"GET", "/v1/status", "", 200, `"clusterId":"c"`},
	} {
		status, body := r.request(step.method, step.path, step.body, nil)
		if status != step.status || !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %d %s\nwant %d with %s", step.method, step.path, status, body, step.status, step.want)
		}
	}
}

func TestRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/queues/q", `{"lockDuratoin":"30s"}`, 400, "lockDuratoin"},
		{"PUT", "/v1/queues/q", `{"lockDuration":30}`, 400, "a duration is text"},
		{"PUT", "/v1/queues/q", `{"lockDuration":"999ms"}`, 400, "1s to 5m0s, not 999ms"},
		{"PUT", "/v1/queues/q", `{"lockDuration":"5m1s"}`, 400, "1s to 5m0s, not 5m1s; maxLockDuration of the namespace"},
		{"PUT", "/v1/queues/q", `{"maxDeliveryCount":0}`, 400, "1 to 2147483647"},
		{"PUT", "/v1/queues/q", `{"maxDeliveryCount":2147483648}`, 400, "1 to 2147483647"},
		{"PUT", "/v1/queues/q", `{"maxMessageBytes":1023}`, 400, "1024 to"},
		{"PUT", "/v1/queues/q", `{"maxMessageBytes":1048577}`, 400, "1024 to"},
		{"PUT", "/v1/queues/q", `{"maxMessageBytes":-1}`, 400, "maxMessageBytes"},
		{"PUT", "/v1/queues/q", `{} {}`, 400, "more than one"},
		{"PUT", "/v1/queues/q", `{`, 400, "the body"},
		{"PUT", "/v1/queues/q", strings.Repeat(" ", bodyBytesMax+1), 413, "131072 bytes"},
		{"PUT", "/v1/queues/", "", 400, "names no queue"},
		{"PUT", "/v1/queues/" + strings.Repeat("n", entity.NameCharactersMax+1), "", 400, "260"},
		{"PUT", "/v1/queues/a$b", "", 400, "letters"},
		{"PUT", "/v1/queues/a%2f%2fb", "", 400, "empty part"},
		{"PUT", "/v1/queues/a//b", "", 400, "empty part"},
		{"PUT", "/v1/queues/a/../b", "", 400, "empty part"},
		{"PUT", "/v1/queues/-a", "", 400, "begins with a letter"},
		{"GET", "/v1/queues?max=0", "", 400, "1 to 1000"},
		{"GET", "/v1/queues?max=1001", "", 400, "1 to 1000"},
		{"GET", "/v1/queues?counts=maybe", "", 400, "true or false"},
		{"GET", "/v1/queues?count=true", "", 400, "unknown parameter"},
		{"PUT", "/v1/queues/t/subscriptions/s", "", 400, "names a subscription, not a queue"},
		{"PUT", "/v1/queues/SUBSCRIPTIONS/s", "", 400, "has no part"},
		{"POST", "/v1/queues/q", "", 403, "POST is not possible"},
		{"GET", "/v1", "", 404, "below /v1"},
	} {
		status, body := r.request(c.method, c.path, c.body, nil)
		var p api.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != c.status || !strings.Contains(p.Message, c.want) || p.Code == "" || len(p.TrackingID) != 16 {
			t.Errorf("%s %.60s: %d %s\nwant %d with %s", c.method, c.path, status, body, c.status, c.want)
		}
	}
	if len(r.entities) != 0 {
		t.Errorf("something was made: %v", r.entities)
	}
	// Values equal to the limits are accepted.
	if status, body := r.request("PUT", "/v1/queues/"+strings.Repeat("n", entity.NameCharactersMax), `{"lockDuration":"5m","maxDeliveryCount":2147483647,"maxMessageBytes":1048576}`, nil); status != 201 {
		t.Error(status, body)
	}
}

// Every code has an explicit status, including codes that are added later: the list ends where String knows no
// more names.
func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for code := range fsm.Code(255) {
		known := !strings.HasPrefix(code.String(), "code ")
		a := statusOf(code)
		if known && code != fsm.Internal && a.name == "Internal" {
			t.Errorf("%s has no answer", code)
		}
		if known && code != fsm.OK && (a.status < 400 || a.status > 599) {
			t.Errorf("%s answers %d", code, a.status)
		}
	}
}

func TestErrorsOfTheClusterKeepTheirCode(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		fsm.ServerBusy: 503, context.DeadlineExceeded: 504, fsm.QuotaExceeded: 403, fmt.Errorf("open /data/x: bad sector"): 500,
	} {
		r := newTestServer(t)
		r.fails = fmt.Errorf("list queues: %w", err)
		status, body := r.request("GET", "/v1/queues", "", nil)
		if status != want {
			t.Errorf("%v: %d, want %d", err, status, want)
		}
		if want == 500 {
			var p api.Problem
			_ = json.Unmarshal([]byte(body), &p)
			if strings.Contains(body, "/data/x") {
				t.Error("the answer tells of the inside:", body)
			}
			if log := r.log.String(); !strings.Contains(log, p.TrackingID) || !strings.Contains(log, "/data/x") {
				t.Error("the log does not know the tracking id:", log)
			}
		}
	}
}

// TestBusyAfterAChangeIsUnknown checks that clients are told to repeat a request only if nothing was done: a cluster
// that is busy after the first change of a request answers that the outcome is unknown, and the audit log says the same.
func TestBusyAfterAChangeIsUnknown(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.fails = fmt.Errorf("the partition has no leader: %w", fsm.ServerBusy)
	changed := false
	r.server.config.TrackChanges = func(ctx context.Context) (context.Context, func() bool) { return ctx, func() bool { return changed } }
	for _, c := range []struct {
		method  string
		changed bool
		want    int
		audit   string
	}{{"PUT", false, 503, `"outcome":"ServerBusy"`}, {"PUT", true, 504, `"outcome":"Timeout"`}, {"GET", true, 503, ""}} {
		changed = c.changed
		r.audit.Reset()
		status, body := r.request(c.method, "/v1/queues/orders", "", nil)
		if status != c.want {
			t.Errorf("%s, changed %v: %d %s", c.method, c.changed, status, body)
		}
		if line := r.audit.String(); !strings.Contains(line, c.audit) || (line == "") != (c.audit == "") {
			t.Errorf("%s, changed %v: audit log %q", c.method, c.changed, line)
		}
	}
}

func TestEveryRequestNeedsItsRight(t *testing.T) {
	t.Parallel()
	sign := func(resource, name, key string) func(*http.Request) {
		return func(r *http.Request) {
			r.RemoteAddr = "10.0.0.9:1"
			r.Header.Set("Authorization", auth.Sign(resource, name, key, time.Now().Add(time.Minute)))
		}
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"loopback":                {nil, 200},
		"loopback 6":              {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:9", "[::1]:5300" }, 200},
		"elsewhere":               {func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, 401},
		"rebound name":            {func(r *http.Request) { r.Host = "evil.example:5300" }, 401},
		"half a loopback name":    {func(r *http.Request) { r.Host = "localhost.evil.example" }, 401},
		"signed":                  {sign("http://localhost:5300/", "root", "root-secret"), 200},
		"signed, whole URL":       {sign("http://localhost:5300/v1/queues?max=1", "root", "root-secret"), 200},
		"wrong key":               {sign("http://localhost:5300/", "root", "other"), 401},
		"another host of it":      {sign("http://elsewhere:5300/", "root", "root-secret"), 200},
		"a host that cannot be":   {sign("?://localhost/", "root", "root-secret"), 400},
		"key without manage":      {sign("http://localhost:5300/", "app", "app-secret"), 401},
		"wrong key on loopback":   {func(r *http.Request) { sign("http://localhost/", "root", "x")(r); r.RemoteAddr = "127.0.0.1:1" }, 401},
		"no signature at all":     {func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1"; r.Header.Set("Authorization", "Basic x") }, 400},
		"other site, on loopback": {func(r *http.Request) { r.Method = "DELETE"; r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := newTestServer(t).request("GET", "/v1/queues?max=1", "", c.change)
			if status != c.status {
				t.Errorf("%d %s, want %d", status, body, c.status)
			}
		})
	}
}

func TestEndpointsListLivingMembersFirst(t *testing.T) {
	t.Parallel()
	status, body := newTestServer(t).request("GET", "/v1/endpoints", "", nil)
	var got api.Endpoints
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatal(status, body, err)
	}
	want := api.Endpoints{Members: []api.Endpoint{{Name: "a", State: "alive", AMQP: "a:5672"}, {Name: "c", State: "alive", AMQP: "c:5672"}, {Name: "b", State: "dead", AMQP: "b:5672"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func (r *testServer) parts() []api.Check {
	if r.unwell.Load() {
		return []api.Check{{Name: "catalog", OK: false, Text: "silent"}, {Name: "disk", OK: true, Text: "full"}}
	}
	return []api.Check{{Name: "catalog", OK: true, Text: "up to date"}, {Name: "disk", OK: true, Text: "full"}}
}

func (r *testServer) live() []api.Check {
	if r.unwell.Load() {
		return []api.Check{{Name: "log", OK: false, Text: "a write has taken 31s"}}
	}
	return []api.Check{{Name: "log", OK: true, Text: "writes"}}
}

// Health needs no key, because orchestrators have none.
func TestHealthNeedsNoKey(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	remote := func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }
	for _, ready := range []bool{false, true} {
		r.ready.Store(ready)
		want, emulator := 503, `{"status":"unhealthy","message":"Service not available. Please try after some time."}`
		if ready {
			want, emulator = 200, `{"status":"healthy","message":"Service is healthy."}`
		}
		if _, body := r.request("GET", "/health", "", remote); body != emulator+"\n" {
			t.Errorf("not the emulator's answer: %s, want %s", body, emulator)
		}
		for path, want := range map[string]int{"/health": want, "/readyz": want, "/livez": 200} {
			if status, body := r.request("GET", path, "", remote); status != want {
				t.Errorf("%s: %d %s, want %d", path, status, body, want)
			}
		}
	}
}

// Failed checks are named; with ?verbose all checks are. A failed check affects liveness only if a restart
// would help.
func TestHealthListsChecks(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.ready.Store(true)
	for _, c := range []struct {
		path string
		code int
		body string
	}{
		{"/readyz", 200, `{"status":"healthy","message":"Service is healthy."}`},
		{"/readyz?verbose", 200, `{"status":"healthy","message":"Service is healthy.","checks":[{"name":"catalog","ok":true,"text":"up to date"},{"name":"disk","ok":true,"text":"full"}]}`},
		{"/livez?verbose", 200, `{"status":"alive","message":"The process answers.","checks":[{"name":"log","ok":true,"text":"writes"}]}`},
	} {
		if code, body := r.request("GET", c.path, "", nil); code != c.code || body != c.body+"\n" {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
	r.ready.Store(false)
	r.unwell.Store(true)
	for path, want := range map[string]string{
		"/readyz": `{"status":"unhealthy","message":"Not ready: catalog."}`,
		"/livez":  `{"status":"stuck","message":"Stuck: log."}`,
	} {
		if code, body := r.request("GET", path, "", nil); code != 503 || body != want+"\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if _, body := r.request("GET", "/readyz?verbose", "", nil); !strings.Contains(body, `{"name":"catalog","ok":false,"text":"silent"}`) {
		t.Error(body)
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	r.holds = make(chan struct{})
	var waiting sync.WaitGroup
	for range requestsMax {
		waiting.Go(func() { r.request("GET", "/v1/queues", "", nil) })
	}
	until(t, func() bool { return r.listed.Load() == requestsMax })
	if status, body := r.request("GET", "/v1/status", "", nil); status != 503 || !strings.Contains(body, "ServerBusy") {
		t.Error(status, body)
	}
	if status, _ := r.request("GET", "/livez", "", nil); status != 200 {
		t.Error("liveness must not depend on load:", status)
	}
	close(r.holds)
	waiting.Wait()
	if status, body := r.request("GET", "/v1/status", "", nil); status != 200 {
		t.Error(status, body)
	}
}

// TestSlowBodiesHoldNoSlot checks slow clients: as many clients as there are slots begin a request and do not
// send its body; the next client is served, and so are the slow ones when they continue.
func TestSlowBodiesHoldNoSlot(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	address := r.server.config.Listener.Addr().String()
	for i := range requestsMax {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		answered := func(want int) {
			t.Helper()
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != want {
				t.Fatal(response.Status)
			}
		}
		if _, err := fmt.Fprintf(conn, "PUT /v1/queues/q%d HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", i); err != nil {
			t.Fatal(err)
		}
		answered(http.StatusContinue) // the server reads the body
		if i == 0 {
			defer func() {
				if _, err := io.WriteString(conn, "{}"); err != nil {
					t.Fatal(err)
				}
				answered(http.StatusCreated)
			}()
		}
	}
	if status, body := r.request("PUT", "/v1/queues/next", "{}", nil); status != 201 {
		t.Error(status, body)
	}
	// A request whose body was received waits for a slot while all are occupied.
	for range requestsMax {
		r.server.requests <- struct{}{}
	}
	late := &slot{slots: r.server.requests}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := late.reacquire(ctx); !errors.Is(err, fsm.ServerBusy) {
		t.Error(err)
	}
	for range requestsMax {
		<-r.server.requests
	}
}

// Limits that a test would have to wait for are set: a call of the cluster is abandoned after a time, and so
// is a client that does not read its answer or sends nothing.
func TestRequestTimesAreBounded(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	var left time.Duration
	handler := r.server.guard(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		end, _ := q.Context().Deadline()
		left = time.Until(end)
	}))
	do(handler, "GET", "/v1/queues", func(*http.Request) {})
	if left <= 0 || left > requestTimeMax {
		t.Errorf("a request may take %s", left)
	}
	h := r.server.http
	got := []time.Duration{h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout}
	if diff := cmp.Diff([]time.Duration{headerWaitMax, requestReadMax, responseWriteMax, idleMax}, got); diff != "" {
		t.Error(diff)
	}
}

// One real request over the network: headers above the limit are refused, normal ones are accepted.
func TestServerServesOverTCPAndCloses(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	base := "http://" + r.server.config.Listener.Addr().String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for size, want := range map[int]int{100: 200, 2 * connection.HeaderBytesMax: 431} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/queues", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Filler", strings.Repeat("x", size))
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d bytes of header: %d, want %d", size, response.StatusCode, want)
		}
	}
}

// until waits for an event of another goroutine.
func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(60 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("did not happen within 60 s")
		}
	}
}
