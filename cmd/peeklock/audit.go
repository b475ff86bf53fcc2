package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// openAudit opens the audit log: a file if one is configured, otherwise the ordinary log. Of the refusals of a
// client it logs a limited number and counts the others. Call end after the last write.
func openAudit(s *config.Settings, logger *slog.Logger) (audit *slog.Logger, end func(), err error) {
	if s.AuditLog == "" {
		lines := newRefusalLimiter(logger.With("component", "audit").Handler(), time.Now)
		return slog.New(lines), lines.close, nil
	}
	file, err := os.OpenFile(s.AuditLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, cli.Usage(fmt.Errorf("audit_log: %w", err))
	}
	lines := newRefusalLimiter(slog.NewJSONHandler(file, nil).WithAttrs([]slog.Attr{slog.String("member", s.Name)}), time.Now)
	end = func() {
		lines.close()
		if err := file.Close(); err != nil {
			logger.Warn("failed to close audit log", "error", err)
		}
	}
	return slog.New(lines), end, nil
}
