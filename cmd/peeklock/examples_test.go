package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/document"
	"github.com/peeklock/peeklock/test/kit"
)

// notRun are the examples that the test below leaves out, by their beginning, and why.
var notRun = map[string]string{
	"bench": "puts load on the machine; the tests of bench run it", "dev": "starts a cluster", "emulator": "starts a cluster", "import": "needs the file; dev_emulator_test.go",
	"cluster backup": "needs the folder or a store; backup_restore_test.go", "init cluster": "writes to the current folder; the tests of init run it",
	"context": "writes to the user's configuration; context.txtar", "raft-log": "needs a stopped member; raft_log.txtar",
	"namespace list": "lists the namespaces of the other examples", "doctor": "depends on the machine; doctor.txtar",
	"member": "needs more members; operate.txtar", "partition": "needs more members; operate.txtar",
	"rule test orders --file": "needs the file; the line above it does the same", "session set-state orders customer-7 --file": "needs the file",
	"apply": "needs the file; dev_data_test.go", "diff": "needs the file; dev_data_test.go", "export": "writes to the shell's file; dev_data_test.go",
	"message dump": "writes the file; dev_data_test.go", "message load": "needs the file; dev_data_test.go", "message tail": "follows until it is ended; dev_data_test.go",
	"top": "needs ten seconds of messages; the tests of top run it", "connection": "lists the connections of the other examples; connection_test.go of admin",
	"audit": "lists what the other examples changed; dev_data_test.go",
}

// examplesAtATime is the number of examples that run at the same time: some wait for further messages.
const examplesAtATime = 4

// TestExamplesDoWhatTheirOutputSays runs the examples of the help, which docs/cli.md shows, against dev: each in a namespace of its
// own that has what it assumes. Their output, with numbers and secrets masked, is in testdata/examples.golden.
func TestExamplesDoWhatTheirOutputSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a member")
	}
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	lines := helpExamples(newRoot(cli.Process{}))
	texts := make([]string, len(lines))
	turns := make(chan struct{}, examplesAtATime)
	var all sync.WaitGroup
	for at, line := range lines {
		turns <- struct{}{}
		all.Go(func() {
			r := exampleRun{t: t, member: ready.Members[0], namespace: fmt.Sprintf("example-%d", at)}
			r.prepare(line)
			texts[at] = fmt.Sprintf("$ peeklock %s\n%s", line, maskOutput(r.say(exampleWords(line)...)))
			<-turns
		})
	}
	all.Wait()
	document.File(t, "testdata/examples.golden", strings.Join(texts, ""))
}

// helpExamples returns the examples of all commands that are run, without the name of the program.
func helpExamples(cmd *cobra.Command) (lines []string) {
	for line := range strings.Lines(cmd.Example) {
		_, line, ours := strings.Cut(line, "peeklock ")
		line = strings.TrimSpace(line)
		isLeftOut := !ours
		for start := range notRun {
			isLeftOut = isLeftOut || strings.HasPrefix(line+" ", start+" ")
		}
		if !isLeftOut {
			lines = append(lines, line)
		}
	}
	for _, sub := range cmd.Commands() {
		lines = append(lines, helpExamples(sub)...)
	}
	return lines
}

// exampleRun runs one example.
type exampleRun struct {
	t         *testing.T
	member    devMember
	namespace string
}

