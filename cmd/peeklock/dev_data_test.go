package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// TestConnectionsOfAllMembers lists the connections of clients at three members, finds the holder of a lock by another member
// than its own, and closes it.
func TestConnectionsOfAllMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]
	say(t, a, 0, "queue", "create", "orders")
	say(t, a, 0, "message", "send", "orders", "locked", "ready")
	conn := kit.Must(amqp.Dial(t.Context(), "amqp://"+c.AMQP, &amqp.ConnOptions{
		ContainerID: "worker", Properties: map[string]any{"product": "test-library", "version": "1.2"},
		SASLType: amqp.SASLTypePlain("RootManageSharedAccessKey", "any"),
	}))(t)
	defer conn.Close()
	session := kit.Must(conn.NewSession(t.Context(), nil))(t)
	receiver := kit.Must(session.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Credit: -1}))(t)
	kit.OK(t, receiver.IssueCredit(1))
	kit.Must(receiver.Receive(t.Context(), nil))(t)

	wants(t, say(t, a, 0, "connection", "list", "--links"), "test-library 1.2", "RootManageSharedAccessKey", "receiver orders", "credit 0, unsettled 1")
	var page topology.ConnectionPage
	kit.OK(t, json.Unmarshal([]byte(say(t, b, 0, "connection", "list", "-o", "json")), &page))
	id := ""
	for _, k := range page.Connections {
		if k.Container == "worker" {
			id = k.ID
		}
	}
	wants(t, say(t, a, 0, "message", "peek", "orders", "--state", "locked", "-o", "json"), `"holder":"`+id+`"`, `"lockedUntil"`)
	wants(t, say(t, b, 0, "connection", "close", id), "closed")
	<-conn.Done()
	wants(t, conn.Err().Error(), "An administrator closed the connection")
	var events topology.AuditPage
	if err := json.Unmarshal([]byte(say(t, a, 0, "audit", "list", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events.Events, func(e topology.AuditEvent) bool {
		return e.Event == "admin_change" && e.Fields["kind"] == "connection" && e.Fields["name"] == id && e.Fields["outcome"] == "OK"
	}) {
		t.Errorf("the audit events of all members are %+v, want the closed connection %s", events.Events, id)
	}
	wants(t, say(t, a, 1, "connection", "close", id), "there is no connection "+id)
	wants(t, say(t, a, 1, "connection", "close", "worker"), "is not the id of a connection")
	if list := say(t, a, 0, "connection", "list"); strings.Contains(list, "test-library") {
		t.Error("the closed connection is listed:", list)
	}
}

// tailed follows an entity in the background, until the context ends.
func tailed(t *testing.T, m devMember, args ...string) *kit.LogLines {
	t.Helper()
	var out kit.LogLines
	done := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- run(ctx, cli.Process{Args: append([]string{"message", "tail", "--server", m.Admin, "--interval", "50ms"}, args...), Out: &out, Err: &out})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("tail %s ended with %d: %s", args, code, out.String())
		}
	})
	return &out
}

// TestTailShowsWhatArrives follows a queue, a partitioned queue and a topic from other members than those that get the messages.
func TestTailShowsWhatArrives(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	a, b := ready.Members[0], ready.Members[1]
	say(t, a, 0, "queue", "create", "orders")
	say(t, a, 0, "queue", "create", "shards", "--partitioned")
	say(t, a, 0, "topic", "create", "events")
	say(t, a, 0, "subscription", "create", "events/Subscriptions/one")
	say(t, a, 0, "subscription", "create", "events/Subscriptions/two")
	say(t, a, 0, "message", "send", "orders", "old")
	for at, name := range []string{"orders", "shards", "events"} {
		follow := tailed(t, ready.Members[at], name, "--where", "size = 7", "-o", "json")
		plain := tailed(t, ready.Members[at], name)
		kit.Eventually(t, "the tail has begun", func() bool { return strings.Contains(plain.String(), "SEQUENCE") })
		kit.Eventually(t, "the tail with conditions has begun", func() bool {
			say(t, b, 0, "message", "send", name, "probe", "--property", "size:=7")
			return strings.Contains(follow.String(), "probe")
		})
		say(t, b, 0, "message", "send", name, "new one", "new two", "--property", "size:=7")
		say(t, b, 0, "message", "send", name, "other", "--property", "size:=8")
		kit.Eventually(t, "the tail shows the last message", func() bool {
			return strings.Contains(plain.String(), "other") && strings.Contains(follow.String(), "new two")
		})
		want := 2
		if name == "events" {
			want *= 2
			wants(t, follow.String(), `"entity":"events/Subscriptions/one"`, `"entity":"events/Subscriptions/two"`)
		}
		kit.Eventually(t, "the tail shows all messages", func() bool { return strings.Count(follow.String(), `"body":"new `) == want })
		if text := follow.String(); strings.Contains(text, "old") || strings.Contains(text, "other") {
			t.Errorf("the tail of %s shows old or other messages: %s", name, text)
		}
	}
	wants(t, say(t, a, 0, "message", "tail", "orders", "--from", "1", "--count", "2"), "old", "probe")
	wants(t, say(t, a, 1, "message", "tail", "none"), "none")
	wants(t, say(t, a, 2, "message", "tail", "orders", "--sequence", "1"), "--from")
}

