package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Profiles show the content of memory, so they are served to this machine only.
func TestPprofStaysOnLoopback(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		if stop, err := servePprof(t.Context(), address, logger); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", address, err)
			if err == nil {
				stop()
			}
		}
	}
	stop := kit.Must(servePprof(t.Context(), "127.0.0.1:0", logger))(t)
	stop()
}

// A web page whose DNS name was pointed at a loopback address reads no profile.
func TestPprofAnswersLoopbackHostsOnly(t *testing.T) {
	t.Parallel()
	handler := requireLoopbackHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:6060": 200, "127.0.0.1:6060": 200, "[::1]:6060": 200, "LOCALHOST": 200,
		"evil.example:6060": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "": 403,
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/heap", http.NoBody)
		request.Host = host
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		if response.Code != want {
			t.Errorf("host %q: status %d, want %d", host, response.Code, want)
		}
	}
}
