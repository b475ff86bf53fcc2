package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// A member whose identity another process has used ends at every start, unless an operator accepts it, which is audited.
func TestServeStartsAfterARollbackWasAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	dir := kit.MemoryDir(t)
	f := kit.Must(datadir.Open(nil, dir))(t)
	member := string(f.Identity().Member)
	kit.OK(t, f.MarkCopied())
	kit.OK(t, f.Close())
	audit := filepath.Join(t.TempDir(), "audit.log")
	args := []string{"--dir", dir, "--key", auth.DevKey, "--audit-log", audit}
	var errs bytes.Buffer
	code := run(t.Context(), cli.Process{Args: serveArgs(args...), In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs})
	if code != cli.ExitRefused || !strings.Contains(errs.String(), datadir.ErrCopied.Error()) {
		t.Fatal(code, errs.String())
	}
	startServe(t, append(args, "--accept-rollback")...)
	line, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(line), `"rollback_accepted"`) || !strings.Contains(string(line), member) {
		t.Errorf("audit log: %s, %v", line, err)
	}
}