// everyType returns messages with every section, and values of every AMQP type.
func everyType(t *testing.T) (lines []string) {
	t.Helper()
	values := map[string]jsonmessage.Value{}
	for at, v := range []any{
		true, "text ü", wire.Symbol("symbol"),
		[]byte{0, 255},
		int8(-8), int16(-16), int32(-32), int64(math.MinInt64), uint8(8), uint16(16), uint32(32),
		uint64(math.MaxUint64), float32(1.5), 1.25, wire.Char('ü'), time.UnixMilli(1795176000123).UTC(),
		wire.UUID{1, 255},
		nil,
	} {
		values[fmt.Sprintf("p%02d", at)] = jsonmessage.Value{Go: v}
	}
	yes, priority, ttl, text, group, body := true, uint8(7), uint32(3_600_000), "text", uint32(3), "body"
	list := jsonmessage.Value{Go: []any{int32(1), wire.Map{{Key: int32(7), Value: wire.Symbol("x")}}, wire.Array{Values: []int64{1, 2}}}}
	for at, m := range []jsonmessage.Message{
		{
			Durable: &yes, Priority: &priority, TimeToLive: &ttl, UserID: []byte{0}, To: &jsonmessage.Value{Go: "to"}, Subject: &text, ReplyTo: &jsonmessage.Value{Go: "r"},
			CorrelationID: &jsonmessage.Value{Go: uint64(1 << 60)}, ContentType: &text, ContentEncoding: &text, GroupSequence: &group, ReplyToSession: &text,
			Properties: values, Annotations: map[string]jsonmessage.Value{"x-own": list}, Footer: map[string]jsonmessage.Value{"x-foot": {Go: "f"}}, Body: &body,
		},
		{BodyBase64: []byte{0xff, 0}},
		{Data: [][]byte{{1}, {2, 3}}},
		{Value: &list},
		{Value: &jsonmessage.Value{Go: wire.Described{Descriptor: wire.Symbol("d"), Value: uint64(1)}}},
		{Sequence: [][]jsonmessage.Value{{{Go: int32(1)}}, {{Go: "x"}}}},
	} {
		m.MessageID = &jsonmessage.Value{Go: fmt.Sprint("id-", at)}
		line := kit.Must(json.Marshal(m))(t)
		lines = append(lines, string(line))
	}
	return lines
}

// encodedLines returns the encoding of each message in a dump.
func encodedLines(t *testing.T, dump string) (all []string) {
	t.Helper()
	for line := range strings.Lines(dump) {
		var m jsonmessage.Message
		kit.OK(t, json.Unmarshal([]byte(line), &m))
		encoded := kit.Must(m.Encode())(t)
		all = append(all, string(encoded))
	}
	return all
}

