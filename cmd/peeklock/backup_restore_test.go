package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/objectstore"
)

// runWith runs a command in an environment and returns its exit code and its output.
func runWith(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), cli.Process{Args: args, Env: env, In: strings.NewReader(""), Out: &out, Err: &out})
	return code, out.String()
}

// The main use, with real members: a backup goes to an object store and starts a new cluster; a backup with one
// changed byte is refused.
func TestBackupAndRestoreThroughAnObjectStore(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("starts four members")
	}
	t.Parallel()
	s := objectstore.Start(t)
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	defer stop()
	say(t, ready.Members[0], 0, "queue", "create", "orders")
	say(t, ready.Members[0], 0, "message", "send", "orders", "kept")
	if code, text := runWith(t, s.Environment(), "cluster", "backup", "--server", ready.Members[1].Admin, "s3://copies/day", "--rate", "1GiB"); code != cli.ExitDone {
		t.Fatal(code, text)
	}
	stop()

	restore := func(dir string, args ...string) (int, string) {
		return runWith(t, s.Environment(), append([]string{"restore", "--from", "s3://copies/day", "--dir", dir}, args...)...)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if code, text := restore(dir); code != cli.ExitDone || !strings.Contains(text, "start it with peeklock serve --dir "+dir) {
		t.Fatal(code, text)
	}
	servesKept(t, dir)

	// The only queue is in the first partition.
	if code, text := restore(filepath.Join(t.TempDir(), "none"), "--partition", "99"); code != cli.ExitRefused || !strings.Contains(text, "no partition 99") {
		t.Error(code, text)
	}
	dir = filepath.Join(t.TempDir(), "one")
	if code, text := restore(dir, "--partition", "1"); code != cli.ExitDone || !strings.Contains(text, "partitions [1] of cluster") {
		t.Fatal(code, text)
	}
	servesKept(t, dir)

	name := "day/partition-1.backup"
	body := slices.Clone(s.Object(name))
	for what, damaged := range map[string][]byte{
		"a byte": slices.Concat(body[:len(body)-1], []byte{body[len(body)-1] ^ 1}), "short": body[:len(body)/2], "long": append(slices.Clone(body), 0),
	} {
		s.Set(name, damaged)
		if code, text := restore(filepath.Join(t.TempDir(), "other")); code != cli.ExitRefused || !strings.Contains(text, "delete what this command has written there") {
			t.Error(what, code, text)
		}
	}
}
