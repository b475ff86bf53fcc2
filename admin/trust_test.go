package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// proxiedListener marks connections whose remote address a proxy reported, as cmd/listen does.
type proxiedListener struct{ net.Listener }

func (l proxiedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return proxiedConn{conn}, err
}

type proxiedConn struct{ net.Conn }

func (proxiedConn) Proxied() bool { return true }

// runningServer is a server on loopback and on its own socket, with clients for both.
type runningServer struct {
	*testServer
	url         string
	tcp, socket *http.Client
}

func serveBoth(t *testing.T, change func(*Config)) *runningServer {
	t.Helper()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	local, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &runningServer{testServer: &testServer{fakeControl: newFakeControl()}, url: "http://" + tcp.Addr().String(), tcp: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	s.socket = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	ring, err := auth.New(auth.Config{Rules: s.fakeControl, Keys: []auth.Key{{Name: "root", Primary: "root-secret", Rights: fsm.Manage}}})
	if err != nil {
		t.Fatal(err)
	}
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	config := Config{
		Listener: tcp, Local: Local{local, "broker.example:5672"}, Control: s.fakeControl, Authority: ring, Ready: s.ready.Load,
		Logger: slog.New(slog.DiscardHandler), Audit: slog.New(slog.NewJSONHandler(&s.audit, nil)), Metrics: says("whole"), PublicMetrics: says("open"),
	}
	change(&config)
	if s.server, err = Open(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// get sends a request with a client under a host name.
func (s *runningServer) get(t *testing.T, by *http.Client, host, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	if change != nil {
		change(request)
	}
	response, err := by.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestLoopbackIsTrustedOnlyIfConfigured checks that an address of this machine gives access only if the server is configured so, and never
// if the address comes from a PROXY header; the socket of operators gives access.
func TestLoopbackIsTrustedOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		tcp    int    // status of a request that requires an operator
		metric string // content of /metrics without a credential
	}{
		"by default":                {func(*Config) {}, 401, "open"},
		"loopback trusted":          {func(c *Config) { c.TrustLoopback = true }, 200, "whole"},
		"loopback behind a proxy":   {func(c *Config) { c.Listener = proxiedListener{c.Listener} }, 401, "open"},
		"the same, trusted":         {func(c *Config) { c.TrustLoopback, c.Listener = true, proxiedListener{c.Listener} }, 401, "open"},
		"no metrics are for all":    {func(c *Config) { c.PublicMetrics = nil }, 401, `"code":"Unauthorized"`},
		"none, loopback is trusted": {func(c *Config) { c.PublicMetrics, c.TrustLoopback = nil, true }, 200, "whole"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveBoth(t, c.change)
			for _, host := range []string{"localhost", "127.0.0.1:5300", "[::1]:5300"} {
				for _, path := range []string{"/v1/status", "/v1/queues", "/v1/endpoints"} {
					if status, body := s.get(t, s.tcp, host, path, nil); status != c.tcp {
						t.Errorf("%s at %s: %d %s", path, host, status, body)
					}
				}
			}
			if _, body := s.get(t, s.tcp, "localhost", "/metrics", nil); !strings.Contains(body, c.metric) {
				t.Errorf("metrics: %q", body)
			}
			for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/health": 503} {
				if status, body := s.get(t, s.tcp, "anything", path, nil); status != want {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			for _, path := range []string{"/v1/status", "/v1/queues", "/metrics"} {
				if status, body := s.get(t, s.socket, "localhost", path, nil); status != 200 || strings.Contains(body, "open") {
					t.Errorf("%s through the socket: %d %s", path, status, body)
				}
			}
		})
	}
}

// TestRequestsThroughTheSocketAreAnOperators checks that a request through the socket is an operator's, with that name in the audit log,
// unless it has a wrong signature. Connection strings have an address that clients can use, and other requests
// do not block those through the socket.
func TestRequestsThroughTheSocketAreAnOperators(t *testing.T) {
	t.Parallel()
	s := serveBoth(t, func(c *Config) { c.RequireTLS = true })
	if _, err := s.CreateEntity(t.Context(), fsm.QueueEntity, "a", fsm.EntitySettings{}, nil, []fsm.AccessRule{{Name: "r", Primary: "k", Rights: fsm.Send}}); err != nil {
		t.Fatal(err)
	}
	if status, body := s.get(t, s.socket, "localhost", "/v1/access/a", nil); status != 200 || !strings.Contains(body, `"Endpoint=sb://broker.example:5672;SharedAccessKeyName=r;SharedAccessKey=k;EntityPath=a"`) {
		t.Error(status, body)
	}
	sign := func(key string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", auth.Sign("http://localhost/", "root", key, time.Now().Add(time.Minute)))
		}
	}
	for key, want := range map[string]int{"root-secret": 200, "wrong": 401} {
		if status, body := s.get(t, s.socket, "localhost", "/v1/queues", sign(key)); status != want {
			t.Errorf("%s: %d %s", key, status, body)
		}
	}
	var endpoints api.Endpoints
	if _, body := s.get(t, s.socket, "localhost", "/v1/endpoints", nil); json.Unmarshal([]byte(body), &endpoints) != nil || !endpoints.RequireTLS {
		t.Error(body)
	}
	for range requestsMax {
		s.server.requests <- struct{}{} // other clients occupy all request slots
	}
	if status, _ := s.get(t, s.tcp, "localhost", "/v1/queues", nil); status != http.StatusServiceUnavailable {
		t.Error("not full:", status)
	}
	remove := func(r *http.Request) { r.Method = http.MethodDelete }
	if status, body := s.get(t, s.socket, "localhost", "/v1/queues/a", remove); status != 204 {
		t.Error(status, body)
	}
	if audit := s.audit.String(); !strings.Contains(audit, `"who":"control socket"`) || !strings.Contains(audit, `"operation":"delete"`) {
		t.Error(audit)
	}
}

// TestUnreadPublicMetricsHoldNoSlot checks that clients without a credential that request the public metrics
// and do not read them occupy no slot that others need.
func TestUnreadPublicMetricsHoldNoSlot(t *testing.T) {
	t.Parallel()
	var answers atomic.Int32
	metrics := make([]byte, 32<<20) // exceeds the buffers of a connection
	s := serveBoth(t, func(c *Config) {
		c.PublicMetrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answers.Add(1)
			_, _ = w.Write(metrics)
		})
	})
	began := time.Now()
	for range requestsMax {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return answers.Load() == requestsMax && len(s.server.requests) == 0 })
	if took := time.Since(began); took > responseWriteMax/2 {
		t.Errorf("slots were kept for %s", took)
	}
	sign := func(r *http.Request) {
		r.Header.Set("Authorization", auth.Sign("http://localhost/", "root", "root-secret", time.Now().Add(time.Minute)))
	}
	if status, body := s.get(t, s.tcp, "localhost", "/v1/queues", sign); status != 200 {
		t.Error(status, body)
	}
}
