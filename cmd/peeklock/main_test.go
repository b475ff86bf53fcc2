package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// parallelTests runs the tests of this package with kit.Parallel.
type parallelTests struct{ *testing.M }

// Run implements testscript.TestingM.
func (m parallelTests) Run() int {
	kit.Parallel(4)
	return m.M.Run()
}

// The scripts run this test binary as peeklock; then it runs no tests.
func TestMain(m *testing.M) {
	testscript.Main(parallelTests{m}, map[string]func(){"peeklock": func() { os.Exit(start()) }})
}

// Each script has a control server of its own, whose address is in PEEKLOCK_SERVER.
func TestCommandsBehaveAsTheScriptsSay(t *testing.T) {
	if kit.RaceDetector {
		t.Skip("some 300 processes that each make one request: with the race detector their starts take minutes and show nothing")
	}
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			server := startStub(newNamespaceStub())
			e.Defer(server.Close)
			e.Setenv("PEEKLOCK_SERVER", server.URL)
			e.Setenv("SERVER", server.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// startStub serves a stub. It closes connections that use AMQP: commands that try the control address as an
// AMQP address, too, would otherwise wait for seconds.
func startStub(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Listener = httpOnly{server.Listener}
	server.Start()
	return server
}

// httpOnly ends connections whose first bytes are those of AMQP.
type httpOnly struct{ net.Listener }

func (l httpOnly) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &httpConn{Conn: c}, nil
}

type httpConn struct {
	net.Conn

	begun bool
}

func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.begun && strings.HasPrefix(string(b[:n]), "AMQP") {
		return 0, io.EOF
	}
	c.begun = true
	return n, err
}

// exits CODE COMMAND... runs a command and checks that it ends with this code, and that a failure gives the reason
// in exactly one line on standard error.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if text := ts.ReadFile("stderr"); got != 0 && (strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "peeklock: ")) {
		ts.Fatalf("not one line: %q", text)
	}
}

// stub answers like a member with queues in memory.
type stub struct {
	mu     sync.Mutex
	queues []api.Queue
	left   int // ready messages of every queue
}

func newStub() http.Handler {
	s := &stub{left: 2500}
	mux := http.NewServeMux()
	new(topicStub).routes(mux)
	new(operateStub).routes(mux)
	mux.HandleFunc("PUT /v1/queues/{name...}", s.create)
	mux.HandleFunc("PATCH /v1/queues/{name...}", s.update)
	mux.HandleFunc("GET /v1/queues/{name...}", s.show)
	mux.HandleFunc("POST /v1/purge/{name...}", s.purge)
	mux.HandleFunc("DELETE /v1/queues/{name...}", s.delete)
	mux.HandleFunc("GET /v1/queues", s.list)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, topology.Status{
			ClusterID: "c1", FormatLevel: 1, FormatLevelMax: 1, TimeHeld: true, TimeStep: 3 * time.Hour,
			Members: []topology.Member{
				{ID: "m1", Name: "one", State: "alive", AMQP: "localhost:5672", HTTP: "localhost:5300", Leads: 1, Holds: 2, Version: "dev"},
				{ID: "m2", Name: "two", State: "dead", AMQP: "localhost:5682", HTTP: "localhost:5310", Holds: 2, Version: "dev"},
			},
			Partitions: []topology.Partition{
				{ID: 0, Leader: "m1", Term: 2, Applied: 9, Replicas: []fsm.MemberID{"m1", "m2"}, Entities: 1, Contact: 1500 * time.Microsecond},
				{ID: 1, Term: 3, Applied: 4, Replicas: []fsm.MemberID{"m1", "gone"}, Messages: 5},
			},
		})
	})
	mux.HandleFunc("PUT /v1/format-level", func(w http.ResponseWriter, r *http.Request) {
		var asked api.FormatLevelRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Max == 7 {
			answer(w, 412, api.Problem{Code: "PreconditionFails", Message: "the cluster has a higher format level than 7", TrackingID: "t"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /v1/confirm-time", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, api.ConfirmedTime{Step: 3 * time.Hour})
	})
	// Port 1 never answers: in scripts that need AMQP, the connection is refused.
	mux.HandleFunc("GET /v1/endpoints", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, api.Endpoints{Members: []api.Endpoint{{Name: "one", State: "alive", AMQP: "127.0.0.1:1"}}})
	})
	return mux
}

func (s *stub) create(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	if name == "slow" {
		answer(w, 504, api.Problem{Code: "Timeout", Message: "timeout: no leader answered", TrackingID: "t"})
		return
	}
	q := api.Queue{Name: name, Partition: 2, Version: 1}
	if err := json.NewDecoder(r.Body).Decode(&q.Settings); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	for _, other := range s.queues {
		if other.Name == q.Name {
			answer(w, 409, api.Problem{Code: "EntityExists", Message: "entity already exists", TrackingID: "t"})
			return
		}
	}
	s.queues = append(s.queues, q)
	answer(w, 201, q)
}

// update returns what was sent to it, so that scripts see the exact effect of flags.
func (s *stub) update(w http.ResponseWriter, r *http.Request) {
	q := api.Queue{Name: r.PathValue("name"), Partition: 2, Version: 2}
	if err := json.NewDecoder(r.Body).Decode(&q.Settings); err != nil {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: err.Error(), TrackingID: "t"})
		return
	}
	answer(w, 200, q)
}

// purge removes at most a thousand messages, whatever the request says, and refuses to purge the dead-letter
// queue.
func (s *stub) purge(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked api.PurgeRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Max < 1 || asked.Max > 4000 || asked.SubQueue != "" {
		answer(w, 400, api.Problem{Code: "InvalidArgument", Message: "not so", TrackingID: "t"})
		return
	}
	if strings.Contains(r.PathValue("name"), "/Subscriptions/") {
		answer(w, 200, api.Affected{Count: asked.Max})
		return
	}
	n := min(asked.Max, s.left)
	s.left -= n
	answer(w, 200, api.Affected{Count: n})
}

func (s *stub) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if q.Name == r.PathValue("name") {
			q.Counts = &api.Counts{Active: uint64(s.left) + 3, Locked: 3, DeadLetter: 1}
			answer(w, 200, q)
			return
		}
	}
	answer(w, 404, api.Problem{Code: "EntityNotFound", Message: "entity not found", TrackingID: "t"})
}

func (s *stub) delete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queues {
		if q.Name == r.PathValue("name") {
			s.queues = append(s.queues[:i], s.queues[i+1:]...)
			w.WriteHeader(204)
			return
		}
	}
	answer(w, 404, api.Problem{Code: "EntityNotFound", Message: "entity not found", TrackingID: "t"})
}

// list returns one queue per page, which tests the paging.
func (s *stub) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := api.QueuePage{Queues: []api.Queue{}}
	for _, q := range s.queues {
		if q.Name > r.URL.Query().Get("after") {
			q.Counts = &api.Counts{Active: 3, Bytes: 2048}
			page.Queues, page.Next = append(page.Queues, q), q.Name
			break
		}
	}
	answer(w, 200, page)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
