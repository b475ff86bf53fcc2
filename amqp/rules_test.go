package amqp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The answers byte for byte: descriptors as ulong in eight bytes, no list0, an action in
// every rule, and a map in every correlation filter (docs/service-bus-protocol.md#rule-descriptors).
func TestRuleDescriptions(t *testing.T) {
	t.Parallel()
	const (
		rule  = "00 80 0000013700000004 "
		empty = "00 80 0000013700000005 c0 01 00 "
		at    = "83 00000000000003e8"
	)
	for name, c := range map[string]struct {
		rule fsm.Rule
		want string
	}{
		"true": {fsm.Rule{Name: "t"}, rule + "c0 27 04 " +
			"00 80 0000001370000007 c0 01 00 " + empty + "a1 01 74 " + at},
		"false": {fsm.Rule{Name: "f", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}}, rule + "c0 27 04 " +
			"00 80 0000001370000008 c0 01 00 " + empty + "a1 01 66 " + at},
		"sql": {fsm.Rule{Name: "s", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a=1"}}, Action: fsm.SQLText{Text: "SET b=2"}}, rule + "c0 39 04 " +
			"00 80 0000001370000006 c0 08 02 a1 03 61 3d 31 54 14 " +
			"00 80 0000013700000006 c0 0c 02 a1 07 53 45 54 20 62 3d 32 54 14 a1 01 73 " + at},
		"correlation": {fsm.Rule{Name: "c", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			condition(filter.System, filter.CorrelationID, filter.Text("1")), condition(filter.System, filter.MessageID, filter.Text("2")),
			condition(filter.System, filter.To, filter.Text("3")), condition(filter.System, filter.ReplyTo, filter.Text("4")),
			condition(filter.System, "label", filter.Text("5")), condition(filter.System, filter.SessionID, filter.Text("6")),
			condition(filter.System, filter.ReplyToSessionID, filter.Text("7")), condition(filter.System, filter.ContentType, filter.Text("8")),
			condition(filter.User, "k", filter.Int(9)), condition(filter.User, "z", filter.Bool(true)),
		}}}, rule + "c0 4b 04 " +
			"00 80 0000001370000009 c0 25 09 a1 01 31 a1 01 32 a1 01 33 a1 01 34 a1 01 35 a1 01 36 a1 01 37 a1 01 38 " +
			"c1 0a 04 a1 01 6b 55 09 a1 01 7a 41 " + empty + "a1 01 63 " + at},
		"empty correlation": {fsm.Rule{Name: "e", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter}}, rule + "c0 32 04 " +
			"00 80 0000001370000009 c0 0c 09 40 40 40 40 40 40 40 40 c1 01 00 " + empty + "a1 01 65 " + at},
	} {
		c.rule.Created = 1000
		got := hex.EncodeToString(encodeRule(&c.rule))
		if want := strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// sameValue compares values of rules; a NaN is itself.
func sameValue(a, b filter.Value) bool { return a == b }

func sqlFilter(text any) wire.Pair {
	return wire.Pair{Key: sqlFilterKey, Value: wire.Map{{Key: expressionKey, Value: text}}}
}

func addRequest(name any, description ...wire.Pair) wire.Map {
	return wire.Map{{Key: ruleNameKey, Value: name}, {Key: ruleDescriptionKey, Value: wire.Map(description)}}
}

func TestRuleRequests(t *testing.T) {
	t.Parallel()
	action := wire.Pair{Key: sqlActionKey, Value: wire.Map{{Key: expressionKey, Value: "SET a = 1"}}}
	at := time.UnixMilli(5).UTC()
	correlation := wire.Pair{Key: correlationFilterKey, Value: wire.Map{
		{Key: "correlation-id", Value: "1"},
		{Key: "message-id", Value: nil},
		{Key: "to", Value: wire.Symbol("3")},
		{Key: "reply-to", Value: "4"},
		{Key: "label", Value: ""},
		{Key: "session-id", Value: "6"},
		{Key: "reply-to-session-id", Value: "7"},
		{Key: "content-type", Value: "8"},
		{Key: "properties", Value: wire.Map{{Key: "n", Value: int32(1)}, {Key: wire.Symbol("t"), Value: at}, {Key: "x", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:timespan"), Value: int64(7)}}}},
	}}
	for name, c := range map[string]struct {
		body wire.Map
		want fsm.Rule
	}{
		"sql":                 {addRequest("r", sqlFilter("a > 1"), action), fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a > 1"}}, Action: fsm.SQLText{Text: "SET a = 1"}}},
		"true":                {addRequest("r", sqlFilter("1=1")), fsm.Rule{Name: "r"}},
		"false":               {addRequest("r", sqlFilter("1=0")), fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}}},
		"null action of .NET": {addRequest("r", sqlFilter("1=1"), wire.Pair{Key: sqlActionKey}, wire.Pair{Key: correlationFilterKey}), fsm.Rule{Name: "r"}},
		"action without text": {addRequest("r", sqlFilter("1=1"), wire.Pair{Key: sqlActionKey, Value: wire.Map{{Key: expressionKey}}}), fsm.Rule{Name: "r"}},
		"name inside":         {addRequest(nil, sqlFilter("1=1"), wire.Pair{Key: ruleNameKey, Value: wire.Symbol("r")}), fsm.Rule{Name: "r"}},
		"correlation": {addRequest("r", correlation), fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			condition(filter.System, filter.CorrelationID, filter.Text("1")), condition(filter.System, filter.To, filter.Text("3")),
			condition(filter.System, filter.ReplyTo, filter.Text("4")), condition(filter.System, filter.Label, filter.Text("")),
			condition(filter.System, filter.SessionID, filter.Text("6")), condition(filter.System, filter.ReplyToSessionID, filter.Text("7")),
			condition(filter.System, filter.ContentType, filter.Text("8")),
			condition(filter.User, "n", filter.Int(1)), condition(filter.User, "t", filter.Time(5)), condition(filter.User, "x", filter.Int(7)),
		}}}},
	} {
		got, err := parseRule(c.body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(sameValue)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// What is wrong with a rule is said to whoever wrote it, with the place where it is wrong.
func TestRuleRequestFaults(t *testing.T) {
	t.Parallel()
	pair := func(key string, v any) wire.Pair { return wire.Pair{Key: key, Value: v} }
	correlation := func(pairs ...wire.Pair) wire.Pair { return pair(correlationFilterKey, append(wire.Map{}, pairs...)) }
	p := managementPeerAt(t, newFakeBroker().topic("topic", "sub"), fsm.Listen, "topic/subscriptions/sub/$management")
	for i, c := range []struct {
		body wire.Map
		text string
	}{
		{nil, "the request has no map rule-description"},
		{wire.Map{pair(ruleNameKey, "r"), pair(ruleDescriptionKey, "text")}, "the request has no map rule-description"},
		{addRequest(nil, sqlFilter("1=1")), "the request has no rule-name"},
		{addRequest("r"), "neither sql-filter nor correlation-filter"},
		{addRequest("r", sqlFilter("1=1"), correlation()), "two filters"},
		{addRequest("r", pair(sqlFilterKey, "1=1")), "sql-filter is not a map"},
		{addRequest("r", sqlFilter(int32(1))), "sql-filter has no string expression"},
		{addRequest("r", pair(correlationFilterKey, "x")), "correlation-filter is not a map"},
		{addRequest("r", correlation(pair("label", int32(1)))), "label of correlation-filter is not a string"},
		{addRequest("r", correlation(pair("properties", "x"))), "properties of correlation-filter is not a map"},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: int32(1), Value: "x"}}))), "a key in properties"},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: "a", Value: []any{"x"}}}))), `property "a" of correlation-filter is of a type`},
		{addRequest("r", correlation(pair("properties", wire.Map{{Key: "a", Value: nil}}))), "NULL"},
		{addRequest("r", sqlFilter("1=1"), pair(sqlActionKey, "SET")), "sql-rule-action is not a map"},
		{addRequest("r", sqlFilter("1=1"), pair(sqlActionKey, wire.Map{{Key: expressionKey, Value: int32(1)}})), "sql-rule-action has no string expression"},
		{addRequest("r", sqlFilter("color = = 'red'")), "The rule 'r' cannot be taken: filter: character 9: expected "},
		{addRequest("r", sqlFilter("")), "filter: character 1: expected "},
		{addRequest("r", sqlFilter("1=1"), pair(sqlActionKey, wire.Map{{Key: expressionKey, Value: "SET a"}})), "action: character 6: expected =, found the end"},
		{addRequest("r", sqlFilter(strings.Repeat("(", 1025))), "at most 1024 characters"},
		{addRequest(strings.Repeat("r", 51), sqlFilter("1=1")), "51 characters"},
	} {
		status, condition, _ := p.manage(uint32(i), addRuleOperation, c.body)
		if status != int32(400) || condition != wire.ConditionArgumentError {
			t.Errorf("case %d: %v %v", i, status, condition)
		}
		if _, err := parseRule(c.body); err == nil || !strings.Contains(badRule("r", err), c.text) {
			t.Errorf("case %d: %v, want %q", i, err, c.text)
		}
	}
}

