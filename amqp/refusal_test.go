package amqp

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// logCapture records log lines by tracking id.
type logCapture struct {
	mu      sync.Mutex
	entries map[string]map[string]any
}

func (b *logCapture) Write(line []byte) (int, error) {
	var entry map[string]any
	if err := json.Unmarshal(line, &entry); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, ok := entry["tracking_id"].(string); ok {
		b.entries[id] = entry
	}
	return len(line), nil
}

// refusalForm is the form of every text: the error and the advice, whether a retry can help, and a reference
// for more information (docs/requirements.md#t1).
var refusalForm = regexp.MustCompile(`^[A-Z].*[.] (A retry will not help|A retry helps only after that|A retry may help)[.] ` +
	`TrackingId:([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}), Timestamp:([0-9TZ:.+-]+)$`)

// check checks one text and its log line.
func (b *logCapture) check(t *testing.T, what string, condition wire.Symbol, text string) {
	t.Helper()
	parts := refusalForm.FindStringSubmatch(text)
	if parts == nil {
		t.Errorf("%s: %q", what, text)
		return
	}
	if at, err := time.Parse(time.RFC3339, parts[3]); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("%s: time %q, %v", what, parts[3], err)
	}
	b.mu.Lock()
	entry := b.entries[parts[2]]
	b.mu.Unlock()
	reason, _ := entry["reason"].(string)
	if entry["condition"] != string(condition) || reason == "" || !strings.HasPrefix(text, reason) || entry["peer"] == nil {
		t.Errorf("%s: the log says %v of %q", what, entry, text)
	}
}

// Every error that a client gets has the same form, and is in the log of the member.
func TestEveryRefusalIsExplained(t *testing.T) {
	t.Parallel()
	book := &logCapture{entries: make(map[string]map[string]any)}
	h := newFakeBroker("orders")
	h.messages(t, "orders", 2)
	p := loggedIn(t, h, func(c *Config) { c.Logger = slog.New(slog.NewJSONHandler(book, nil)) })

	p.send(&wire.Attach{Name: "nowhere", Handle: 9, Target: &wire.Target{Address: "nowhere"}})
	expect[*wire.Attach](p)
	d := expect[*wire.Detach](p)
	book.check(t, "attach", d.Error.Condition, d.Error.Description)

	p.sender(0, "orders")
	p.transfer(0, 0, []byte("no message"))
	e := p.refused(0, wire.RoleReceiver, wire.ConditionDecodeError)
	book.check(t, "transfer", e.Condition, e.Description)
	h.mu.Lock()
	h.sendCode = fsm.QuotaExceeded
	h.mu.Unlock()
	p.transfer(0, 1, encodedMessage(t, nil))
	e = p.refused(1, wire.RoleReceiver, wire.ConditionResourceLimitExceeded)
	book.check(t, "send", e.Condition, e.Description)

	p.receiver(1, "orders")
	p.credit(1, 0, 2)
	p.deliveries(2)
	h.advanceClock(time.Minute)
	p.send(dispose(0, 0, false, &wire.Accepted{}))
	e = p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
	book.check(t, "settlement", e.Condition, e.Description)
	p.send(dispose(77, 77, false, &wire.Accepted{}))
	e = p.refused(77, wire.RoleSender, wire.ConditionMessageLockLost)
	book.check(t, "settlement of nothing", e.Condition, e.Description)
	p.send(dispose(1, 1, false, &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: "?"}}}))
	e = p.refused(1, wire.RoleSender, wire.ConditionNotAllowed)
	book.check(t, "outcome", e.Condition, e.Description)

	for _, node := range []string{"orders/$management", "$cbs"} {
		p.sender(2, node)
		p.receiver(3, node)
		p.credit(3, 0, 10)
		p.transfer(2, 2, requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: "do-something"}}, nil), settled)
		r := p.response()
		text, condition := "statusDescription", "errorCondition"
		if node == "$cbs" {
			text, condition = "status-description", "error-condition"
		}
		symbol, _ := r.properties.Get(condition).(wire.Symbol)
		book.check(t, node, symbol, r.properties.Text(text))
		p.send(&wire.Detach{Handle: 2, Closed: true}, &wire.Detach{Handle: 3, Closed: true})
		expect[*wire.Detach](p)
		expect[*wire.Detach](p)
	}

	h.mu.Lock()
	h.lockCode = fsm.ServerBusy
	h.mu.Unlock()
	p.receiver(4, "orders")
	p.credit(4, 0, 1)
	d = expect[*wire.Detach](p)
	book.check(t, "detach", d.Error.Condition, d.Error.Description)

	p.sendOn(1, &wire.Begin{IncomingWindow: 10})
	expect[*wire.Begin](p)
	p.sendOn(1, &wire.Transfer{Handle: 5})
	end := expect[*wire.End](p)
	book.check(t, "session", end.Error.Condition, end.Error.Description)

	p.send(&wire.Open{})
	closed := expect[*wire.Close](p)
	book.check(t, "connection", closed.Error.Condition, closed.Error.Description)
}