// say runs a command in the namespace of the example.
func (r exampleRun) say(args ...string) string {
	r.t.Helper()
	if args[0] == "namespace" && args[1] != "list" && len(args) > 2 {
		args[2] = r.namespace // for "orders"
	} else if args[0] != "cluster" {
		args = append(args, "--namespace", r.namespace)
	}
	if args[0] == "message" && args[1] == "receive" && !slices.Contains(args, "--wait") {
		args = append(args, "--wait", "2s") // those that receive all messages wait for another one
	}
	var out, errs bytes.Buffer
	code := run(r.t.Context(), cli.Process{Args: append(args, "--server", r.member.Admin), In: strings.NewReader("a line\n"), Out: &out, Err: &errs})
	if code != cli.ExitDone {
		r.t.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return strings.ReplaceAll(out.String()+errs.String(), r.namespace, "orders")
}

// prepare creates what an example assumes.
func (r exampleRun) prepare(line string) {
	words := strings.Fields(line)
	noun, verb := words[0], words[1]
	isCreated := verb == "create" && !strings.HasPrefix(line, "key ")
	switch {
	case noun == "cluster", noun == "namespace" && isCreated:
		return
	}
	r.say("namespace", "create", "orders")
	switch {
	case noun == "namespace":
		return
	case noun == "topic" || noun == "subscription" || noun == "rule" || strings.Contains(line, "/Subscriptions/"):
		r.prepareTopic(line, isCreated)
	case noun == "queue" && isCreated && !strings.Contains(line, "--forward-to"):
	case noun == "session" || strings.Contains(line, "session customer-7") || strings.Contains(line, "--next-session"):
		r.say("queue", "create", "orders", "--requires-session")
		r.say("message", "send", "orders", "hello", "--session", "customer-7")
		r.say("session", "set-state", "orders", "customer-7", "first")
	default:
		r.prepareQueue(line)
	}
	if noun == "key" && verb != "create" && strings.Contains(line, "reader") {
		r.say("key", "create", "reader", "orders", "--rights", "listen")
	}
}

func (r exampleRun) prepareTopic(line string, isCreated bool) {
	if strings.HasPrefix(line, "topic create") {
		return
	}
	r.say("topic", "create", "orders")
	r.say("queue", "create", "eu-orders")
	for _, name := range []string{"audit", "large", "eu"} {
		address := "orders/Subscriptions/" + name
		if !isCreated || !strings.Contains(line, address) {
			create := []string{"subscription", "create", address}
			if strings.Contains(line, "--requires-session") || strings.HasPrefix(line, "session ") {
				create = append(create, "--requires-session")
			}
			r.say(create...)
		}
	}
	if strings.HasPrefix(line, "message ") {
		r.say("message", "send", "orders", "hello", "world")
	}
	if strings.Contains(line, "redrive") {
		r.say("message", "receive", "orders/Subscriptions/audit", "--dead-letter", "--reason", "MaxDeliveryCountExceeded")
	}
}

func (r exampleRun) prepareQueue(line string) {
	for _, name := range []string{"orders", "all-dead", "repaired"} {
		r.say("queue", "create", name)
	}
	bodies := []string{"1", "2", "3", "4", "5", "Berlin", `{"customer":7}`, "8", "9"}
	send := func(more ...string) {
		r.say(append(append([]string{"message", "send", "orders"}, bodies...), append(more, "--property", "customer:=7")...)...)
	}
	switch {
	case !strings.HasPrefix(line, "message "), strings.HasPrefix(line, "message send"):
	case strings.Contains(line, "cancel"):
		send("--in", "1h")
	case strings.Contains(line, "--sequence 7"), strings.Contains(line, "undefer"):
		send()
		settled := "--defer"
		if strings.Contains(line, "redrive") {
			settled = "--dead-letter"
		}
		r.say("message", "receive", "orders", settled, "--count", "9")
	case strings.Contains(line, "redrive"):
		send()
		r.say("message", "receive", "orders", "--dead-letter", "--reason", "MaxDeliveryCountExceeded", "--count", "9")
	default:
		send()
	}
}

// exampleWords splits a line as a shell does: words, and quotes of both kinds.
func exampleWords(line string) (words []string) {
	for _, word := range regexp.MustCompile(`(?:"[^"]*"|'[^']*'|\S)+`).FindAllString(line, -1) {
		if quoted := regexp.MustCompile(`^(?:"[^"]*"|'[^']*')$`); quoted.MatchString(word) {
			word = word[1 : len(word)-1]
		}
		words = append(words, word)
	}
	return words
}

// maskOutput replaces what differs between two runs, and the columns that depend on it.
func maskOutput(text string) string {
	for _, mask := range []struct{ find, with string }{
		{`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`, "TIME"},
		{`[A-Za-z0-9+/]{43}=`, "SECRET"},
		{`\b[0-9A-Z]{26}\b`, "ID"},
		{`\b[0-9A-Za-z]{17}\.\.\.`, "ID..."},
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`localhost:\d+`, "ADDRESS"},
		{`\bdev(-[0-9a-f]{12})?(\+dirty)?\b`, "VERSION"},
		{`[ \t]+`, " "},
		{`(?m) +$`, ""},
		{`\b\d+(\.\d+)?\b`, "N"},
	} {
		text = regexp.MustCompile(mask.find).ReplaceAllString(text, mask.with)
	}
	return text
}