// badRule is the text of the refusal without its advice.
func badRule(name string, err error) string {
	return badRequest("The rule '%.64s' cannot be taken: %s. Correct it and send it again.", name, err).text
}

// rulesOf reads the names in an answer to enumerate-rules.
func rulesOf(t *testing.T, answer wire.Map) (names []string) {
	t.Helper()
	rules, _ := answer.Get("rules").([]any)
	for _, r := range rules {
		entry, _ := r.(wire.Map)
		d, ok := entry.Get(ruleDescriptionKey).(wire.Described)
		list, isList := d.Value.([]any)
		if !ok || !isList || d.Descriptor != uint64(ruleDescriptor) || len(list) != 4 {
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

// Rules are added, shown and removed over the management node of their subscription.
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
		return rulesOf(t, ask(enumerateRulesOperation, page(top, skip), 200, nil))
	}
	if got := names(int32(100), int32(0)); !slices.Equal(got, []string{fsm.DefaultRuleName}) {
		t.Errorf("rules of a new subscription: %v", got)
	}
	for i := range 5 {
		ask(addRuleOperation, addRequest(fmt.Sprint("rule-", i), sqlFilter(fmt.Sprint("n = ", i))), 200, nil)
	}
	ask(addRuleOperation, addRequest("RULE-1", sqlFilter("1=1")), 409, wire.ConditionEntityAlreadyExists)
	ask(removeRuleOperation, wire.Map{{Key: ruleNameKey, Value: "$default"}}, 200, nil)
	ask(removeRuleOperation, wire.Map{{Key: ruleNameKey, Value: "$Default"}}, 404, wire.ConditionNotFound)
	ask(removeRuleOperation, nil, 400, wire.ConditionArgumentError)
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
	if answer := ask(enumerateRulesOperation, page(int32(100), int32(5)), 204, nil); len(answer) != 0 {
		t.Errorf("nothing there: %v", answer)
	}
	for _, bad := range []wire.Map{page(int32(0), nil), page("all", nil), page(nil, int32(-1)), page(nil, "none")} {
		ask(enumerateRulesOperation, bad, 400, wire.ConditionArgumentError)
	}
}

// What the broker says of rules becomes status, condition and text.
func TestRuleAnswers(t *testing.T) {
	t.Parallel()
	r := &request{link: &incomingLink{link: link{path: "t/Subscriptions/s/$management"}}}
	for _, c := range []struct {
		err       error
		status    int32
		condition wire.Symbol
		text      string
		gone      bool
	}{
		{nil, 200, "", "OK", false},
		{fsm.RuleNotFound, 404, wire.ConditionNotFound, "The messaging entity 't/Subscriptions/s/Rules/r' could not be found.", false},
		{fsm.RuleExists, 409, wire.ConditionEntityAlreadyExists, "The rule 'r' exists already.", false},
		{fsm.EntityNotFound, 404, wire.ConditionNotFound, "could not be found", true},
		{fsm.QuotaExceeded, 403, wire.ConditionResourceLimitExceeded, "as many rules as it may have", false},
		{fsm.ServerBusy, 503, wire.ConditionServerBusy, "", false},
		{fsm.Timeout, 408, wire.ConditionTimeout, "", false},
		{context.DeadlineExceeded, 503, wire.ConditionServerBusy, "", false},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("put rule: %w", err)
		}
		resp := ruleResponse(r, "r", err)
		if resp.status != c.status || resp.condition != c.condition || resp.entityGone != c.gone || !strings.Contains(resp.text, c.text) {
			t.Errorf("%v: %+v", c.err, resp)
		}
	}
}

