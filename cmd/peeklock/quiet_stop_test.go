package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// TestOrderlyStopIsQuiet: three members that stop in order log no warning and no error, though each sees the others go.
func TestOrderlyStopIsQuiet(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three members")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, log kit.LogLines
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, cli.Process{Args: []string{
			"dev", "--amqp-port", "0", "--admin-port", "0", "--dir", filepath.Join(kit.MemoryDir(t), "data"), "--log-level", "info",
		}, In: strings.NewReader(""), Out: &out, Err: &log})
	}()
	kit.Eventually(t, "three members are ready", func() bool { return out.Has("Peeklock is ready") })
	started := len(log.String())
	cancel()
	if got := <-code; got != cli.ExitDone {
		t.Error("exit code", got)
	}
	for line := range strings.Lines(log.String()[started:]) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the stop is not quiet: %s", line)
		}
	}
}