// TestDumpIsExactAndLoadsOnce loads messages of every type and gets the same bytes in a dump; goes on with dumps and loads that were
// interrupted at any place, without a loss and, with duplicate detection, without a double; and loads through a connection string.
func TestDumpIsExactAndLoadsOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]
	for _, args := range [][]string{{"types"}, {"many"}, {"once", "--duplicate-detection"}, {"plain"}, {"other"}} {
		say(t, a, 0, append([]string{"queue", "create"}, args...)...)
	}
	file := kit.WriteFile(t, strings.Join(everyType(t), "\n")+"\n")
	wants(t, say(t, a, 0, "message", "load", "types", "--file", file), "6 messages loaded")
	first := say(t, b, 0, "message", "dump", "types")
	want, got := encodedLines(t, strings.Join(everyType(t), "\n")+"\n"), encodedLines(t, first)
	for at := range want {
		if at >= len(got) || got[at] != want[at] {
			t.Errorf("message %d of the dump is not what was loaded: %s", at, first)
		}
	}

	say(t, a, 0, "message", "send", "many", "x", "--count", "450")
	dump := filepath.Join(t.TempDir(), "many.jsonl")
	wants(t, say(t, a, 0, "message", "dump", "many", "--file", dump, "--count", "300"), "300 messages")
	wants(t, say(t, a, 2, "message", "dump", "many", "--file", dump), "add --resume")
	if err := os.Truncate(dump, 20_000); err != nil { // in the middle of a line
		t.Fatal(err)
	}
	say(t, b, 0, "message", "dump", "many", "--file", dump, "--resume")
	whole := kit.Must(os.ReadFile(dump))(t)
	if again := say(t, c, 0, "message", "dump", "many"); again != string(whole) || strings.Count(again, "\n") != 450 {
		t.Errorf("the resumed dump has %d bytes and %d lines, want those of a whole one: %d and 450", len(whole), strings.Count(string(whole), "\n"), len(again))
	}

	ctx, cancel := context.WithCancel(t.Context())
	progress := dump + ".progress"
	ended := make(chan int, 1)
	go func() {
		var out kit.LogLines
		ended <- run(ctx, cli.Process{Args: []string{"message", "load", "once", "--server", a.Admin, "--file", dump, "--rate", "400"}, Out: &out, Err: &out})
	}()
	kit.Eventually(t, "a part is loaded", func() bool {
		text, _ := os.ReadFile(progress)
		return strings.Contains(string(text), `"done":1`)
	})
	cancel()
	<-ended
	say(t, b, 0, "message", "load", "once", "--file", dump)
	text := kit.Must(os.ReadFile(progress))(t)
	wants(t, string(text), `"done":450,"sending":450`)
	// As if it had been killed after the members stored a batch and before it knew.
	killed := strings.NewReplacer(`"done":450`, `"done":100`, `"sending":450`, `"sending":200`).Replace(string(text))
	kit.OK(t, os.WriteFile(progress, []byte(killed), 0o600))
	say(t, c, 0, "message", "load", "once", "--file", dump)
	if n := strings.Count(say(t, a, 0, "message", "dump", "once"), "\n"); n != 450 {
		t.Errorf("the queue has %d messages after two interrupted loads of 450", n)
	}

	at := filepath.Join(t.TempDir(), "progress")
	kit.OK(t, os.WriteFile(at, []byte(strings.Replace(killed, `"once"`, `"plain"`, 1)), 0o600))
	wants(t, say(t, a, 3, "message", "load", "plain", "--file", dump, "--progress", at), "lines 101 to 200", "--pending")
	wants(t, say(t, a, 0, "message", "load", "plain", "--file", dump, "--progress", at, "--pending", "skip"), "250 messages loaded")

	connection := "Endpoint=sb://" + c.AMQP + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=any;UseDevelopmentEmulator=true"
	wants(t, say(t, a, 0, "message", "load", "other", "--file", file, "--progress", at+"2", "--connection-string", connection), "6 messages loaded")
	if again := encodedLines(t, say(t, b, 0, "message", "dump", "other")); !slices.Equal(again, want) {
		t.Error("the messages that were sent through a connection string differ from those of the file")
	}
	wants(t, say(t, a, 2, "message", "load", "other", "--file", file, "--progress", at), "has the progress of a load into plain")
}

// secretIn returns the line with the primary secret of a key.
func secretIn(shown string) string {
	_, line, _ := strings.Cut(shown, `"primaryKey"`)
	line, _, _ = strings.Cut(line, "\n")
	return line
}

