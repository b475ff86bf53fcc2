package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// withoutDryRun are the commands that have no --dry-run, and why. A group stands for all its commands.
var withoutDryRun = map[string]string{
	"bench": "it exists to make load, in entities of its own", "completion": "prints", "config": "prints", "help": "prints", "version": "prints",
	"dev": "runs a cluster", "emulator": "runs a member", "serve": "runs a member", "healthcheck": "reads", "doctor": "reads",
	"kubernetes": "hooks of pods, which nobody types", "top": "reads", "export": "prints", "diff": "is the dry run of apply",
	"message receive": "message peek shows what it would receive", "message dump": "reads; it writes the file that it is given",
	"message peek": "reads", "message tail": "reads", "rule test": "reads", "raft-log show": "reads", "cluster status": "reads", "cluster verify": "reads",
	"debug": "reads", "raft-log cut": "the start of the member is its dry run: it refuses, and says that there is a batch to cut",
	"context list": "reads", "session state": "reads", "partition moves": "reads",
}

// TestEveryChangeHasADryRun walks the tree of commands.
func TestEveryChangeHasADryRun(t *testing.T) {
	t.Parallel()
	left := make(map[string]bool)
	for name := range withoutDryRun {
		left[name] = true
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "peeklock ")
		hasDryRun := cmd.Flags().Lookup("dry-run") != nil
		switch reason := withoutDryRun[name]; {
		case reason != "" && hasDryRun:
			t.Errorf("peeklock %s has --dry-run and a reason to have none: %s", name, reason)
		case reason != "":
			delete(left, name)
		case cmd.HasSubCommands():
			for _, sub := range cmd.Commands() {
				walk(sub)
			}
		case cmd.Name() != "list" && cmd.Name() != "show" && !hasDryRun:
			t.Errorf("peeklock %s has no --dry-run: give its verb Would, or a reason to the table", name)
		}
	}
	walk(newRoot(cli.Process{}))
	for name := range left {
		t.Errorf("peeklock %s is in the table and not a command", name)
	}
}

