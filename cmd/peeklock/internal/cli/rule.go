package cli

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
)

// ruleFlags has the flags that describe a rule.
type ruleFlags struct {
	sql                    string
	all, none              bool
	action                 string
	correlation, parameter []string
	isSQL, isCorrelation   bool
}

func (r *ruleFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.sql, "sql", "", "match messages for which this SQL expression is true")
	f.StringArrayVar(&r.correlation, "correlation", nil, "match messages that have this property, as key=value; repeatable")
	f.BoolVar(&r.all, "true", false, "match all messages")
	f.BoolVar(&r.none, "false", false, "match no message")
	f.StringVar(&r.action, "action", "", "SET and REMOVE statements that change the copies")
	f.StringArrayVar(&r.parameter, "parameter", nil, "value of @name in --sql and --action, as name=value or name:=json; repeatable")
}

// given reports whether the command line describes a rule, and records which filters it names.
func (r *ruleFlags) given(changed func(flag string) bool) bool {
	r.isSQL, r.isCorrelation = changed("sql"), changed("correlation")
	return r.isSQL || r.isCorrelation || changed("true") || changed("false") || changed("action") || changed("parameter")
}

// rule returns the rule without its name. given must have been called before.
func (r *ruleFlags) rule() (entity.Rule, error) {
	var rule entity.Rule
	filters := 0
	for _, f := range []struct {
		given bool
		kind  string
	}{
		{r.isSQL, entity.FilterSQL},
		{r.isCorrelation, entity.FilterCorrelation},
		{r.all, entity.FilterTrue},
		{r.none, entity.FilterFalse},
	} {
		if f.given {
			filters++
			rule.Filter.Kind = f.kind
		}
	}
	if filters != 1 {
		return rule, Usagef("a rule has one filter: give one of --sql, --correlation, --true, --false")
	}
	parameters, err := typedPairs("--parameter", r.parameter)
	if err != nil {
		return rule, err
	}
	if rule.Filter.Conditions, err = typedPairs("--correlation", r.correlation); err != nil {
		return rule, err
	}
	if r.isSQL {
		rule.Filter.Expression = r.sql
		rule.Filter.Parameters = parameters
	}
	if r.action != "" {
		rule.Action = &entity.SQLText{Expression: r.action, Parameters: parameters}
	}
	if len(parameters) > 0 && !r.isSQL && r.action == "" {
		return rule, Usagef("--parameter goes with --sql or --action")
	}
	return rule, nil
}

// RulePath returns the path of a rule in the API.
func RulePath(subscription, name string) string {
	return NamePath("/v1/rules/", subscription) + "?name=" + url.QueryEscape(name)
}

func rules(ctx context.Context, c *Client, subscription string) ([]entity.Rule, error) {
	return allPages(ctx, c, NamePath("/v1/rules/", subscription)+"?max=200", "skip", func(p *admin.RulePage) ([]entity.Rule, string) {
		if p.Next == 0 {
			return p.Rules, ""
		}
		return p.Rules, strconv.Itoa(p.Next)
	})
}

// filterText returns a filter as text.
func filterText(f *entity.Filter) string {
	switch f.Kind {
	case entity.FilterSQL:
		return f.Expression + parametersText(f.Parameters)
	case entity.FilterCorrelation:
		return f.Kind + pairsText(f.Conditions, "")
	}
	return f.Kind
}

// parametersText returns the parameters, which follow an expression.
func parametersText(values map[string]entity.Value) string {
	if len(values) == 0 {
		return ""
	}
	return "  (" + strings.TrimSpace(pairsText(values, "@")) + ")"
}

// pairsText returns names and values, sorted by name. Text values are quoted.
func pairsText(values map[string]entity.Value, before string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value, err := values[name].MarshalJSON()
		if err != nil {
			value = []byte("?")
		}
		fmt.Fprintf(&b, " %s%s=%s", before, name, value)
	}
	return b.String()
}

