package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// writeJSON writes a response as a member does.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// busyServer refuses the first requests as a cluster that is starting, and returns the number of requests.
func busyServer(t *testing.T, refusals int32) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= refusals {
			writeJSON(w, 503, api.Problem{Code: "ServerBusy", Message: "the cluster is starting", TrackingID: "t"})
			return
		}
		writeJSON(w, 200, api.Member{})
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// A command that is given while the cluster starts waits until it has started.
func TestCommandsWaitForAStartingCluster(t *testing.T) {
	t.Parallel()
	address, asked := busyServer(t, 2)
	c := &Client{Servers: []string{address}}
	if err := c.Call(t.Context(), http.MethodPatch, "/v1/members/a", api.MemberChange{}, nil); err != nil || asked.Load() != 3 {
		t.Errorf("%d requests, want 3: %v", asked.Load(), err)
	}
}

// A member whose certificate does not fit is skipped like one that does not answer: it got no request.
func TestServersWithUnknownCertificatesAreSkipped(t *testing.T) {
	t.Parallel()
	unknown := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	unknown.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	unknown.StartTLS()
	t.Cleanup(unknown.Close)
	address, asked := busyServer(t, 0)
	noTLS := strings.Replace(address, "http://", "https://", 1)
	c := &Client{Servers: []string{unknown.URL, noTLS, address}}
	if err := c.Call(t.Context(), http.MethodPatch, "/v1/members/a", api.MemberChange{}, nil); err != nil || asked.Load() != 1 {
		t.Errorf("%d requests, want 1: %v", asked.Load(), err)
	}
}

// A change whose outcome is unknown is not repeated: a second key would replace the one that the first request made.
func TestUnknownChangeIsNotRepeated(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		writeJSON(w, 504, api.Problem{Code: "Timeout", Message: "partially applied before the cluster became unavailable", TrackingID: "t"})
	}))
	t.Cleanup(server.Close)
	c := &Client{Servers: []string{server.URL}}
	err := c.Call(t.Context(), http.MethodPost, "/v1/regenerate", api.RegenerateRequest{Rule: "r", Which: api.KeyPrimary}, nil)
	if !cli.IsUnknown(err) || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// A load balancer may choose a member that is gone, and the connection ends without an answer. What only reads is asked again; a
// change is not.
func TestReadsThatAreCutOffAreRepeated(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 || r.Method != http.MethodGet {
			panic(http.ErrAbortHandler)
		}
		writeJSON(w, 200, struct{}{})
	}))
	t.Cleanup(server.Close)
	c := &Client{Servers: []string{server.URL}}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/members", nil, nil); err != nil || asked.Load() != 2 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
	if err := c.Call(t.Context(), http.MethodPost, "/v1/regenerate", struct{}{}, nil); err == nil || asked.Load() != 3 {
		t.Errorf("a change: asked %d times: %v", asked.Load(), err)
	}
}

// A cluster that stays busy is reported as such: no command waits forever, and an interrupt ends the waiting.
func TestBusyClusterIsReported(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	address, asked := busyServer(t, 1<<30)
	c := &Client{Servers: []string{address}}
	began := time.Now()
	if err := c.Call(t.Context(), http.MethodGet, "/v1/members", nil, nil); !IsBusy(err) || time.Since(began) < BusyTimeMax || asked.Load() < 5 {
		t.Errorf("%v after %s and %d requests", err, time.Since(began), asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Call(ctx, http.MethodGet, "/v1/members", nil, nil); err == nil {
		t.Error("an interrupted command succeeds")
	}
}