// TestDryRunsChangeNothing runs each command that changes something with --dry-run against a cluster which has all that the command
// could change, and compares what the cluster has before and afterwards.
func TestDryRunsChangeNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three members")
	}
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	member, folder := ready.Members[0], t.TempDir()
	for _, line := range []string{
		"queue create orders", "queue create jobs --requires-session", "topic create news", "subscription create news/Subscriptions/all",
		"message send orders one two three", "message send orders later --in 24h", "message send jobs step --session s", "message send news fact",
		"message receive orders --dead-letter --reason bad", "message receive orders --defer", "session set-state jobs s begun",
		"key create reader orders --rights listen", "namespace create other", "cluster backup " + folder + "/backup", "message dump orders --file " + folder + "/dump",
	} {
		say(t, member, 0, strings.Fields(line)...)
	}
	config := filepath.Join(folder, "Config.json")
	if err := os.WriteFile(config, []byte(`{"UserConfig":{"Namespaces":[{"Name":"x","Queues":[{"Name":"new"},{"Name":"orders","Properties":{"MaxDeliveryCount":4}}],
		"Topics":[{"Name":"newer","Subscriptions":[{"Name":"s","Rules":[{"Name":"r","Properties":{"FilterType":"Sql","SqlFilter":{"SqlExpression":"a=1"}}}]}]}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := everything(t, member)
	for _, c := range []struct {
		line string
		want string // in the output
		exit int
	}{
		{"queue create fresh --lock-duration 1m", "would create queue fresh: lockDuration to 1m0s", 0},
		{"queue create orders", "queue orders exists already", 1},
		{"queue create fresh --max-delivery-count 0", "maxDeliveryCount", 1},
		{"queue update orders --lock-duration PT2M --max-delivery-count 10", "would update queue orders: lockDuration from 30s to 2m0s", 0},
		{"queue update orders --max-delivery-count 10", "would change nothing: queue orders is so already", 0},
		{"queue update none --max-delivery-count 10", "not", 1},
		{"queue delete orders", "would delete queue orders with 1 active, 1 deferred, 1 scheduled, 1 dead-letter messages", 0},
		{"topic create papers", "would create topic papers", 0},
		{"topic update news --status SendDisabled", "would update topic news: status from Active to SendDisabled", 0},
		{"topic delete news", "would delete topic news with 1 subscriptions", 0},
		{"subscription create news/Subscriptions/some --sql a=1", "would create subscription news/Subscriptions/some", 0},
		{"subscription create none/Subscriptions/some", "not", 1},
		{"subscription update news/Subscriptions/all --max-delivery-count 3", "maxDeliveryCount from 10 to 3", 0},
		{"subscription delete news/Subscriptions/all", "would delete subscription news/Subscriptions/all with 1 active messages", 0},
		{"rule add news/Subscriptions/all one --sql a=1", "would add rule one to news/Subscriptions/all: a=1", 0},
		{"rule add news/Subscriptions/all $Default --true", "rule $Default exists already", 1},
		{"rule replace news/Subscriptions/all $Default --sql a=1", "would replace rule $Default of news/Subscriptions/all: true by a=1", 0},
		{"rule remove news/Subscriptions/all $Default", "would remove rule $Default from news/Subscriptions/all", 0},
		{"rule remove news/Subscriptions/all none", "none", 1},
		{"namespace create third --max-entities 5", "would create namespace third with a key: maxEntities to 5", 0},
		{"namespace update other --max-bytes 1GiB", "would update namespace other: maxBytes", 0},
		{"namespace delete other", "would delete namespace other with its keys", 0},
		{"namespace delete default", "namespace default has 3 queues and topics: delete them first", 1},
		{"key create writer orders --rights send", "would create key writer of orders with the rights send", 0},
		{"key create reader orders --rights send", "key reader of orders exists already", 1},
		{"key update reader orders --rights send,listen", "would update key reader of orders: rights from Listen to send,listen", 0},
		{"key regenerate reader orders", "would replace the primary secret of key reader of orders", 0},
		{"key delete reader orders", "would delete key reader of orders", 0},
		{"import " + config, "would create 3 and update 1 entities of " + config, 0},
		{"message send orders a bb --count 2", "would send 4 messages with 6 bytes to queue orders", 0},
		{"message send news", "would send 2 messages with 24 bytes to topic news", 0},
		{"message send orders x --in 1h", "would schedule 1 messages with 1 bytes in queue orders for", 0},
		{"message send none x", "not", 1},
		{"message load orders --file " + folder + "/dump", "would load 3 messages of", 0},
		{"message cancel orders 4", "1 of orders would be cancelled", 0},
		{"message cancel orders --contains later", "1 of orders would be cancelled", 0},
		{"message delete orders 3", "1 of orders would be deleted", 0},
		{"message delete orders --state deferred", "1 of orders would be deleted", 0},
		{"message purge orders", "up to 1 would be purged from orders", 0},
		{"message redrive orders", "would be moved back", 0},
		{"message undefer orders 2", "1 of orders would be ready again", 0},
		{"session set-state jobs s ended", "would replace the state of session \"s\" (5 B) by 5 B", 0},
		{"session clear-state jobs s", "would remove the state of session \"s\" (5 B)", 0},
		{"session release jobs s", "would change nothing: no receiver holds session \"s\"", 0},
		{"connection close none", "no connection none", 1},
		{"cluster format-level 1", "would hold the format level, which is 1, at 1", 0},
		{"cluster confirm-time", "would change nothing: wall time is not held", 0},
		{"cluster backup " + folder + "/second", "would copy", 0},
		{"restore --from " + folder + "/backup --dir " + folder + "/restored", "would write", 0},
		{"member set member-2 --weight 20", "would update member member-2: weight from 10 to 20", 0},
		{"member drain member-2", "would drain member-2: transfer the", 0},
		{"member undrain member-2", "would change nothing: member-2 is not drained", 0},
		{"member remove member-3", "member-3 holds", 0},
		{"member replace member-3 member-2", "member-3 holds", 0},
		{"partition move 1 member-1", "would move partition 1 with", 0},
		{"partition transfer 1 member-2", "partition 1", 0},
		{"partition pause 1", "partition 1 is not moving", 1},
		{"partition resume 1", "partition 1 is not moving", 1},
		{"partition cancel 1", "partition 1 is not moving", 1},
		{"partition rebalance", "", 0},
		{"partition grow 2", "would add 2 partitions to the", 0},
		{"init cluster --members a.example.com,b.example.com --dir " + folder + "/cluster", "would create in " + folder + "/cluster", 0},
		{"raft-log skip --dir " + folder + "/none --index 1 --checksum 00000000", folder + "/none", 1},
	} {
		text := say(t, member, c.exit, append(strings.Fields(c.line), "--dry-run")...)
		if !strings.Contains(text, c.want) {
			t.Errorf("%s --dry-run: got %q, want %q in it", c.line, text, c.want)
		}
	}
	if after := everything(t, member); after != before {
		t.Errorf("the cluster was changed:\n%s\nwas\n%s", after, before)
	}
	for _, name := range []string{"second", "restored", "cluster", "none", "dump.progress"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	wants(t, say(t, member, 0, "queue", "delete", "orders", "--dry-run", "-o", "json"), `"would": "delete queue orders with`)
}

// everything returns what the commands of the test could change.
func everything(t *testing.T, m devMember) string {
	t.Helper()
	var all strings.Builder
	for _, line := range []string{
		"export", "key list orders -o json", "key show reader orders -o json", "namespace list -o json", "message dump orders", "message dump jobs",
		"message peek orders --dead-letters -o json", "message dump news/Subscriptions/all", "rule list news/Subscriptions/all -o json",
		"session list jobs -o json", "session state jobs s", "partition moves -o json",
	} {
		all.WriteString(line + "\n" + say(t, m, 0, strings.Fields(line)...))
	}
	members := say(t, m, 0, "member", "list")
	for _, word := range []string{"drained", "removed", " 20 "} {
		if strings.Contains(members, word) {
			all.WriteString(word + "\n")
		}
	}
	return all.String()
}
