package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// auditFile is where the audit log goes: a file, or the ordinary log.
type auditFile struct {
	lines  *refusalLimiter
	recent *recentAudit

	mu   sync.Mutex
	file *os.File // nil: the ordinary log
}

// openAudit opens the audit log: a file if one is configured, otherwise the ordinary log. Of the refusals of a
// client it logs a limited number and counts the others. Close the file after the last write.
func openAudit(s *config.Settings, logger *slog.Logger) (*slog.Logger, *auditFile, error) {
	f := &auditFile{}
	to := logger.With("component", "audit").Handler()
	if s.AuditLog != "" {
		var err error
		if f.file, err = openToAppend(s.AuditLog); err != nil {
			return nil, nil, cli.Usage(fmt.Errorf("audit_log: %w", err))
		}
		to = slog.NewJSONHandler(f, nil).WithAttrs([]slog.Attr{slog.String("member", s.Name)})
	}
	f.recent = newRecentAudit(to)
	f.lines = newRefusalLimiter(f.recent, time.Now)
	return slog.New(f.lines), f, nil
}

func openToAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the settings name the file
}

// Write implements io.Writer for the lines.
func (f *auditFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(line)
}

// reopen opens the file by its name again: a program that rotates logs may have renamed the one in use.
func (f *auditFile) reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	fresh, err := openToAppend(f.file.Name())
	if err != nil {
		return err
	}
	err = f.file.Close()
	f.file = fresh
	return err
}

// end closes the file and logs a failure.
func (f *auditFile) end(logger *slog.Logger) {
	if err := f.close(); err != nil {
		logger.Warn("failed to close audit log", "error", err)
	}
}

// close writes the last lines.
func (f *auditFile) close() error {
	f.lines.close()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