// Operations on rules need the right to listen, at the subscription.
func TestRuleRights(t *testing.T) {
	t.Parallel()
	p := managementPeerAt(t, newFakeBroker().topic("topic", "sub"), fsm.Send, "topic/subscriptions/sub/$management")
	for i, operation := range []string{addRuleOperation, removeRuleOperation, enumerateRulesOperation} {
		if status, condition, _ := p.manage(uint32(i), operation, addRequest("r", sqlFilter("1=1"))); status != int32(401) || condition != wire.ConditionUnauthorizedAccess {
			t.Errorf("%s: %v %v", operation, status, condition)
		}
	}
}

// many is a broker with as many rules as are asked for.
type many struct {
	*fakeBroker
	rule  fsm.Rule
	asked []int
}

func (m *many) ListRules(_ context.Context, _ fsm.EntityRef, _, most int) ([]fsm.Rule, error) {
	m.asked = append(m.asked, most)
	return slices.Repeat([]fsm.Rule{m.rule}, most), nil
}

// An answer has a bound whatever is asked for, and a page of .NET fits with rules of any
// size.
func TestRulesAreBounded(t *testing.T) {
	t.Parallel()
	longest := fsm.Rule{Name: strings.Repeat("n", 50), Action: fsm.SQLText{Text: strings.Repeat("😀", filter.TextCharactersMax)}}
	longest.Filter.Kind = fsm.CorrelationFilter
	for i := range filter.ConditionsMax {
		longest.Filter.Conditions = append(longest.Filter.Conditions, condition(filter.User, fmt.Sprintf("%03d", i), filter.Text(strings.Repeat("v", filter.CorrelationBytesMax/filter.ConditionsMax-3))))
	}
	if n := len(encodeRule(&longest)); n*rulesAtOnceMax > rulesBytesMax {
		t.Errorf("%d rules of %d bytes do not fit into %d", rulesAtOnceMax, n, rulesBytesMax)
	}
	h := &many{fakeBroker: newFakeBroker().topic("topic", "sub"), rule: longest}
	c := &conn{config: &Config{Broker: h}}
	rules, resp := c.listRules(t.Context(), &request{link: &incomingLink{}}, 1<<31-1, 0)
	if resp.condition != "" || len(rules)%rulesAtOnceMax != 0 || len(rules) > 3*rulesAtOnceMax || len(rules) < rulesAtOnceMax {
		t.Errorf("%d rules, %+v", len(rules), resp)
	}
	if slices.Max(h.asked) > rulesAtOnceMax {
		t.Errorf("asked for %v", h.asked)
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
		status, condition, _ := p.manage(0, addRuleOperation, addRequest("r", sqlFilter("1=1")))
		if status != int32(503) || condition != wire.ConditionServerBusy || time.Since(before) != ruleWithin {
			t.Errorf("after %v: %v %v", time.Since(before), status, condition)
		}
		_ = p.net.Close()
		<-p.ended
	})
}

