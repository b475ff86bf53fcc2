package amqp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/rule"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

func sqlFilter(text any) wire.Pair {
	return wire.Pair{Key: "sql-filter", Value: wire.Map{{Key: "expression", Value: text}}}
}

func addRequest(name any, description ...wire.Pair) wire.Map {
	return wire.Map{{Key: rule.NameKey, Value: name}, {Key: rule.DescriptionKey, Value: wire.Map(description)}}
}

// Errors in a rule are reported to its author, with their position.
func TestRuleRequestFaults(t *testing.T) {
	t.Parallel()
	pair := func(key string, v any) wire.Pair { return wire.Pair{Key: key, Value: v} }
	correlation := func(pairs ...wire.Pair) wire.Pair { return pair("correlation-filter", append(wire.Map{}, pairs...)) }
	p := managementPeerAt(t, newFakeBroker().topic("topic", "sub"), fsm.Listen, "topic/subscriptions/sub/$management")
	for i, c := range []struct {
		body wire.Map
		text string
	}{
		{nil, "the request has no map rule-description"},
		{wire.Map{pair(rule.NameKey, "r"), pair(rule.DescriptionKey, "text")}, "the request has no map rule-description"},
		{addRequest(nil, sqlFilter("1=1")), "the request has no rule-name"},
		{addRequest("r"), "neither sql-filter nor correlation-filter"},
		{addRequest("r", sqlFilter("1=1"), correlation()), "two filters"},
		{addRequest("r", pair("sql-filter", "1=1")), "sql-filter is not a map"},
		{addRequest("r", sqlFilter(int32(1))), "sql-filter has no string expression"},
		{addRequest("r", pair("correlation-filter", "x")), "correlation-filter is not a map"},
		{addRequest("r", correlation(pair("label", int32(1)))), "label of correlation-filter is not a string"},
		{addRequest("r", correlation(pair("properties", "x"))), "properties of correlation-filter is not a map"},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: int32(1), Value: "x"}}))), "a key in properties"},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: "a", Value: []any{"x"}}}))), `property "a" of correlation-filter is of a type`},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: "a", Value: nil}}))), "NULL"},
		{addRequest("r", sqlFilter("1=1"), pair("sql-rule-action", "SET")), "sql-rule-action is not a map"},
		{addRequest("r", sqlFilter("1=1"), pair("sql-rule-action", wire.Map{{Key: "expression", Value: int32(1)}})), "sql-rule-action has no string expression"},
		{addRequest("r", sqlFilter("color = = 'red'")), "The rule 'r' cannot be taken: filter: character 9: expected "},
		{addRequest("r", sqlFilter("")), "filter: character 1: expected "},
		{addRequest("r", sqlFilter("1=1"), pair("sql-rule-action", wire.Map{{Key: "expression", Value: "SET a"}})), "action: character 6: expected =, found the end"},
		{addRequest("r", sqlFilter(strings.Repeat("(", 1025))), "at most 1024 characters"},
		{addRequest(strings.Repeat("r", 51), sqlFilter("1=1")), "51 characters"},
	} {
		status, condition, _ := p.manage(uint32(i), management.AddRuleOperation, c.body)
		if status != int32(400) || condition != wire.ConditionArgumentError {
			t.Errorf("case %d: %v %v", i, status, condition)
		}
		if _, err := rule.Parse(c.body); err == nil || !strings.Contains(badRule("r", err), c.text) {
			t.Errorf("case %d: %v, want %q", i, err, c.text)
		}
	}
}

// badRule returns the text of the refusal without its advice.
func badRule(name string, err error) string {
	return fmt.Sprintf("The rule '%.64s' cannot be taken: %s. Correct it and send it again.", name, err)
}

// rulesOf returns the names in an answer to enumerate-rules.
func rulesOf(t *testing.T, answer wire.Map) (names []string) {
	t.Helper()
	rules, _ := answer.Get("rules").([]any)
	for _, r := range rules {
		entry, _ := r.(wire.Map)
		d, ok := entry.Get(rule.DescriptionKey).(wire.Described)
		list, isList := d.Value.([]any)
		if !ok || !isList || d.Descriptor != uint64(0x0000013700000004) || len(list) != 4 {
			t.Fatalf("rule %+v", entry)
		}
		if _, ok := list[1].(wire.Described); !ok {
			t.Errorf("action %+v", list[1])
		}
		name, _ := wire.AsText(list[2])
		names = append(names, name)
	}
	return names
}

