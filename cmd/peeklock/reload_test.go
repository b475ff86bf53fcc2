package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// TestHangupReloads: SIGHUP does not end a member. It applies the file of the operator key, with the secret before it on the second line, and
// opens the audit log by its name again.
func TestHangupReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	dir, audit, secret := kit.MemoryDir(t), filepath.Join(t.TempDir(), "audit.log"), kit.WriteFile(t, "the first secret of operators\n")
	gossip := kit.Must(freeGossipPort(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var log kit.LogLines
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, cli.Process{Args: []string{
			"serve", "--name", "a", "--dir", dir, "--partitions", "1", "--key-file", secret, "--audit-log", audit, "--control-socket", filepath.Join(dir, config.SocketName),
			"--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", gossip,
		}, In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &log})
	}()
	defer func() {
		cancel()
		if got := <-code; got != cli.ExitDone {
			t.Error("exit code", got)
		}
	}()
	kit.Eventually(t, "the member is ready", func() bool { return log.Has("member became ready") })
	replace := func(text string) {
		t.Helper()
		kit.OK(t, os.WriteFile(secret, []byte(text), 0o600))
		before := log.Count("operator keys were reloaded")
		kit.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		kit.Eventually(t, "the keys are reloaded", func() bool { return log.Count("operator keys were reloaded") > before })
	}
	admin := devMember{Admin: client.SocketScheme + filepath.Join(dir, config.SocketName)}
	say(t, admin, 0, "queue", "create", "before")
	kit.OK(t, os.Rename(audit, audit+".1"))
	replace("the second secret of operators\nthe first secret of operators\n")
	say(t, admin, 0, "queue", "create", "after")
	kit.Eventually(t, "the audit log is written to a new file", func() bool {
		text, _ := os.ReadFile(audit)
		return strings.Contains(string(text), "after")
	})
	text, err := os.ReadFile(audit + ".1")
	if err != nil || !strings.Contains(string(text), "before") || strings.Contains(string(text), "after") {
		t.Errorf("the renamed audit log: %v\n%s", err, text)
	}
	replace("the second secret of operators\n")
	kit.OK(t, os.WriteFile(secret, []byte("a\nb\nc\n"), 0o600))
	kit.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	kit.Eventually(t, "a file with too many secrets is reported", func() bool { return log.Has("failed to reload keys", "has 3 lines") })
	if log.Has("secret of operators") {
		t.Error("a secret is in the log")
	}
}

// TestHangupBeforeTheMemberIsOpenDoesNotEndIt: systemd may reload a unit that is still starting, here because the name of the machine
// does not resolve yet.
func TestHangupBeforeTheMemberIsOpenDoesNotEndIt(t *testing.T) {
	t.Parallel()
	var log kit.LogLines
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--name", "a", "--dir", kit.MemoryDir(t), "--key-file", kit.WriteFile(t, "the secret of operators\n"),
		"--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", "0.0.0.0:0", "--allow-remote-plain", "--advertise", "nowhere..invalid") // no name server is asked for a name with an empty part
	cmd.Args[0], cmd.Stderr = "peeklock", &log      // see TestMain
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // the variables of test runs are no settings
	kit.OK(t, cmd.Start())
	kit.Eventually(t, "the name is looked up", func() bool { return log.Has("failed to resolve the setting advertise") || log.Has("peeklock:") })
	if !log.Has("failed to resolve") {
		t.Fatalf("serve ended: %s", log.String())
	}
	for _, signal := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		kit.OK(t, cmd.Process.Signal(signal))
	}
	_ = cmd.Wait()
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		t.Errorf("ended by %v", status.Signal())
	}
}
