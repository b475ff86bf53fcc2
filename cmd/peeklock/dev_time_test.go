package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/messages"
	"github.com/peeklock/peeklock/test/kit"
)

// items parses the JSON lines that receive and peek print.
func items(t *testing.T, text string) []messages.ShownMessage {
	t.Helper()
	var list []messages.ShownMessage
	for line := range strings.Lines(text) {
		var m messages.ShownMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		list = append(list, m)
	}
	return list
}

// Scheduled messages, times to live and limits on the command line, with each step at another member.
func TestCommandLineSchedulesAndExpiresMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three members")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	a, b, c := ready.Members[0], ready.Members[1], ready.Members[2]

	say(t, a, 0, "queue", "create", "jobs", "--default-ttl", "1h", "--dead-letter-on-expiry")
	wants(t, say(t, b, 0, "queue", "show", "jobs"), "defaultMessageTimeToLive", "1h0m0s", "counts.scheduled")

	// One message is scheduled, listed and canceled, and another becomes active in time.
	var later messages.Scheduled
	if err := json.Unmarshal([]byte(say(t, a, 0, "message", "send", "jobs", "one", "two", "--in", "1h", "-o", "json")), &later); err != nil || later.Sent != 2 || len(later.Sequences) != 2 {
		t.Fatalf("%+v %v", later, err)
	}
	seen := items(t, say(t, b, 0, "message", "peek", "jobs", "-o", "json"))
	if len(seen) != 2 || seen[0].State != "scheduled" || seen[0].Scheduled == nil || seen[0].Scheduled.Sub(later.At).Abs() > 1e6 {
		t.Errorf("%+v", seen)
	}
	wants(t, say(t, c, 0, "queue", "show", "jobs", "-o", "json"), `"scheduled": 2`, `"active": 0`)
	one := strconv.FormatInt(later.Sequences[0], 10)
	wants(t, say(t, c, 0, "message", "cancel", "jobs", one), "1 cancelled in jobs")
	say(t, a, 1, "message", "cancel", "jobs", one)
	say(t, b, 0, "message", "send", "jobs", "soon", "--in", "300ms")
	got := items(t, say(t, c, 0, "message", "receive", "jobs", "--wait", "60s", "-o", "json"))
	if len(got) != 1 || got[0].Body != "soon" || got[0].Sequence == later.Sequences[1] || got[0].Expires == nil {
		t.Errorf("%+v", got)
	}

	// Expired messages go to the dead-letter queue (docs/requirements.md#e5).
	say(t, a, 0, "message", "send", "jobs", "fleeting", "--ttl", "100ms")
	got = items(t, say(t, b, 0, "message", "receive", "jobs", "--dead-letters", "--wait", "60s", "-o", "json"))
	if len(got) != 1 || got[0].Body != "fleeting" || got[0].Properties[messages.PropertyReason] != "TTLExpiredException" {
		t.Errorf("%+v", got)
	}

	// Deferred messages are received by their number, once.
	say(t, a, 0, "message", "send", "jobs", "set aside")
	got = items(t, say(t, a, 0, "message", "receive", "jobs", "--defer", "-o", "json"))
	number := strconv.FormatInt(got[0].Sequence, 10)
	wants(t, say(t, b, 0, "message", "receive", "jobs", "--sequence", number, "--abandon"), "set aside")
	wants(t, say(t, c, 0, "message", "receive", "jobs", "--sequence", number, "-o", "json"), `"body":"set aside"`, `"settled":"complete"`)
	say(t, a, 1, "message", "receive", "jobs", "--sequence", number)
}

// Dead letters are redriven by filter, and the rest is purged.
func TestDeadLettersAreRedriven(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1")
	m := ready.Members[0]
	say(t, m, 0, "queue", "create", "orders", "--max-size-mb", "1")
	say(t, m, 0, "message", "send", "orders", "red one", "blue two", "red three")
	say(t, m, 0, "message", "receive", "orders", "--dead-letter", "--reason", "broken", "--count", "2")
	say(t, m, 0, "message", "receive", "orders", "--dead-letter", "--reason", "late")

	wants(t, say(t, m, 0, "message", "redrive", "orders", "--dry-run", "--contains", "red"), "red one", "red three", "2 of orders/$DeadLetterQueue would be moved back")
	wants(t, say(t, m, 0, "message", "peek", "orders", "--dead-letters", "--count", "1", "--where", "DeadLetterReason LIKE 'l%'"), "red three", "1 seen")
	wants(t, say(t, m, 0, "message", "redrive", "orders", "--dry-run", "--where", "DeadLetterReason = 'broken' AND sys.SequenceNumber > 1"), "blue two", "1 of orders")
	wants(t, say(t, m, 0, "message", "redrive", "orders", "--where", "unknown = 1"), "0 of 0 redriven to orders")
	wants(t, say(t, m, 0, "message", "redrive", "orders", "--reason", "broken", "--contains", "red", "-o", "json"), `"matched": 1`, `"redriven": 1`)
	wants(t, say(t, m, 0, "message", "redrive", "orders", "--older-than", "1h"), "0 of 0 redriven to orders")
	got := items(t, say(t, m, 0, "message", "receive", "orders", "--abandon", "-o", "json"))
	if len(got) != 1 || got[0].Body != "red one" || got[0].Sequence != 1 || got[0].DeliveryCount != 0 || got[0].Properties[messages.PropertyReason] != nil {
		t.Errorf("%+v", got)
	}
	wants(t, say(t, m, 0, "message", "purge", "orders", "--dead-letters", "--older-than", "1h", "--yes"), "0 purged")
	wants(t, say(t, m, 0, "message", "purge", "orders", "--dead-letters", "--yes"), "2 purged from orders/$DeadLetterQueue")
	wants(t, say(t, m, 0, "message", "purge", "orders", "--yes"), "1 purged from orders")
	wants(t, say(t, m, 0, "queue", "show", "orders", "-o", "json"), `"active": 0`, `"deadLetter": 0`)

	// Six messages of 200,000 bytes are more than a MiB.
	wants(t, say(t, m, 1, "message", "send", "orders", "--size", "200000", "--count", "6"), "after 5 messages")
	say(t, m, 0, "message", "purge", "orders", "--yes")

	say(t, m, 0, "queue", "update", "orders", "--status", "ReceiveDisabled")
	say(t, m, 0, "message", "send", "orders", "x")
	wants(t, say(t, m, 1, "message", "receive", "orders"), "disabled")
	say(t, m, 0, "queue", "update", "orders", "--status", "SendDisabled")
	wants(t, say(t, m, 1, "message", "send", "orders", "x"), "disabled")
	wants(t, say(t, m, 0, "message", "receive", "orders", "-o", "json"), `"body":"x"`)

	say(t, m, 0, "queue", "create", "once", "--duplicate-detection")
	say(t, m, 0, "message", "send", "once", "first", "second", "--message-id", "7")
	wants(t, say(t, m, 0, "queue", "show", "once", "-o", "json"), `"active": 1`, `"requiresDuplicateDetection": true`)
}