// TestDeclaredEntities applies a file, copies the entities over the API of the service, finds drift, exports, and prunes.
func TestDeclaredEntities(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	m := ready.Members[0]
	file := kit.WriteFile(t, `
keys:
  - {name: app, rights: [Send, Listen]}
queues:
  - {name: inbox, forwardTo: orders}
  - name: orders
    lockDuration: 1m
    keys: [{name: reader, rights: [Listen]}]
topics:
  - name: events
    subscriptions:
      - name: big
        maxDeliveryCount: 4
        rules:
          - name: size
            filter: {kind: sql, expression: "size > 6"}
          - name: kind
            filter: {kind: correlation, conditions: {sys.Label: order}}
      - name: all
`)
	say(t, m, 0, "queue", "create", "extra")
	wants(t, say(t, m, 4, "diff", "-f", file), "+ queue orders", "+ subscription events/Subscriptions/big", "+ key reader of orders", "the namespace differs")
	wants(t, say(t, m, 0, "apply", "-f", file, "--dry-run"), "0 of 8 changes made")
	wants(t, say(t, m, 0, "apply", "-f", file), "8 of 8 changes made")
	say(t, m, 0, "diff", "-f", file)
	wants(t, say(t, m, 0, "apply", "-f", file), "0 of 0 changes made")
	if rules := say(t, m, 0, "rule", "list", "events/Subscriptions/big"); strings.Contains(rules, "$Default") {
		t.Error("the subscription has the rule $Default beside the declared ones:", rules)
	}

	say(t, m, 0, "namespace", "create", "copy")
	service := "Endpoint=sb://" + strings.TrimPrefix(m.Admin, "http://") + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=any;UseDevelopmentEmulator=true"
	wants(t, say(t, m, 0, "import", "--from-azure", service, "--namespace", "copy", "--dry-run"), "+ rule size of events/Subscriptions/big", "0 of 8 changes made")
	wants(t, say(t, m, 2, "import", "Config.json", "--from-azure", service), "wrong number of arguments")
	wants(t, say(t, m, 0, "apply", "--from-azure", service, "--namespace", "copy"), "+ rule size of events/Subscriptions/big", "8 of 8 changes made")
	wants(t, say(t, m, 0, "import", "--from-azure", service, "--namespace", "copy"), "0 of 0 changes made")
	if a, b := say(t, m, 0, "key", "show", "reader", "orders", "-o", "json"), say(t, m, 0, "key", "show", "reader", "orders", "-o", "json", "--namespace", "copy"); secretIn(a) != secretIn(b) {
		t.Error("the copied key has another secret")
	}
	say(t, m, 0, "queue", "update", "orders", "--lock-duration", "2m")
	say(t, m, 0, "rule", "replace", "events/Subscriptions/big", "size", "--sql", "size > 7")
	wants(t, say(t, m, 4, "diff", "-f", file), "~ queue orders  lockDuration: 2m0s -> 1m0s", "~ rule size of events/Subscriptions/big")
	wants(t, say(t, m, 0, "apply", "-f", file, "-o", "json"), `"applied": 2`)

	exported := say(t, m, 0, "export")
	wants(t, exported, "name: extra", "lockDuration: 1m0s", "expression: size > 6")
	all := kit.WriteFile(t, exported)
	say(t, m, 0, "diff", "-f", all, "--prune")
	wants(t, say(t, m, 4, "diff", "-f", file, "--prune"), "- queue extra")
	wants(t, say(t, m, 2, "apply", "-f", file, "--prune"), "add --yes")
	wants(t, say(t, m, 0, "apply", "-f", file, "--prune", "--yes"), "1 of 1 changes made")
	wants(t, say(t, m, 1, "queue", "show", "extra"), "extra")
	misspelt := kit.WriteFile(t, "queues: [{name: a, lockDuraton: 1m}]")
	wants(t, say(t, m, 2, "apply", "-f", misspelt), misspelt+`:1: queues[0].lockDuraton: unknown key (did you mean "lockDuration"?)`)
	wants(t, say(t, m, 2, "apply", "-f", kit.WriteFile(t, "queues: [{name: a}, {name: A}]")), "declared twice")
	wants(t, say(t, m, 0, "apply", "--schema"), "https://json-schema.org/draft/2020-12/schema")
}
