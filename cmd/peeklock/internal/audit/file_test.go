package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// The audit log is appended to, is readable by its owner only, and has JSON lines.
func TestAuditLogFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	var ordinary bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&ordinary, nil))
	for range 2 {
		audit, closeFile, err := Open(path, "a", logger)
		if err != nil {
			t.Fatal(err)
		}
		audit.Info("audit", "event", "login")
		closeFile.Close(logger)
	}
	data := kit.Must(os.ReadFile(path))(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	var line struct{ Msg, Event, Member string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil || len(lines) != 2 || line.Event != "login" || line.Member != "a" {
		t.Errorf("%v %s", err, data)
	}
	audit, closeFile, err := Open("", "a", logger)
	if err != nil {
		t.Fatal(err)
	}
	audit.Info("audit", "event", "login")
	closeFile.Close(logger)
	wants(t, ordinary.String(), "component=audit", "event=login")
	if _, _, err := Open(filepath.Join(path, "x"), "a", logger); err == nil {
		t.Error("a file was opened below a file")
	}
}
