package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// Topics on the command line: copies by rules, types of properties, actions, and messages that are forwarded.
func TestTopicsGiveCopiesToSubscriptions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	defer stop()
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]
	const audit, large = "shop/orders/Subscriptions/audit", "shop/orders/Subscriptions/large"

	say(t, a, 0, "topic", "create", "shop/orders")
	wants(t, say(t, b, 1, "queue", "create", "Shop/Orders"), "already exists")
	say(t, b, 0, "subscription", "create", audit)
	say(t, c, 0, "subscription", "create", large, "--sql", "size > @least", "--parameter", "least:=100")
	wants(t, say(t, a, 1, "rule", "add", large, "x", "--sql", "size = = 7"), `character 8: expected a value, a property or a condition, found "="`)
	say(t, a, 0, "rule", "add", large, "mark", "--correlation", "sys.Label=order", "--action", "SET marked = TRUE; REMOVE region")
	wants(t, say(t, b, 1, "rule", "add", large, "MARK", "--true"), "has a rule 'MARK'")
	wants(t, say(t, c, 0, "rule", "list", large), "size > @least  (@least=100)", `correlation sys.Label="order"`, "REMOVE region")

	say(t, a, 0, "message", "send", "shop/orders", "small", "--property", "size:=7")
	say(t, b, 0, "message", "send", "shop/orders", "text", "--property", "size=700")
	say(t, c, 0, "message", "send", "shop/orders", "both", "--property", "size:=700", "--property", "region=eu", "--subject", "order")
	wants(t, say(t, a, 0, "subscription", "show", audit, "-o", "json"), `"active": 3`)
	wants(t, say(t, b, 0, "topic", "show", "shop/orders", "-o", "json"), `"subscriptions": 2`)
	got := say(t, b, 0, "message", "receive", large, "--count", "2", "-o", "json")
	wants(t, say(t, c, 0, "subscription", "show", large, "-o", "json"), `"active": 0`)
	wants(t, got, `"properties":{"region":"eu","size":700},"body":"both"`, `"properties":{"RuleName":"mark","marked":true,"size":700},"body":"both"`)
	if n := strings.Count(got, "\n"); n != 2 {
		t.Errorf("%d messages:\n%s", n, got)
	}
	wants(t, say(t, c, 0, "message", "peek", audit, "--where", "size = 7", "-o", "json"), `"body":"small"`)
	wants(t, say(t, c, 1, "message", "receive", "shop/orders"), "amqp:not-allowed")
	wants(t, say(t, c, 2, "message", "purge", "shop/orders", "--yes"), "is a topic")
	wants(t, say(t, a, 0, "message", "receive", audit, "--dead-letter", "--reason", "because"), "small")
	wants(t, say(t, a, 0, "message", "redrive", audit), "1 of 1 redriven")
	wants(t, say(t, a, 0, "message", "receive", audit, "--dead-letter", "--reason", "because"), "small")
	wants(t, say(t, b, 1, "message", "redrive", audit, "--to", large), "gets no messages from clients")
	wants(t, say(t, b, 0, "message", "redrive", audit, "--set", "size:=900"), "1 of 1 redriven")
	wants(t, say(t, c, 0, "message", "peek", audit, "--where", "size = 900", "-o", "json"), `"body":"small"`)
	wants(t, say(t, b, 0, "subscription", "show", large, "-o", "json"), `"active": 0`) // its rules select it
	wants(t, say(t, a, 0, "message", "purge", audit, "--yes"), "3 purged from "+audit)
	wants(t, say(t, a, 0, "rule", "remove", large, "$Default"), "removed")
	wants(t, say(t, a, 0, "rule", "replace", large, "mark", "--false"), "replaced")
	if rules := say(t, b, 0, "rule", "list", large, "-o", "json"); strings.Contains(rules, "$Default") || !strings.Contains(rules, `"kind": "false"`) {
		t.Error(rules)
	}
	const parts = "parts/Subscriptions/all"
	say(t, a, 0, "topic", "create", "parts", "--partitioned")
	say(t, a, 0, "subscription", "create", parts)
	say(t, a, 0, "message", "send", "parts", "one", "two", "three", "four")
	say(t, a, 0, "message", "receive", parts, "--dead-letter", "--count", "4")
	wants(t, say(t, b, 0, "message", "redrive", parts, "--set", "size:=900"), "4 of 4 redriven")
	wants(t, say(t, c, 0, "message", "peek", parts, "--where", "size = 900"), "one", "two", "three", "four")
	wants(t, say(t, b, 0, "topic", "delete", "shop/orders", "--yes"), "deleted")
	wants(t, say(t, b, 1, "subscription", "show", audit), "could not be found")
}

// Messages that cannot be forwarded are kept, with the reason, and can be received.
func TestForwardingMovesMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	defer stop()
	a, b := ready.Members[0], ready.Members[1]
	wants(t, say(t, a, 1, "queue", "create", "in", "--forward-to", "out"), `"out"`)
	say(t, a, 0, "queue", "create", "out", "--max-message-bytes", "1024")
	say(t, a, 0, "topic", "create", "news")
	say(t, b, 0, "subscription", "create", "news/Subscriptions/all", "--forward-to", "out")
	say(t, b, 0, "message", "send", "news", "hello", "--property", "n:=7")
	wants(t, say(t, b, 0, "message", "receive", "out", "-o", "json"), `"properties":{"n":7},"body":"hello"`)
	say(t, b, 0, "message", "send", "news", "--size", "2000")
	patience := time.After(60 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(say(t, a, 0, "subscription", "show", "news/Subscriptions/all", "-o", "json"), `"deadLetter": 1`) {
		select {
		case <-patience:
			t.Fatal(say(t, a, 0, "subscription", "list"))
		case <-tick.C:
		}
	}
	wants(t, say(t, a, 0, "message", "peek", "news/Subscriptions/all", "--dead-letters", "-o", "json"), `"DeadLetterReason":"MessageSizeExceeded"`)
	wants(t, say(t, a, 0, "message", "purge", "news/Subscriptions/all", "--dead-letters", "--yes"), "1 purged")
}

// Each subscription whose rules match the messages gets each of them once.
func TestBenchVerifiesTopics(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	defer stop()
	m := ready.Members[0]
	wants(t, say(t, m, 0, "bench", "--topic", "3", "--messages", "500", "-o", "json"),
		`"copies": 3`, `"confirmed": 500`, `"settled": 1500`, `"lost": 0`, `"duplicated": 0`)
	wants(t, say(t, m, 0, "bench", "--topic", "3", "--sql-rules", "20", "--correlation-rules", "30", "--matching", "2", "--messages", "500", "-o", "json"),
		`"copies": 2`, `"confirmed": 500`, `"settled": 1000`, `"lost": 0`)
	wants(t, say(t, m, 0, "bench", "--topic", "5", "--mode", "send", "--messages", "100", "-o", "json"), `"storedBytesPerMessage": 1`)
	if out := say(t, m, 0, "topic", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Error("left behind:", out)
	}
}