// ruleHelp explains the flags of a filter.
const ruleHelp = `A filter is one of --sql, --correlation, --true and --false. --sql takes an SQL expression: plain names are
application properties, names that begin with sys. are properties of Service Bus, and @name stands for a
--parameter. --correlation takes a property and the value that it must have; it may be repeated, and then all
of them must match: sys.Label=order, color=red. --action changes the copies that the rule creates, for example:
SET paint = color; REMOVE color.

A value after = is text. A value after := is JSON, so size:=7 is the number 7, and a GUID is written
id:={"type":"guid","value":"..."}. A number never equals a text.`

func ruleNoun() noun {
	path := func(args []string) string { return RulePath(args[0], args[1]) }
	return noun{name: "rule", short: "Add, list, show, replace and remove rules of subscriptions", long: `Add, list, show, replace and remove rules of subscriptions. A subscription gets a message of its topic when at
least one of its rules matches: one copy if a rule without an action matches, and one more for each matching rule
with an action. A new subscription has the rule $Default, which matches all messages: remove it when you add others.`, verbs: []verb{
		putRuleVerb(verb{
			use: "add " + subscriptionArg + " RULE", short: "Add a rule to a subscription",
			example: `  peeklock rule add orders/Subscriptions/large large --sql "size > @least" --parameter least:=100
  peeklock rule add orders/Subscriptions/eu eu --correlation region=eu --correlation sys.Label=order
  peeklock rule add orders/Subscriptions/audit mark --true --action "SET audited = TRUE"`,
		}, "", "added"),
		putRuleVerb(verb{
			use: "replace " + subscriptionArg + " RULE", short: "Replace a rule",
			example: `  peeklock rule replace orders/Subscriptions/audit '$Default' --sql "sys.Label LIKE 'order%'"`,
		}, "&replace=true", "replaced"),
		listVerb(verb{
			use: "list " + subscriptionArg, short: "List the rules of a subscription by name",
			example: "  peeklock rule list orders/Subscriptions/audit", args: wantSubscription(0), complete: completeNames("subscriptions"),
		}, func(i invocation) ([]entity.Rule, error) { return rules(i.ctx, i.client, i.args[0]) }, []any{"name", "filter", "action"}, ruleRow),
		getVerb[entity.Rule](verb{
			use: "show " + subscriptionArg + " RULE", short: "Show a rule", args: wantSubscription(1),
			example: "  peeklock rule show orders/Subscriptions/audit '$Default'", complete: completeRule,
		}, path),
		deleteVerb(verb{
			use: "remove " + subscriptionArg + " RULE", aliases: []string{"delete"}, args: wantSubscription(1),
			short:   "Remove a rule; messages that it has matched stay",
			example: "  peeklock rule remove orders/Subscriptions/audit '$Default'", complete: completeRule,
		}, path, func(args []string) string { return args[1] }, func(args []string) string { return "rule " + args[1] + " removed from " + args[0] }),
	}}
}

func putRuleVerb(v verb, query, done string) verb {
	var flags ruleFlags
	v.long = v.short + ".\n\n" + ruleHelp
	v.args, v.complete, v.flags = wantSubscription(1), completeRule, flags.flags
	v.run = func(i invocation) error {
		flags.given(i.changed)
		rule, err := flags.rule()
		if err != nil {
			return err
		}
		var made entity.Rule
		if err := i.client.Call(i.ctx, http.MethodPut, RulePath(i.args[0], i.args[1])+query, rule, &made); err != nil {
			return err
		}
		if i.out.IsTable() {
			return i.out.Note("rule %s %s at %s", made.Name, done, i.args[0])
		}
		return i.out.fields(made)
	}
	return v
}

func ruleRow(r *entity.Rule) []any {
	action := "-"
	if r.Action != nil {
		action = r.Action.Expression + parametersText(r.Action.Parameters)
	}
	return []any{Printable(r.Name, 50), Printable(filterText(&r.Filter), 120), Printable(action, 80)}
}

// completeRule offers subscriptions, and then the rules of the chosen subscription.
func completeRule(ctx context.Context, c *Client, args []string) []string {
	if len(args) != 1 {
		return completeNames("subscriptions")(ctx, c, args)
	}
	return pageNames(ctx, c, NamePath("/v1/rules/", args[0])+"?max="+strconv.Itoa(completionNames))
}
