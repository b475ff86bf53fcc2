package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// TestMessagesAreChangedByHand finds, deletes, cancels, returns and redrives messages by number and by conditions, changes the
// state and the lock of sessions, and tests rules: each through another of three members than the one before.
func TestMessagesAreChangedByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	next := 0
	do := func(code int, args ...string) string {
		t.Helper()
		next++
		return say(t, ready.Members[next%len(ready.Members)], code, args...)
	}
	do(0, "queue", "create", "orders")
	do(0, "queue", "create", "repaired")
	do(0, "message", "send", "orders", `{"customer":{"id":7}}`, "red one", "red two", "--property", "size:=7")
	do(0, "message", "send", "orders", "later one", "later two", "--in", "1h")

	wants(t, do(0, "message", "peek", "orders", "--state", "scheduled"), "later one", "later two", "2 seen")
	wants(t, do(0, "message", "peek", "orders", "--path", "$.customer.id=7", "-o", "json"), `"properties":{"size":{"long":7}}`, `"state":"active"`)
	wants(t, do(0, "message", "cancel", "orders", "--contains", "later one", "--dry-run"), "later one", "1 of orders would be cancelled")
	wants(t, do(2, "message", "cancel", "orders", "--contains", "later one"), "add --yes")
	wants(t, do(0, "message", "cancel", "orders", "--contains", "later one", "--yes"), "1 of 1 cancelled in orders")

	do(0, "message", "receive", "orders", "--count", "2", "--defer")
	wants(t, do(0, "message", "peek", "orders", "--state", "deferred"), "red one", "2 seen")
	wants(t, do(0, "message", "undefer", "orders", "2"), "1 of 1 ready again in orders")
	wants(t, do(0, "message", "delete", "orders", "--state", "deferred", "--where", "size = 7", "--yes"), "1 of 1 deleted in orders")
	wants(t, do(0, "message", "receive", "orders", "--dead-letter", "--reason", "broken", "--count", "2"), "red one", "red two")

	body := kit.WriteFile(t, "repaired body")
	wants(t, do(0, "message", "redrive", "orders", "--sequence", "2", "--to", "repaired", "--set", "attempt:=2", "--remove", "size", "--body-file", body, "--new-id"), "1 of 1 redriven to repaired")
	moved := ""
	kit.Eventually(t, "the message arrives", func() bool { // in another partition it is forwarded
		moved = do(0, "message", "peek", "repaired", "-o", "json")
		return strings.Contains(moved, "body")
	})
	wants(t, moved, `"body":"repaired body"`, `"properties":{"attempt":{"long":2}}`)
	if strings.Contains(moved, "broken") {
		t.Error("the message has the reason of its dead letter:", moved)
	}
	wants(t, do(0, "message", "redrive", "orders", "--where", "DeadLetterReason = 'broken'"), "1 of 1 redriven to orders")
	wants(t, do(0, "message", "peek", "orders"), "red two", "later two", "2 seen")

	do(0, "queue", "create", "steps", "--requires-session")
	do(0, "message", "send", "steps", "one", "--session", "a")
	do(0, "session", "set-state", "steps", "a", `{"step":3}`)
	wants(t, do(0, "session", "state", "steps", "a"), `{"step":3}`)
	wants(t, do(0, "session", "clear-state", "steps", "a"), "cleared")
	wants(t, do(0, "session", "state", "steps", "a"), "no state")
	wants(t, do(0, "session", "release", "steps", "a"), "no receiver held")
	wants(t, do(1, "session", "state", "orders", "a"), "has no sessions")

	do(0, "topic", "create", "events")
	do(0, "subscription", "create", "events/Subscriptions/all")
	do(0, "subscription", "create", "events/Subscriptions/eu", "--sql", "region = 'eu' AND size > 6")
	wants(t, do(0, "rule", "test", "events", "--property", "region=eu", "--property", "size:=7"), "events/Subscriptions/all", "events/Subscriptions/eu")
	if told := do(0, "rule", "test", "events", "--property", "region=us"); strings.Contains(told, "Subscriptions/eu") {
		t.Error("a message of another region:", told)
	}
}
