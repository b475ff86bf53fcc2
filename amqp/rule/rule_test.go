package rule

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// sameValue compares values of rules; a NaN is itself.
func sameValue(a, b filter.Value) bool { return a == b }

func sqlFilter(text any) wire.Pair {
	return wire.Pair{Key: sqlFilterKey, Value: wire.Map{{Key: expressionKey, Value: text}}}
}

func addRequest(name any, description ...wire.Pair) wire.Map {
	return wire.Map{{Key: NameKey, Value: name}, {Key: DescriptionKey, Value: wire.Map(description)}}
}

// The answers byte for byte: descriptors as ulong in eight bytes, no list0, an action in
// every rule, and a map in every correlation filter (docs/service-bus-protocol.md#rule-descriptors).
func TestRuleDescriptionsKeepTheirBytes(t *testing.T) {
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
		got := hex.EncodeToString(Encode(&c.rule))
		if want := strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestRequestsForRulesAreRead(t *testing.T) {
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
		"name inside":         {addRequest(nil, sqlFilter("1=1"), wire.Pair{Key: NameKey, Value: wire.Symbol("r")}), fsm.Rule{Name: "r"}},
		"correlation": {addRequest("r", correlation), fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			condition(filter.System, filter.CorrelationID, filter.Text("1")), condition(filter.System, filter.To, filter.Text("3")),
			condition(filter.System, filter.ReplyTo, filter.Text("4")), condition(filter.System, filter.Label, filter.Text("")),
			condition(filter.System, filter.SessionID, filter.Text("6")), condition(filter.System, filter.ReplyToSessionID, filter.Text("7")),
			condition(filter.System, filter.ContentType, filter.Text("8")),
			condition(filter.User, "n", filter.Int(1)), condition(filter.User, "t", filter.Time(5)), condition(filter.User, "x", filter.Span(7)),
		}}, Forms: []fsm.ValueForm{7: {Type: fsm.TypeInt}, 9: {Type: fsm.TypeDuration}}}},
	} {
		got, err := Parse(c.body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(sameValue)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
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
		rule, err := Parse(body)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), fsm.InvalidArgument.Error()) {
				t.Fatalf("said: %v", err)
			}
			return
		}
		if err := rule.Validate(); err != nil {
			t.Fatalf("taken, but not by the machine: %v", err)
		}
		shown := Encode(&rule)
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
	if d.Descriptor != uint64(descriptor) || len(list) != 4 {
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
		rule.Filter.Conditions, rule.Forms, err = parseConditions(m)
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

// Properties of a correlation filter are read back in the type that was given, and in the given order.
func TestPropertiesAreReadBackInTheirType(t *testing.T) {
	t.Parallel()
	given := wire.Map{
		{Key: "z", Value: int8(-1)},
		{Key: "y", Value: uint8(200)},
		{Key: "x", Value: int16(-300)},
		{Key: "w", Value: uint16(60000)},
		{Key: "v", Value: int32(7)},
		{Key: "u", Value: uint32(7)},
		{Key: "t", Value: int64(7)},
		{Key: "s", Value: uint64(7)},
		{Key: "r", Value: float32(0.5)},
		{Key: "q", Value: 0.1},
		{Key: "p", Value: true},
		{Key: "o", Value: "text"},
		{Key: "n", Value: time.UnixMilli(5).UTC()},
		{Key: "m", Value: wire.UUID{1, 2, 3}},
		{Key: "l", Value: []byte{0, 1}},
		{Key: "k", Value: wire.Char('c')},
		{Key: "j", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:timespan"), Value: int64(-7)}},
		{Key: "i", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:uri"), Value: "http://a/b"}},
	}
	rule, err := Parse(addRequest("r", wire.Pair{Key: correlationFilterKey, Value: wire.Map{{Key: "label", Value: "l"}, {Key: conditionsKey, Value: given}}}))
	if err != nil {
		t.Fatal(err)
	}
	shown := Encode(&rule)
	if want := wire.AppendValue(nil, given); !bytes.Contains(shown, want) {
		t.Errorf("%x\n has no %x", shown, want)
	}
}
