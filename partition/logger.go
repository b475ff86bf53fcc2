package partition

import (
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // hclog.Logger asks for it; nothing is written through it
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes raft's own log on. What raft calls an error is as a rule a peer
// that is away for a while, so each level goes down by one.
type raftLogger struct {
	to      *slog.Logger
	name    string
	implied []any
}

var _ hclog.Logger = (*raftLogger)(nil)

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
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
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(attrKey(args[i]), attrValue(args[i+1])))
	}
	l.to.LogAttrs(ctx, to, "raft: "+msg, attrs...) //nolint:sloglint // the message is raft's
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

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) IsTrace() bool { return false }
func (l *raftLogger) IsDebug() bool { return l.to.Enabled(context.Background(), slog.LevelDebug) }
func (l *raftLogger) IsInfo() bool  { return l.IsDebug() }
func (l *raftLogger) IsWarn() bool  { return true }
func (l *raftLogger) IsError() bool { return true }

func (l *raftLogger) ImpliedArgs() []any { return l.implied }
func (l *raftLogger) Name() string       { return l.name }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{to: l.to, name: l.name, implied: append(l.implied[:len(l.implied):len(l.implied)], args...)}
}

func (l *raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *raftLogger) ResetNamed(name string) hclog.Logger { return &raftLogger{l.to, name, l.implied} }
func (l *raftLogger) SetLevel(hclog.Level)                {}
func (l *raftLogger) GetLevel() hclog.Level               { return hclog.Info }

// StandardLogger implements hclog.Logger; raft does not use it.
func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(io.Discard, "", 0)
}

// StandardWriter implements hclog.Logger; raft does not use it.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
