package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"

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
