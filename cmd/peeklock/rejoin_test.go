package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
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
	dir := t.TempDir()
	f, err := datadir.Open(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	former := string(f.Identity().Member)
	if err := f.Update(func(i *datadir.Identity) { i.Removed = true }); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var logs kit.LogLines
	serve := func(ctx context.Context, more ...string) int {
		gossip, err := freeGossipPort(ctx)
		if err != nil {
			t.Error(err)
		}
		args := append([]string{"serve", "--dir", dir, "--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", gossip, "--partitions", "1", "--replication", "1", "--key", auth.DevKey}, more...)
		return run(ctx, cli.Process{Args: args, In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &logs})
	}
	if code := serve(t.Context()); code != cli.ExitRefused || !strings.Contains(logs.String(), datadir.ErrRemoved.Error()) {
		t.Fatal(code, logs.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- serve(ctx, "--rejoin-removed") }()
	t.Cleanup(func() {
		cancel()
		if code := <-code; code != cli.ExitDone {
			t.Error("exit code", code, logs.String())
		}
	})
	server := cli.SocketScheme + filepath.Join(dir, config.SocketName)
	kit.Eventually(t, "a new member runs", func() bool {
		var out bytes.Buffer
		ask := run(t.Context(), cli.Process{Args: []string{"--server", server, "member", "list", "--all", "-o", "json"}, Out: &out, Err: &bytes.Buffer{}})
		return ask == cli.ExitDone && strings.Contains(out.String(), `"alive"`) && !strings.Contains(out.String(), former)
	})
	if kept, err := os.ReadFile(filepath.Join(dir, "removed", "member.json")); err != nil || !strings.Contains(string(kept), former) {
		t.Errorf("%s %v", kept, err)
	}
}
