package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// Numbers of the transcript.
const (
	transcriptMessages = 3000
	transcriptBad      = 2000 // of them, that are dead-lettered and redriven
	transcriptLines    = 3    // of the output of a command, in the transcript
)

// transcript runs commands against three members as a user types them, and keeps what they print.
type transcript struct {
	t       *testing.T
	servers string

	mu   sync.Mutex
	text strings.Builder
}

// run runs a command, which has to succeed.
func (x *transcript) run(in string, args ...string) string {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), harness.Binary(x.t), append(args, "--server", x.servers, "--key-name", harness.KeyName, "--key", harness.Key)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	began := time.Now()
	err := cmd.Run()
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(&x.text, "$ peeklock %s   (%.1f s)\n", strings.Join(args, " "), time.Since(began).Seconds())
	lines := strings.Split(strings.TrimRight(out.String()+errs.String(), "\n"), "\n")
	for at, line := range lines {
		if at == transcriptLines && len(lines) > transcriptLines+1 {
			fmt.Fprintf(&x.text, "... %d more lines\n", len(lines)-at-1)
		}
		if at < transcriptLines || at == len(lines)-1 {
			x.text.WriteString(line[:min(len(line), 160)] + "\n")
		}
	}
	if err != nil {
		x.t.Errorf("peeklock %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// bodies returns how often each body is in a dump.
func bodies(t *testing.T, dump string) map[string]int {
	t.Helper()
	count := make(map[string]int)
	for line := range strings.Lines(dump) {
		var m struct {
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		count[string(m.Body)]++
	}
	return count
}

// once checks that a dump has each of the bodies exactly once, and no others.
func (x *transcript) once(what, dump string, want int) {
	x.t.Helper()
	count := bodies(x.t, dump)
	for body, n := range count {
		if n != 1 {
			x.t.Errorf("%s: %s is there %d times", what, body, n)
		}
	}
	if len(count) != want {
		x.t.Errorf("%s: %d different messages, want %d", what, len(count), want)
	}
}

// has checks that an output has a text.
func (x *transcript) has(output, want string) {
	x.t.Helper()
	if !strings.Contains(output, want) {
		x.t.Errorf("%q is not in %.300s", want, output)
	}
}

// TestMessagesByNumberWhileALeaderIsKilled runs the commands on single messages, sessions, connections and rules against three
// members, and kills the leader of the queue in the middle of a redrive. No message is lost or doubled.
func TestMessagesByNumberWhileALeaderIsKilled(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	c, leader, others := start(t, harness.Settings{})
	x := &transcript{t: t, servers: "http://" + others[0].Admin + ",http://" + others[1].Admin + ",http://" + leader.Admin}
	var lines strings.Builder
	for n := range transcriptMessages {
		fmt.Fprintf(&lines, "{\"n\":%d}\n", n)
	}
	x.has(x.run(lines.String(), "message", "send", queue, "--property", "customer:=7", "--subject", "order"), fmt.Sprintf("%d sent", transcriptMessages))
	x.has(x.run("", "message", "peek", queue, "--where", "customer = 7 AND sys.Label = 'order'", "--path", "$.n=17"), `{"n":17}`)
	x.has(x.run("", "message", "peek", queue, "--contains", `"n":2999}`), `{"n":2999}`)
	x.once("tail", x.run("", "message", "tail", queue, "--from", "1", "--count", "50", "-o", "json"), 50)
	x.run("", "message", "receive", queue, "--dead-letter", "--reason", "broken", "--count", fmt.Sprint(transcriptBad), "--wait", "20s")

	// The leader dies while the dead letters move back.
	redriven := make(chan struct{})
	go func() {
		defer close(redriven)
		x.run("", "message", "redrive", queue, "--reason", "broken", "--set", "again:=true", "--to", queue)
	}()
	killed := false
	for !killed {
		q, err := others[0].Queue(t.Context(), queue)
		select {
		case <-redriven:
			t.Error("the redrive ended before the leader was killed: give the test more messages")
			killed = true
		default:
			if err == nil && q.Counts.DeadLetter < transcriptBad {
				leader.Kill()
				killed = true
			}
		}
	}
	x.mu.Lock()
	fmt.Fprintf(&x.text, "# %s, which leads the queue, is killed\n", leader.Name)
	x.mu.Unlock()
	<-redriven

	folder := t.TempDir()
	file := filepath.Join(folder, "orders.jsonl")
	x.run("", "message", "dump", queue, "--file", file)
	x.once("after the redrive", x.run("", "message", "dump", queue), transcriptMessages)
	x.run("", "queue", "create", "copy")
	x.has(x.run("", "message", "load", "copy", "--file", file), fmt.Sprintf("%d messages loaded", transcriptMessages))
	x.once("the copy", x.run("", "message", "dump", "copy"), transcriptMessages)

	x.has(x.run("", "message", "delete", "copy", "1", "2", "--yes"), "2 of 2 deleted")
	x.has(x.run("", "message", "delete", "copy", "--where", "again = TRUE", "--dry-run"), "would be deleted")
	x.has(x.run("", "message", "delete", "copy", "--where", "customer = 7", "--max", "998", "--yes"), "998 of 998 deleted")
	x.once("after deletes", x.run("", "message", "dump", "copy"), transcriptMessages-1000)

	var scheduled struct {
		Numbers []int64 `json:"sequenceNumbers"`
	}
	if err := json.Unmarshal([]byte(x.run("", "message", "send", "copy", "s1", "s2", "s3", "--in", "P1D", "-o", "json")), &scheduled); err != nil || len(scheduled.Numbers) != 3 {
		t.Fatal(scheduled, err)
	}
	x.has(x.run("", "message", "cancel", "copy", fmt.Sprint(scheduled.Numbers[0])), "1 cancelled")
	x.has(x.run("", "message", "cancel", "copy", "--contains", "s2", "--yes"), "1 of 1 cancelled")
	x.has(x.run("", "message", "peek", "copy", "--state", "scheduled"), "s3")

	deferred := x.run("", "message", "receive", "copy", "--defer", "--count", "3", "--wait", "20s", "-o", "json")
	var first struct {
		Number int64 `json:"sequenceNumber"`
	}
	if err := json.NewDecoder(strings.NewReader(deferred)).Decode(&first); err != nil {
		t.Fatal(err)
	}
	x.has(x.run("", "message", "undefer", "copy", fmt.Sprint(first.Number)), "1 of 1 ready again")
	x.has(x.run("", "message", "undefer", "copy", "--where", "customer = 7"), "2 of 2 ready again")
	x.once("after undefer", x.run("", "message", "dump", "copy"), transcriptMessages-1000+1)

	x.run("", "queue", "create", "steps", "--requires-session")
	x.run("", "message", "send", "steps", "begin", "--session", "customer-7")
	x.run("", "session", "set-state", "steps", "customer-7", `{"step":3}`)
	x.has(x.run("", "session", "list", "steps"), "customer-7")
	x.has(x.run("", "session", "state", "steps", "customer-7"), `{"step":3}`)
	x.run("", "session", "release", "steps", "customer-7")
	x.run("", "session", "clear-state", "steps", "customer-7")
	x.has(x.run("", "session", "state", "steps", "customer-7"), "no state")

	x.run("", "topic", "create", "news")
	x.run("", "subscription", "create", "news/Subscriptions/eu", "--sql", "region = 'eu'")
	x.has(x.run("", "rule", "test", "news", "--property", "region=eu"), "eu")
	x.closeConnection()

	leader.Start()
	c.WaitLed(t)
	waitCaughtUp(t, leader, others[0])
	x.has(x.run("", "cluster", "verify"), "equal")
	x.once("at the end", x.run("", "message", "dump", queue), transcriptMessages)
	t.Logf("transcript:\n%s", x.text.String())
}

// closeConnection closes the connection of a receiver that waits.
func (x *transcript) closeConnection() {
	x.t.Helper()
	waits := exec.CommandContext(x.t.Context(), harness.Binary(x.t), "message", "receive", "steps", "--session", "nobody", "--wait", "60s",
		"--server", x.servers, "--key-name", harness.KeyName, "--key", harness.Key)
	if err := waits.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- waits.Wait() }()
	var list struct {
		Connections []struct {
			ID    string `json:"id"`
			Links []struct {
				Entity string `json:"entity"`
			} `json:"links"`
		} `json:"connections"`
	}
	id := ""
	for deadline := time.Now().Add(confirmsWithin); id == ""; {
		text := x.run("", "connection", "list", "--links", "--count", "0", "-o", "json")
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			x.t.Fatal(err)
		}
		for _, connection := range list.Connections {
			for _, l := range connection.Links {
				if strings.EqualFold(l.Entity, "steps") {
					id = connection.ID
				}
			}
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("no connection has a link to steps: %s", text)
		}
	}
	x.has(x.run("", "connection", "close", id), "closed")
	if err := <-ended; err != nil && !errors.As(err, new(*exec.ExitError)) {
		x.t.Error(err)
	}
}
