package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Ten lines per second are passed; the others are counted on the next line.
func TestSlowOperationLinesAreBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(100, 0)
	h := &rateLimitedHandler{to: slog.NewTextHandler(&out, nil), state: &lineCount{}, now: func() time.Time { return now }}
	one, other := slog.New(h), slog.New(h).With("partition", 7)
	for range slowLinesMax {
		one.Warn("slow operation")
		other.Warn("slow operation")
	}
	if n := strings.Count(out.String(), "\n"); n != slowLinesMax || strings.Contains(out.String(), "omitted") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
	out.Reset()
	now = now.Add(time.Second)
	other.Warn("slow operation")
	one.Warn("slow operation")
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "partition=7 omitted=10") || strings.Contains(lines[1], "omitted") {
		t.Errorf("%s", out.String())
	}
}