// Whatever a client sends as a rule is refused in a sentence or is a rule that the machine
// takes and that can be shown.
func FuzzRuleRequest(f *testing.F) {
	for _, body := range []wire.Map{
		addRequest("r", sqlFilter("a = 1"), wire.Pair{Key: sqlActionKey, Value: wire.Map{{Key: expressionKey, Value: "SET a = 1"}}}),
		addRequest("r", wire.Pair{Key: correlationFilterKey, Value: wire.Map{{Key: "label", Value: "x"}, {Key: "properties", Value: wire.Map{{Key: "a", Value: int64(1)}}}}}),
		addRequest("r", sqlFilter("1=0")),
	} {
		f.Add(wire.AppendMap(nil, body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := wire.DecodeMap(b)
		if err != nil {
			return
		}
		rule, err := parseRule(body)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), fsm.InvalidArgument.Error()) {
				t.Fatalf("said: %v", err)
			}
			return
		}
		if err := rule.Validate(); err != nil {
			t.Fatalf("taken, but not by the machine: %v", err)
		}
		shown := encodeRule(&rule)
		v, rest, err := wire.DecodeValue(shown)
		d, ok := v.(wire.Described)
		if err != nil || len(rest) > 0 || !ok {
			t.Fatalf("%x: %v", shown, err)
		}
		again, err := ruleShown(d)
		if err != nil || again.Name != rule.Name || again.Action.Text != rule.Action.Text || again.Filter.SQL.Text != rule.Filter.SQL.Text ||
			again.Filter.Kind != rule.Filter.Kind || len(again.Filter.Conditions) != len(rule.Filter.Conditions) {
			t.Fatalf("%+v is shown as %+v, %v", rule, again, err)
		}
	})
}

// ruleShown reads an answer as a client does.
func ruleShown(d wire.Described) (rule fsm.Rule, err error) {
	list, _ := d.Value.([]any)
	if d.Descriptor != uint64(ruleDescriptor) || len(list) != 4 {
		return rule, errors.New("not a rule")
	}
	rule.Name, _ = wire.AsText(list[2])
	f, _ := list[0].(wire.Described)
	fields, _ := f.Value.([]any)
	switch f.Descriptor {
	case uint64(trueFilterDescriptor):
	case uint64(falseFilterDescriptor):
		rule.Filter.Kind = fsm.FalseFilter
	case uint64(sqlFilterDescriptor):
		rule.Filter.Kind = fsm.SQLFilter
		rule.Filter.SQL.Text, _ = wire.AsText(fields[0])
	case uint64(correlationFilterDescriptor):
		rule.Filter.Kind = fsm.CorrelationFilter
		m := wire.Map{{Key: "properties", Value: fields[8]}}
		for i, k := range correlationKeys() {
			m = append(m, wire.Pair{Key: k.key, Value: fields[i]})
		}
		rule.Filter.Conditions, err = parseConditions(m)
	default:
		err = errors.New("unknown filter")
	}
	a, _ := list[1].(wire.Described)
	switch text, _ := a.Value.([]any); a.Descriptor {
	case uint64(emptyActionDescriptor):
	case uint64(sqlActionDescriptor):
		rule.Action.Text, _ = wire.AsText(text[0])
	default:
		err = errors.New("unknown action")
	}
	return rule, err
}
