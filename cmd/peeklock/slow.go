package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// slowLinesMax is the number of lines about slow operations that a member writes in a second; it counts the others
// on the next line. When a disk hangs, everything is slow at once.
const slowLinesMax = 10

// slowLogger returns the logger to which all packages of a member report slow operations.
func slowLogger(to *slog.Logger) *slog.Logger { return rateLimited(to.With("component", "slow")) }

// rateLimited returns a logger that passes slowLinesMax lines per second and counts the others.
func rateLimited(to *slog.Logger) *slog.Logger {
	return slog.New(&rateLimitedHandler{to: to.Handler(), state: &lineCount{}, now: time.Now})
}

// rateLimitedHandler is a slog.Handler that passes a limited number of lines per second.
type rateLimitedHandler struct {
	to    slog.Handler
	state *lineCount
	now   func() time.Time
}

// lineCount is shared by a handler and the handlers derived from it.
type lineCount struct {
	mu      sync.Mutex
	second  time.Time // start of the second that lines counts
	lines   int
	omitted uint64
}

// pass reports whether another line may be written, and how many lines were omitted before it.
func (c *lineCount) pass(now time.Time) (ok bool, omitted uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.second) >= time.Second {
		c.second, c.lines = now, 0
	}
	if c.lines >= slowLinesMax {
		c.omitted++
		return false, 0
	}
	c.lines++
	omitted, c.omitted = c.omitted, 0
	return true, omitted
}

// Enabled implements slog.Handler.
func (h *rateLimitedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *rateLimitedHandler) Handle(ctx context.Context, r slog.Record) error {
	ok, omitted := h.state.pass(h.now())
	if !ok {
		return nil
	}
	if omitted > 0 {
		r.AddAttrs(slog.Uint64("omitted", omitted))
	}
	return h.to.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *rateLimitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &rateLimitedHandler{to: h.to.WithAttrs(attrs), state: h.state, now: h.now}
}

// WithGroup implements slog.Handler.
func (h *rateLimitedHandler) WithGroup(name string) slog.Handler {
	return &rateLimitedHandler{to: h.to.WithGroup(name), state: h.state, now: h.now}
}
