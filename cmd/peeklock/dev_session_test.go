package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Sessions on the command line: messages are sent to them, listed, peeked at, and received from named sessions and
// from the next one.
func TestMessagesOfSessionsStayInOrder(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	defer stop()
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]

	wants(t, say(t, a, 0, "queue", "create", "orders", "--requires-session", "-o", "json"), `"requiresSession": true`)
	wants(t, say(t, a, 1, "message", "send", "orders", "none"), "the SessionId was not set")
	say(t, a, 0, "message", "send", "orders", "r1", "r2", "r3", "--session", "red")
	say(t, b, 0, "message", "send", "orders", "b1", "--session", "blue")
	say(t, c, 0, "message", "send", "orders", "e1", "--session", "")
	say(t, c, 0, "message", "send", "orders", "later", "--session", "red", "--in", "1h")

	list := say(t, b, 0, "session", "list", "orders")
	for _, row := range []string{`"red" +4 +3 +- +-`, `"blue" +1 +1 +- +-`, `"" +1 +1 +- +-`} {
		if !regexp.MustCompile(`(?m)^` + row + ` *$`).MatchString(list) {
			t.Errorf("no %q in\n%s", row, list)
		}
	}
	wants(t, say(t, c, 0, "session", "list", "orders", "--count", "1", "-o", "json"), `"id": "red"`, `"messages": 4`, `"stateBytes": 0`)
	if out := say(t, c, 0, "session", "list", "orders", "--count", "2", "-o", "json"); strings.Count(out, `"id"`) != 2 {
		t.Errorf("two were asked for: %s", out)
	}

	peeked := say(t, a, 0, "message", "peek", "orders", "--session", "red", "-o", "json")
	wants(t, peeked, `"state":"active"`, `"sessionId":"red","body":"r3"`, `"state":"scheduled"`)
	if strings.Contains(peeked, `"body":"b1"`) || strings.Contains(peeked, `"body":"e1"`) {
		t.Errorf("messages of other sessions: %s", peeked)
	}
	wants(t, say(t, a, 0, "message", "peek", "orders"), "r1", "b1", "e1")

	wants(t, say(t, b, 1, "message", "receive", "orders"), "requires sessions", "Accept a session")
	wants(t, say(t, b, 0, "message", "receive", "orders", "--next-session", "--defer"), `session "red"`, "r1", "1 received")
	wants(t, say(t, c, 0, "message", "receive", "orders", "--session", "red", "--count", "2"), "r2", "r3", "2 received")
	wants(t, say(t, c, 0, "message", "receive", "orders", "--session", "red", "--wait", "500ms"), "0 received")
	wants(t, say(t, a, 1, "message", "receive", "orders", "--session", "blue", "--sequence", "1"), "could not be found")
	wants(t, say(t, a, 0, "message", "receive", "orders", "--session", "red", "--sequence", "1", "-o", "json"), `"sessionId":"red"`, `"body":"r1"`)
	wants(t, say(t, b, 0, "message", "receive", "orders", "--next-session", "--delete", "-o", "json"), `"sessionId":"blue"`)
	wants(t, say(t, b, 0, "message", "receive", "orders", "--session", "", "--dead-letter", "-o", "json"), `"sessionId":""`)
	wants(t, say(t, c, 0, "message", "receive", "orders", "--next-session", "--wait", "500ms"), "no session to accept in orders")
	wants(t, say(t, c, 0, "message", "receive", "orders", "--session", "new", "--wait", "500ms"), "0 received")
	wants(t, say(t, a, 0, "message", "redrive", "orders"), "1 of 1 redriven")
	wants(t, say(t, a, 0, "message", "receive", "orders", "--next-session"), `session ""`, "e1")

	say(t, a, 0, "queue", "create", "plain")
	wants(t, say(t, a, 1, "session", "list", "plain"), "'plain' has no sessions")
	wants(t, say(t, a, 1, "session", "list", "none"), "could not be found")
	wants(t, say(t, a, 1, "message", "receive", "plain", "--session", "red"), "does not require sessions")
	say(t, a, 0, "topic", "create", "news")
	wants(t, say(t, a, 2, "session", "list", "news"), "news is a topic")
	say(t, a, 0, "subscription", "create", "news/Subscriptions/all", "--requires-session")
	say(t, b, 0, "message", "send", "news", "n1", "--session", "green")
	wants(t, say(t, b, 0, "session", "list", "news/Subscriptions/all"), `"green"`)
	wants(t, say(t, c, 0, "message", "receive", "news/Subscriptions/all", "--session", "green"), "n1")
}

// Consumers that receive from one session after another get each message once and in the order of its session.
func TestBenchVerifiesSessions(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	defer stop()
	m := ready.Members[0]
	for _, more := range [][]string{
		{"--receivers", "5"},
		{"--receivers", "3", "--queues", "2", "--senders", "3", "--credit", "2"},
	} {
		args := append([]string{"bench", "--sessions", "50", "--messages", "1000", "-o", "json"}, more...)
		wants(t, say(t, m, 0, args...), `"sessions": 50`, `"confirmed": 1000`, `"settled": 1000`, `"lost": 0`, `"duplicated": 0`, `"misordered": 0`)
	}
	wants(t, say(t, m, 0, "bench", "--sessions", "10", "--messages", "100", "--mode", "send", "--keep"), "10 sessions")
	wants(t, say(t, m, 0, "session", "list", "bench-0", "-o", "json"), `"messages": 10`)
	wants(t, say(t, m, 0, "bench", "--sessions", "10", "--mode", "receive"), "settled 100")
}
