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
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// A member that finds itself removed ends at every start, unless it may start over: then a new member starts there, and
// the data of the removed one is kept beside it.
func TestServeStartsOverAfterARemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	dir := kit.MemoryDir(t)
	f := kit.Must(datadir.Open(nil, dir))(t)
	former := string(f.Identity().Member)
	kit.OK(t, f.Update(func(i *datadir.Identity) { i.Removed = true }))
	kit.OK(t, f.Close())
	args := []string{"--dir", dir, "--key", auth.DevKey}
	var errs bytes.Buffer
	code := run(t.Context(), cli.Process{Args: serveArgs(args...), In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs})
	if code != cli.ExitRefused || !strings.Contains(errs.String(), datadir.ErrRemoved.Error()) {
		t.Fatal(code, errs.String())
	}
	startServe(t, append(args, "--rejoin-removed")...)
	server := client.SocketScheme + filepath.Join(dir, config.SocketName)
	kit.Eventually(t, "a new member runs", func() bool {
		var out bytes.Buffer
		ask := run(t.Context(), cli.Process{Args: []string{"--server", server, "member", "list", "--all", "-o", "json"}, Out: &out, Err: &bytes.Buffer{}})
		return ask == cli.ExitDone && strings.Contains(out.String(), `"alive"`) && !strings.Contains(out.String(), former)
	})
	if kept, err := os.ReadFile(filepath.Join(dir, "removed", "member.json")); err != nil || !strings.Contains(string(kept), former) {
		t.Errorf("%s %v", kept, err)
	}
}
