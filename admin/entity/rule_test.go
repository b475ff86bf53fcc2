package entity

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The shown form of a rule can be sent again and describes the same rule.
func TestRulesShownCanBeCreatedAgain(t *testing.T) {
	t.Parallel()
	for _, rule := range []fsm.Rule{
		{Name: "t", Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}},
		{Name: "f", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}},
		{
			Name:   "s",
			Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a = @a", Parameters: []filter.Parameter{{Name: "a", Value: filter.Time(5)}}}},
			Action: fsm.SQLText{Text: "SET a = @b", Parameters: []filter.Parameter{{Name: "b"}, {Name: "c", Value: filter.Int(7)}}},
		},
		{Name: "c", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			{Property: filter.Property{Name: "color"}, Value: filter.Text("red")},
			{Property: filter.Property{Name: filter.Label, Scope: filter.System}, Value: filter.Text("l")},
			{Property: filter.Property{Name: "SYS.Label"}, Value: filter.ID(filter.GUID{9})},
			{Property: filter.Property{Name: "user.id"}, Value: filter.Double(1)},
		}}},
	} {
		text, err := json.Marshal(DescribeRule(rule))
		if err != nil {
			t.Fatal(err)
		}
		var again Rule
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		got, err := again.Parse()
		if diff := cmp.Diff(rule, got, cmp.Comparer(func(a, b filter.Value) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
}