func page(top, skip any) wire.Map {
	return wire.Map{{Key: "top", Value: top}, {Key: "skip", Value: skip}}
}

// Rules are added, listed and removed through the management node of their subscription.
func TestRulesOnTheWire(t *testing.T) {
	t.Parallel()
	p := managementPeerAt(t, newFakeBroker().topic("Topic", "Sub"), fsm.Listen, "topic/subscriptions/sub/$management")
	id := uint32(0)
	ask := func(operation string, body wire.Map, status int32, condition any) wire.Map {
		t.Helper()
		id++
		gotStatus, gotCondition, answer := p.manage(id-1, operation, body)
		if gotStatus != status || gotCondition != condition {
			t.Errorf("%s: %v %v, want %d %v", operation, gotStatus, gotCondition, status, condition)
		}
		return answer
	}
	names := func(top, skip any) []string {
		t.Helper()
		return rulesOf(t, ask(management.EnumerateRulesOperation, page(top, skip), 200, nil))
	}
	if got := names(int32(100), int32(0)); !slices.Equal(got, []string{fsm.DefaultRuleName}) {
		t.Errorf("rules of a new subscription: %v", got)
	}
	for i := range 5 {
		ask(management.AddRuleOperation, addRequest(fmt.Sprint("rule-", i), sqlFilter(fmt.Sprint("n = ", i))), 200, nil)
	}
	ask(management.AddRuleOperation, addRequest("RULE-1", sqlFilter("1=1")), 409, wire.ConditionEntityAlreadyExists)
	ask(management.RemoveRuleOperation, wire.Map{{Key: rule.NameKey, Value: "$default"}}, 200, nil)
	ask(management.RemoveRuleOperation, wire.Map{{Key: rule.NameKey, Value: "$Default"}}, 404, wire.ConditionNotFound)
	ask(management.RemoveRuleOperation, nil, 400, wire.ConditionArgumentError)
	for _, c := range []struct {
		top, skip any
		want      []string
	}{
		{int32(2147483647), int32(0), []string{"rule-0", "rule-1", "rule-2", "rule-3", "rule-4"}}, // JavaScript
		{int32(2), int32(0), []string{"rule-0", "rule-1"}},
		{int64(2), uint32(3), []string{"rule-3", "rule-4"}},
		{nil, nil, []string{"rule-0", "rule-1", "rule-2", "rule-3", "rule-4"}},
	} {
		if got := names(c.top, c.skip); !slices.Equal(got, c.want) {
			t.Errorf("top %v skip %v: %v", c.top, c.skip, got)
		}
	}
	if answer := ask(management.EnumerateRulesOperation, page(int32(100), int32(5)), 204, nil); len(answer) != 0 {
		t.Errorf("nothing there: %v", answer)
	}
	for _, bad := range []wire.Map{page(int32(0), nil), page("all", nil), page(nil, int32(-1)), page(nil, "none")} {
		ask(management.EnumerateRulesOperation, bad, 400, wire.ConditionArgumentError)
	}
}

// Operations on rules need the right to listen, at the subscription.
func TestOperationsOnRulesNeedListen(t *testing.T) {
	t.Parallel()
	p := managementPeerAt(t, newFakeBroker().topic("topic", "sub"), fsm.Send, "topic/subscriptions/sub/$management")
	for i, operation := range []string{management.AddRuleOperation, management.RemoveRuleOperation, management.EnumerateRulesOperation} {
		if status, condition, _ := p.manage(uint32(i), operation, addRequest("r", sqlFilter("1=1"))); status != int32(401) || condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("%s: %v %v", operation, status, condition)
		}
	}
}

// waiting waits as a broker without leader does.
type waiting struct{ *fakeBroker }

