package audit

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// File is where the audit log goes: a file, or the ordinary log. It is safe for concurrent use.
type File struct {
	lines  *refusalLimiter
	recent *Recent

	mu   sync.Mutex
	file *os.File // nil: the ordinary log
}

// Open opens the audit log of a member: the file at path, or the ordinary log if path is empty. Of the refusals of a
// client it logs a limited number and counts the others. Close the file after the last write.
func Open(path, member string, ordinary *slog.Logger) (*slog.Logger, *File, error) {
	f := &File{}
	to := ordinary.With("component", "audit").Handler()
	if path != "" {
		var err error
		if f.file, err = openToAppend(path); err != nil {
			return nil, nil, err
		}
		to = slog.NewJSONHandler(f, nil).WithAttrs([]slog.Attr{slog.String("member", member)})
	}
	f.recent = NewRecent(to)
	f.lines = newRefusalLimiter(f.recent, time.Now)
	return slog.New(f.lines), f, nil
}

// Recent returns the newest events of the log.
func (f *File) Recent() *Recent { return f.recent }

func openToAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the caller names the file
}

// Write implements io.Writer for the lines.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(line)
}

// Reopen opens the file by its name again: a program that rotates logs may have renamed the one in use.
func (f *File) Reopen() error {
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

// Close writes the numbers of refusals that were not logged, and closes the file. It logs a failure.
func (f *File) Close(logger *slog.Logger) {
	f.lines.close()
	if f.file == nil {
		return
	}
	if err := f.file.Close(); err != nil {
		logger.Warn("failed to close audit log", "error", err)
	}
}
