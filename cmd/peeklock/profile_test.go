package main

import (
	"log/slog"
	"strings"
	"testing"
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
	stop, err := servePprof(t.Context(), "127.0.0.1:0", logger)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