func (waiting) AddRule(ctx context.Context, _ fsm.EntityRef, _ fsm.Rule) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestRuleOperationsTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := managementPeerAt(t, waiting{newFakeBroker().topic("topic", "sub")}, fsm.Listen, "topic/subscriptions/sub/$management")
		before := time.Now()
		status, condition, _ := p.manage(0, management.AddRuleOperation, addRequest("r", sqlFilter("1=1")))
		if status != int32(503) || condition != wire.ConditionServerBusy || time.Since(before) != management.RuleWithin {
			t.Errorf("after %v: %v %v", time.Since(before), status, condition)
		}
		_ = p.net.Close()
		<-p.ended
	})
}

// The audit log has who changed rules and deleted messages over AMQP, once it was done, and each key that signed in.
func TestChangesOverAMQPAreAudited(t *testing.T) {
	t.Parallel()
	var j auditCapture
	h := newFakeBroker("orders").topic("topic", "sub")
	p := managementPeerAt(t, h, fsm.Manage, "topic/subscriptions/sub/$management", j.into)
	p.manage(1, management.AddRuleOperation, addRequest("mine", sqlFilter("1=1")))
	p.manage(2, management.AddRuleOperation, addRequest("mine", sqlFilter("1=1"))) // exists
	p.manage(3, management.RemoveRuleOperation, wire.Map{{Key: rule.NameKey, Value: "mine"}})
	p.manage(4, management.EnumerateRulesOperation, wire.Map{})
	p.manage(5, management.BatchDeleteOperation, wire.Map{{Key: management.MessageCountKey, Value: int32(5)}}) // none
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encodedMessage(t, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	h.do(sendOne(at, m))
	q := managementPeerAt(t, h, fsm.Manage, "orders/$management", j.into)
	if status, _, answer := q.manage(6, management.BatchDeleteOperation, wire.Map{{Key: management.MessageCountKey, Value: int32(5)}}); status != int32(200) {
		t.Fatalf("batch delete: %v %v", status, answer)
	}
	var got []string
	for _, line := range j.lines(t) {
		got = append(got, fmt.Sprint(line["event"], " ", line["operation"], " ", line["rule"], " ", line["count"], " ", line["who"], " ", line["outcome"]))
	}
	want := []string{
		"login <nil> <nil> <nil> <nil> <nil>",
		"rule_change " + management.AddRuleOperation + " mine <nil> " + ruleName + " ok",
		"rule_change " + management.RemoveRuleOperation + " mine <nil> " + ruleName + " ok",
		"login <nil> <nil> <nil> <nil> <nil>",
		"batch_delete " + management.BatchDeleteOperation + " <nil> 1 " + ruleName + " ok",
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// partsBroker records how many settlements each call has, and what they store.
type partsBroker struct {
	*fakeBroker
	calls, largest int
}

func (b *partsBroker) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	stored := 0
	for i := range settlements {
		stored += len(settlements[i].Properties)
	}
	b.calls, b.largest = b.calls+1, max(b.largest, stored)
	b.fakeBroker.Settle(at, settlements, done)
}

// A disposition with properties is merged by token and settled in parts, so that a small request never becomes one large
// command; each message is settled once.
func TestPropertiesOfADispositionAreSettledInParts(t *testing.T) {
	t.Parallel()
	h := &partsBroker{fakeBroker: newFakeBroker("orders")}
	at, err := h.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.Parse(encodedMessage(t, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	const count, repeated = 20, 100
	var tokens []any
	for range count {
		h.do(sendOne(at, m))
		r := h.do(fsm.LockMessages{Address: at.Address(), Max: 1, MaxBytes: 1 << 20})
		for range repeated {
			tokens = append(tokens, message.UUIDFromToken(h.LockToken(at, r.Deliveries[0].Lock)))
		}
	}
	p := managementPeerAt(t, h, fsm.Listen, "orders/$management")
	status, condition, _ := p.manage(1, management.DispositionOperation, wire.Map{
		{Key: "disposition-status", Value: "abandoned"},
		{Key: "lock-tokens", Value: tokens},
		{Key: "properties-to-modify", Value: wire.Map{{Key: "k", Value: strings.Repeat("v", 30_000)}}},
	})
	if status != int32(200) || h.calls != (count+7)/8 || h.largest > 256<<10 {
		t.Errorf("%v %v: %d calls, the largest stores %d bytes", status, condition, h.calls, h.largest)
	}
	if c := h.counts("orders"); c.Active != count || c.Locked != 0 {
		t.Errorf("counts %+v", c)
	}
}
