package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// startDev runs dev on free ports and waits until it is ready. stop ends it as Ctrl-C
// does and returns its exit code.
func startDev(t *testing.T, dir string, args ...string) (devReady, func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs kit.LogLines
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, cli.Process{
			Args: append([]string{"dev", "--amqp-port", "0", "--admin-port", "0", "--dir", dir, "-o", "json"}, args...),
			In:   strings.NewReader(""), Out: &out, Err: &errs,
		})
	}()
	stop := sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() { stop() })
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * devReadyMax)
	for {
		var ready devReady
		if json.Unmarshal([]byte(out.String()), &ready) == nil {
			return ready, stop
		}
		select {
		case c := <-code:
			code <- c
			t.Fatalf("dev ended with %d: %s", c, errs.String())
		case <-deadline:
			t.Fatalf("not ready: %s", errs.String())
		case <-tick.C:
		}
	}
}

// say runs a client command against one member, returns what it printed and fails when
// it does not end with the exit code.
func say(t *testing.T, m devMember, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if len(args) > 1 && args[0] == "message" && args[1] == "receive" && !slices.Contains(args, "--wait") {
		args = append(slices.Clone(args), "--wait", "60s") // what is there comes at once, on a machine that is not busy
	}
	got := run(t.Context(), cli.Process{
		Args: append(args, "--server", m.Admin), In: strings.NewReader("from stdin 1\nfrom stdin 2\n"), Out: &out, Err: &errs,
	})
	if got != want {
		t.Fatalf("%s: exit code %d, want %d: %s", strings.Join(args, " "), got, want, errs.String())
	}
	return out.String() + errs.String()
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// The main job, as a user of the command line does it: any member takes any client,
// messages are settled in every way, and a second start finds them again.
// Not parallel: it looks for goroutines that stay behind.
func TestDevClusterKeepsMessagesOverRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"), // raft completes no future at its end
		// memberlist does not wait for a probe under way when it shuts down.
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"),
		// The default HTTP client of the commands keeps idle connections.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	dir := filepath.Join(kit.MemoryDir(t), "data")
	ready, stop := startDev(t, dir)
	if len(ready.Members) != 3 || ready.Dir != dir {
		t.Fatalf("%+v", ready)
	}
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]
	if want := "Endpoint=sb://" + a.AMQP + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"; a.ConnectionString != want {
		t.Errorf("connection string %s", a.ConnectionString)
	}

	say(t, a, 0, "queue", "create", "orders")
	wants(t, say(t, b, 1, "queue", "create", "Orders"), "already exists")
	wants(t, say(t, b, 0, "message", "send", "orders", "one", "two", "three", "--property", "k=v", "--subject", "s"), "3 sent to orders")
	wants(t, say(t, c, 0, "message", "send", "orders"), "2 sent to orders")
	wants(t, say(t, a, 0, "message", "peek", "orders", "-o", "json"), `"body":"one"`, `"body":"from stdin 2"`, `"properties":{"k":"v"}`)
	wants(t, say(t, c, 0, "message", "receive", "orders", "--abandon"), "one")
	wants(t, say(t, b, 0, "message", "receive", "orders", "-o", "json"), `"deliveryCount":1`, `"body":"one"`, `"settled":"complete"`)
	wants(t, say(t, a, 0, "message", "receive", "orders", "--dead-letter", "--reason", "because"), "two")
	wants(t, say(t, a, 0, "message", "receive", "orders", "--dead-letters", "-o", "json"), `"body":"two"`, `"DeadLetterReason":"because"`)
	wants(t, say(t, b, 0, "message", "receive", "orders", "--defer"), "three")
	wants(t, say(t, c, 0, "message", "receive", "orders", "--delete"), "from stdin 1")
	wants(t, say(t, c, 0, "queue", "show", "orders", "-o", "json"), `"active": 1`, `"deferred": 1`, `"deadLetter": 0`)
	wants(t, say(t, c, 1, "message", "send", "nowhere", "x"), "could not be found")
	say(t, c, 0, "queue", "show", "orders", "--key", "SAS_KEY_VALUE")
	say(t, c, 0, "queue", "show", "orders", "--key", "another") // as good as none: every process of the machine administers
	wants(t, say(t, b, 0, "queue", "update", "orders", "--max-delivery-count", "3", "-o", "json"), `"maxDeliveryCount": 3`)
	wants(t, say(t, b, 0, "cluster", "status"), "member-1", "member-3", "alive")
	wants(t, say(t, a, 0, "bench", "--messages", "2000", "--queues", "2", "--senders", "2", "--members-spread", "-o", "json"),
		`"confirmed": 2000`, `"settled": 2000`, `"lost": 0`, `"duplicated": 0`)

	if code := stop(); code != 0 {
		t.Fatalf("dev ended with %d", code)
	}
	ready, stop = startDev(t, dir)
	wants(t, say(t, ready.Members[2], 0, "queue", "list", "-o", "json"), `"name": "orders"`, `"maxDeliveryCount": 3`)
	wants(t, say(t, ready.Members[1], 0, "message", "receive", "orders", "-o", "json"), `"body":"from stdin 2"`)
	stop()
}

// What is in the way is one line, and nothing is touched.
func TestDevRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	l := kit.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dir := filepath.Join(t.TempDir(), "data")
	dev := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), cli.Process{Args: append([]string{"dev", "--dir", dir, "--admin-port", "0"}, args...), Out: &out, Err: &errs})
		return code, errs.String()
	}
	code, text := dev("--amqp-port", fmt.Sprint(port), "--members", "1")
	if code != cli.ExitRefused || text != fmt.Sprintf("peeklock: port taken: something already listens on 127.0.0.1:%d (choose another with --amqp-port)\n", port) {
		t.Errorf("%d %s", code, text)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("the data folder was made:", err)
	}
	kit.OK(t, os.MkdirAll(dir, 0o750))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "dev.json"), []byte(`{"version":1,"members":5}`), 0o600))
	if code, text := dev("--amqp-port", "0"); code != cli.ExitUsage || !strings.Contains(text, "holds the data of 5 members") || strings.Count(text, "\n") != 1 {
		t.Errorf("%d %s", code, text)
	}
}

// A folder belongs to one process at a time.
func TestDevFolderIsLocked(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	dir := filepath.Join(kit.MemoryDir(t), "data")
	_, stop := startDev(t, dir, "--members", "1")
	defer stop()
	var out, errs bytes.Buffer
	code := run(t.Context(), cli.Process{Args: []string{"dev", "--dir", dir, "--members", "1", "--admin-port", "0", "--amqp-port", "0"}, Out: &out, Err: &errs})
	if text := errs.String(); code != cli.ExitRefused || !strings.Contains(text, "lock") || strings.Count(text, "\n") != 1 {
		t.Errorf("%d %s", code, text)
	}
}

// Clients that resolve localhost to either address reach the same listener.
func TestLocalhostListensOnBothAddresses(t *testing.T) {
	t.Parallel()
	l := kit.Must(listenLoopback(t.Context(), 0))(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	hosts := []string{"127.0.0.1"}
	if _, both := l.(*multiListener); both {
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		conn := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port)))(t)
		served := kit.Must(l.Accept())(t)
		_, _ = conn.Close(), served.Close()
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Accept(); err == nil {
		t.Error("accepted after Close")
	}
}
