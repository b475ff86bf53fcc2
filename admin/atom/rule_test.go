package atom

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

func TestRulesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 5e6, time.UTC).UnixMilli()
	values := []filter.Parameter{
		{Name: "a", Value: filter.Text(" <a>&\"'\n\r\t")},
		{Name: "b", Value: filter.Bool(true)},
		{Name: "c", Value: filter.Int(math.MinInt64)},
		{Name: "d", Value: filter.Double(2.5)},
		{Name: "e", Value: filter.Double(math.Inf(-1))},
		{Name: "f", Value: filter.Time(at)},
		{Name: "g", Value: filter.Text("")},
	}
	user := func(name string, v filter.Value) filter.Condition {
		return filter.Condition{Property: filter.Property{Name: name}, Value: v}
	}
	system := func(name string) filter.Condition {
		return filter.Condition{Property: filter.Property{Name: name, Scope: filter.System}, Value: filter.Text("of " + name)}
	}
	for _, want := range []fsm.Rule{
		{Name: "true", Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}},
		{Name: "false", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}},
		{Name: "sql", Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: "a = @a", Parameters: values}}},
		{Name: "action", Action: fsm.SQLText{Text: "SET a = @a", Parameters: values}},
		{Name: "correlation", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			user("color", filter.Int(7)), system(filter.ContentType), system(filter.CorrelationID), system(filter.Label), system(filter.MessageID),
			system(filter.ReplyTo), system(filter.ReplyToSessionID), system(filter.SessionID), system(filter.To), user("sys.x", filter.Bool(false)),
			user("user.y", filter.Text("y")),
		}}},
	} {
		x := RuleDocument(Origin{Host: "localhost"}, fsm.Entity{Kind: fsm.SubscriptionEntity, Name: "t/Subscriptions/s"}, &want)
		description, err := ReadDescription(&x.Buffer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := description.Rule(want.Name)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		if diff := cmp.Diff(entity.DescribeRule(want), entity.DescribeRule(got), cmp.AllowUnexported(filter.Value{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", want.Name, diff)
		}
	}
}
