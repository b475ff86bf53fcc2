package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

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
	conn, err := amqp.Dial(t.Context(), "amqp://"+c.AMQP, &amqp.ConnOptions{
		ContainerID: "worker", Properties: map[string]any{"product": "test-library", "version": "1.2"},
		SASLType: amqp.SASLTypePlain("RootManageSharedAccessKey", "any"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := session.NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	if _, err := receiver.Receive(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	wants(t, say(t, a, 0, "connection", "list", "--links"), "test-library 1.2", "RootManageSharedAccessKey", "receiver orders", "credit 0, unsettled 1")
	var page topology.ConnectionPage
	if err := json.Unmarshal([]byte(say(t, b, 0, "connection", "list", "-o", "json")), &page); err != nil {
		t.Fatal(err)
	}
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
		time.Sleep(100 * time.Millisecond) // that with conditions begins too, and prints nothing
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
	wants(t, say(t, a, 0, "message", "tail", "orders", "--from", "1", "--count", "2"), "old", "new one")
	wants(t, say(t, a, 1, "message", "tail", "none"), "none")
	wants(t, say(t, a, 2, "message", "tail", "orders", "--sequence", "1"), "--from")
}
