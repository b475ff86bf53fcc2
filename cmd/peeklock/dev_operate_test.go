package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/operate"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// The commands of an operator, against real members: list, set weights, drain, transfer, move, rebalance, grow,
// verify, back up, remove; and a new cluster from the backup.
func TestClusterIsOperatedFromTheCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("starts four members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	defer stop()
	a, b := ready.Members[0], ready.Members[1]
	say(t, a, 0, "queue", "create", "orders")
	say(t, a, 0, "message", "send", "orders", "kept")

	wants(t, say(t, a, 0, "member", "list"), "MEMBER", "member-1", "alive", "member-3")
	wants(t, say(t, a, 0, "member", "set", "member-2", "--zone", "z2", "--weight", "20", "-o", "json"), `"zone": "z2"`, `"weight": 20`)
	wants(t, say(t, b, 0, "member", "show", "member-2"), "zone", "z2")
	wants(t, say(t, a, 1, "member", "show", "none"), `no member is called "none"`)
	say(t, a, 0, "member", "set", "member-2", "--weight", "10")

	wants(t, say(t, a, 0, "member", "drain", "member-3"), "member-3 drained")
	var list struct{ Partitions []operate.PartitionInfo }
	look := func() {
		t.Helper()
		list.Partitions = nil
		kit.OK(t, json.Unmarshal([]byte(say(t, a, 0, "partition", "list", "-o", "json")), &list))
	}
	var third api.Member
	kit.OK(t, json.Unmarshal([]byte(say(t, a, 0, "member", "show", "member-3", "-o", "json")), &third))
	// A member that raft's own timers may elect, on a busy machine, transfers the leadership at once.
	kit.Eventually(t, "the drained member leads no partition", func() bool {
		look()
		return !slices.ContainsFunc(list.Partitions, func(p operate.PartitionInfo) bool { return p.Leader == third.ID })
	})
	wants(t, say(t, a, 0, "member", "list"), "alive, drained")
	wants(t, say(t, a, 0, "member", "undrain", "member-3", "-o", "json"), `"did": "undrained"`)

	wants(t, say(t, a, 0, "partition", "transfer", "1", "member-3"), "partition 1 transferred to member-3")
	wants(t, say(t, a, 0, "partition", "show", "1"), "leader", "member-3")
	wants(t, say(t, b, 0, "partition", "move", "2", "member-1", "member-2"), "partition 2 moved")
	look()
	if p := list.Partitions[2]; p.ID != 2 || len(p.Replicas) != 2 || p.Move != nil {
		t.Errorf("%+v", p)
	}
	wants(t, say(t, a, 1, "partition", "pause", "2"), "is not moving")
	wants(t, say(t, a, 1, "partition", "move", "2", "member-1", "member-1"), "named twice")
	wants(t, say(t, a, 1, "partition", "show", "99"), "there is no partition 99")

	wants(t, say(t, a, 0, "partition", "rebalance", "--dry-run"), "PARTITION", "->", "about")
	wants(t, say(t, b, 0, "partition", "rebalance", "-o", "json"), `"state": "done"`, `"partition": 2`)
	wants(t, say(t, a, 0, "partition", "rebalance", "--dry-run"), "no partition has to move")
	wants(t, say(t, a, 0, "partition", "moves"), "no moves")
	wants(t, say(t, a, 0, "partition", "grow", "1"), "1 added: the cluster has")

	wants(t, say(t, b, 0, "cluster", "verify"), "equal")
	wants(t, say(t, b, 0, "cluster", "verify", "-o", "json"), `"equal": true`)

	copied := filepath.Join(t.TempDir(), "copy")
	wants(t, say(t, b, 0, "cluster", "backup", copied), "partitions,", "copied to "+copied)
	wants(t, say(t, b, 2, "cluster", "backup", copied), "is not empty")

	wants(t, say(t, a, 2, "member", "remove", "member-3"), "--yes")
	wants(t, say(t, a, 0, "member", "remove", "member-3", "--dry-run"), "member-3 holds")
	wants(t, say(t, a, 0, "member", "remove", "member-3", "--yes"), "member-3 removed")
	wants(t, say(t, a, 0, "member", "list", "--all"), "removed")
	wants(t, say(t, a, 0, "message", "peek", "orders"), "kept")
	stop()

	beginAnew(t, copied)
}

// beginAnew restores a backup and uses it.
func beginAnew(t *testing.T, copied string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	var out, errs bytes.Buffer
	restore := func(from, dir string) (int, string) {
		out.Reset()
		errs.Reset()
		code := run(t.Context(), cli.Process{Args: []string{"restore", "--from", from, "--dir", dir}, Out: &out, Err: &errs})
		return code, out.String() + errs.String()
	}
	if code, text := restore(copied, dir); code != cli.ExitDone || !strings.Contains(text, "start it with peeklock serve --dir "+dir) {
		t.Fatal(code, text)
	}
	if code, text := restore(copied, dir); code != cli.ExitRefused || !strings.Contains(text, "not empty") || strings.Contains(text, "delete") {
		t.Error(code, text)
	}
	servesKept(t, dir)

	// A backup with one changed byte.
	names, err := filepath.Glob(filepath.Join(copied, "partition-1.backup"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	body := kit.Must(os.ReadFile(names[0]))(t)
	body[len(body)-1] ^= 1
	kit.OK(t, os.WriteFile(names[0], body, 0o600))
	if code, text := restore(copied, filepath.Join(t.TempDir(), "other")); code != cli.ExitRefused || !strings.Contains(text, "delete what this command has written there") {
		t.Error(code, text)
	}
	if code, text := restore(t.TempDir(), filepath.Join(t.TempDir(), "other")); code != cli.ExitRefused || !strings.Contains(text, "is not a complete backup") {
		t.Error(code, text)
	}
}

// servesKept starts a member with a restored directory, in which a queue holds a message.
func servesKept(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log kit.LogLines
	code := make(chan int, 1)
	gossip := kit.Must(freeGossipPort(ctx))(t)
	go func() {
		code <- run(ctx, cli.Process{Args: []string{
			"serve", "--name", "again", "--dir", dir, "--key", auth.DevKey,
			"--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--gossip", gossip,
		}, In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &log})
	}()
	kit.Eventually(t, "the restored member is ready", func() bool { return strings.Contains(log.String(), "member became ready") })
	m := devMember{Admin: client.SocketScheme + filepath.Join(dir, config.SocketName)}
	wants(t, say(t, m, 0, "message", "receive", "orders"), "kept")
	wants(t, say(t, m, 0, "partition", "moves"), "no moves")
	cancel()
	if got := <-code; got != cli.ExitDone {
		t.Error("exit code", got)
	}
}
