package logging

import (
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // hclog.Logger asks for it; nothing is written through it
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// While a peer is unreachable, raft logs that up to twice a second in every group: 128 lines a second for a
// dead member of 64 groups.
const (
	repeatInterval = time.Minute // between two equal lines about the same peer
	repeatsMax     = 64          // combinations of peer and message that are remembered
)

// isRepeated reports whether raft repeats a message while a peer is unreachable, or while a group has no quorum: each of its
// elections, some seconds apart, fails.
func isRepeated(msg string) bool {
	switch msg {
	case "failed to heartbeat to", "failed to appendEntries to", "failed to pipeline appendEntries", "failed to contact", "failed to make requestVote RPC",
		"heartbeat timeout reached, starting election", "Election timeout reached, restarting election":
		return true
	}
	return false
}

// New returns a logger that forwards raft's log to the given one. Most errors of raft are peers that are unreachable for a while,
// so each level is lowered by one. A line that raft repeats about an unreachable peer, or because there is no quorum, is logged once a
// minute for each peer, with the number of omitted lines; the first one, which an orderly stop of the peer causes, too, as information.
func New(to *slog.Logger) hclog.Logger {
	return &logger{to: to, name: "raft", repeats: new(repeatFilter)}
}

// logger is the hclog.Logger of New.
type logger struct {
	to      *slog.Logger
	name    string
	implied []any
	repeats *repeatFilter // nil: everything is logged
}

// repeatFilter limits how often the same line is logged.
type repeatFilter struct {
	mu   sync.Mutex
	last map[string]repeat
}

// repeat is the time at which a line was logged last, and how often it was omitted since.
type repeat struct {
	at      time.Time
	omitted int
}

// allow reports whether a line may be logged again, and how often it was omitted.
func (r *repeatFilter) allow(what string, now time.Time) (omitted int, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.last[what]
	if known && now.Sub(before.at) < repeatInterval {
		before.omitted++
		r.last[what] = before
		return 0, false
	}
	if r.last == nil || len(r.last) >= repeatsMax {
		r.last = make(map[string]repeat)
	}
	r.last[what] = repeat{at: now}
	return before.omitted, true
}

var _ hclog.Logger = (*logger)(nil)

func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Error:
		to = slog.LevelWarn
	case hclog.Warn:
		to = slog.LevelInfo
	case hclog.Info, hclog.Debug, hclog.Trace, hclog.NoLevel, hclog.Off:
	}
	ctx := context.Background()
	if !l.to.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, len(args)/2+1)
	if l.repeats != nil && isRepeated(msg) {
		omitted, is := l.repeats.allow(msg+peerOf(args), time.Now())
		if !is {
			return
		}
		if omitted > 0 {
			attrs = append(attrs, slog.Int("omitted", omitted))
		} else if to = min(to, slog.LevelInfo); !l.to.Enabled(ctx, to) { // a peer that stops in order is away, too
			return
		}
	}
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(attrKey(args[i]), attrValue(args[i+1])))
	}
	l.to.LogAttrs(ctx, to, "raft: "+msg, attrs...) //nolint:sloglint // the message is raft's
}

// peerOf returns the peer that a message is about.
func peerOf(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			return fmt.Sprint(args[i+1])
		}
	}
	return ""
}

func attrKey(k any) string {
	s, _ := k.(string)
	return strings.ReplaceAll(strings.ToLower(s), "-", "_")
}

func attrValue(v any) any {
	switch v := v.(type) {
	case hclog.Format:
		if f, ok := v[0].(string); ok {
			return fmt.Sprintf(f, v[1:]...)
		}
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return v
}

func (l *logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *logger) IsTrace() bool { return false }
func (l *logger) IsDebug() bool { return l.to.Enabled(context.Background(), slog.LevelDebug) }
func (l *logger) IsInfo() bool  { return l.IsDebug() }
func (l *logger) IsWarn() bool  { return true }
func (l *logger) IsError() bool { return true }

func (l *logger) ImpliedArgs() []any { return l.implied }
func (l *logger) Name() string       { return l.name }

func (l *logger) With(args ...any) hclog.Logger {
	return &logger{to: l.to, name: l.name, repeats: l.repeats, implied: append(l.implied[:len(l.implied):len(l.implied)], args...)}
}

func (l *logger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *logger) ResetNamed(name string) hclog.Logger {
	return &logger{l.to, name, l.implied, l.repeats}
}
func (l *logger) SetLevel(hclog.Level)  {}
func (l *logger) GetLevel() hclog.Level { return hclog.Info }

// StandardLogger implements hclog.Logger; raft does not use it.
func (l *logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(io.Discard, "", 0)
}

// StandardWriter implements hclog.Logger; raft does not use it.
func (l *logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
