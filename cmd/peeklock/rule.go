package main

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

// ruleHelp explains the flags of a filter.
const ruleHelp = `A filter is one of --sql, --correlation, --true and --false. --sql takes an expression as in
SQL: plain names are application properties, sys. goes before what Service Bus defines, and
@name stands for a --parameter. --correlation takes a property and the value it must have,
several times if all of them must hold: sys.Label=order, color=red. --action changes the copies
that the rule takes, as in: SET paint = color; REMOVE color.

After = a value is text; after := it is JSON, so that size:=7 is the number 7 and a GUID is
id:={"type":"guid","value":"..."}. A number never equals a text.`

func newRule(c *client) *cobra.Command {
	cmd := group("rule", "Add, list, show, replace and remove rules of subscriptions",
		newRulePut(c, false), newRulePut(c, true), newRuleList(c), newRuleShow(c), newRuleRemove(c))
	cmd.Long = `Add, list, show, replace and remove rules of subscriptions. A subscription takes a message of
its topic when any of its rules takes it: one copy if any rule without action does, and one
more for every rule with an action. It is made with the rule $Default, which takes everything:
remove that one when you add others.`
	return cmd
}

// ruleFlags are the flags that say what a rule is.
type ruleFlags struct {
	sql                    string
	all, none              bool
	action                 string
	correlation, parameter []string
	isSQL, isCorrelation   bool
}

func (r *ruleFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.sql, "sql", "", "take messages for which this SQL expression is true")
	f.StringArrayVar(&r.correlation, "correlation", nil, "take messages that have this property, as key=value; repeatable")
	f.BoolVar(&r.all, "true", false, "take every message")
	f.BoolVar(&r.none, "false", false, "take no message")
	f.StringVar(&r.action, "action", "", "change the copies: SET and REMOVE statements")
	f.StringArrayVar(&r.parameter, "parameter", nil, "value of @name in --sql and --action, as name=value or name:=json; repeatable")
}

// given says whether the command line describes a rule at all, and notes which filters it
// names.
func (r *ruleFlags) given(cmd *cobra.Command) bool {
	changed := cmd.Flags().Changed
	r.isSQL, r.isCorrelation = changed("sql"), changed("correlation")
	return r.isSQL || r.isCorrelation || changed("true") || changed("false") || changed("action") || changed("parameter")
}

// rule is the rule without its name. given must have been called.
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
		return rule, usagef("a rule has one filter: give one of --sql, --correlation, --true, --false")
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
		return rule, usagef("--parameter goes with --sql or --action")
	}
	return rule, nil
}

// rulePath is the path of a rule in the API.
func rulePath(subscription, name string) string {
	return namePath("/v1/rules/", subscription) + "?name=" + url.QueryEscape(name)
}

func newRulePut(c *client, replace bool) *cobra.Command {
	var flags ruleFlags
	verb, short, done, example := "add", "Add a rule to a subscription", "added", `  peeklock rule add orders/Subscriptions/large large --sql "size > @least" --parameter least:=100
  peeklock rule add orders/Subscriptions/eu eu --correlation region=eu --correlation sys.Label=order
  peeklock rule add orders/Subscriptions/audit mark --true --action "SET audited = TRUE"`
	if replace {
		verb, short, done, example = "replace", "Put another rule in the place of one", "replaced",
			`  peeklock rule replace orders/Subscriptions/audit '$Default' --sql "sys.Label LIKE 'order%'"`
	}
	cmd := &cobra.Command{
		Use: verb + " " + subscriptionArg + " RULE", Short: short, Long: short + ".\n\n" + ruleHelp, Example: example,
		Args: wantSubscription(1), ValidArgsFunction: c.completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			flags.given(cmd)
			rule, err := flags.rule()
			if err != nil {
				return err
			}
			path := rulePath(args[0], args[1])
			if replace {
				path += "&replace=true"
			}
			var made entity.Rule
			if err := c.call(cmd.Context(), http.MethodPut, path, rule, &made); err != nil {
				return err
			}
			if out.isTable() {
				return out.note("rule %s %s at %s", made.Name, done, args[0])
			}
			return out.fields(made)
		},
	}
	flags.flags(cmd)
	return cmd
}

func newRuleShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show " + subscriptionArg + " RULE", Short: "Show a rule", Args: wantSubscription(1),
		Example:           "  peeklock rule show orders/Subscriptions/audit '$Default'",
		ValidArgsFunction: c.completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			var rule entity.Rule
			if err := c.call(cmd.Context(), http.MethodGet, rulePath(args[0], args[1]), nil, &rule); err != nil {
				return err
			}
			return out.fields(rule)
		},
	}
}

func newRuleRemove(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "remove " + subscriptionArg + " RULE", Aliases: []string{"delete"},
		Short: "Remove a rule; messages that it has taken stay", Args: wantSubscription(1),
		Example:           "  peeklock rule remove orders/Subscriptions/audit '$Default'",
		ValidArgsFunction: c.completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, rulePath(args[0], args[1]), nil, nil); err != nil {
				return err
			}
			if out.isTable() {
				return out.note("rule %s removed from %s", args[1], args[0])
			}
			return out.data(deleted{Name: args[1], Deleted: true})
		},
	}
}

func newRuleList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list " + subscriptionArg, Short: "List the rules of a subscription, in the order of their making", Args: wantSubscription(0),
		Example:           "  peeklock rule list orders/Subscriptions/audit",
		ValidArgsFunction: c.complete("subscriptions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.output()
			if err != nil {
				return err
			}
			rules, err := c.rules(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			rows := make([][]any, len(rules))
			for i := range rules {
				r := &rules[i]
				action := "-"
				if r.Action != nil {
					action = r.Action.Expression + parametersText(r.Action.Parameters)
				}
				rows[i] = []any{printable(r.Name, 50), printable(filterText(&r.Filter), 120), printable(action, 80)}
			}
			return out.rows(rules, []any{"name", "filter", "action"}, rows)
		},
	}
}

func (c *client) rules(ctx context.Context, subscription string) ([]entity.Rule, error) {
	return allPages(ctx, c, namePath("/v1/rules/", subscription)+"?max=200", "skip", func(p *admin.RulePage) ([]entity.Rule, string) {
		if p.Next == 0 {
			return p.Rules, ""
		}
		return p.Rules, strconv.Itoa(p.Next)
	})
}

// filterText is a filter for people.
func filterText(f *entity.Filter) string {
	switch f.Kind {
	case entity.FilterSQL:
		return f.Expression + parametersText(f.Parameters)
	case entity.FilterCorrelation:
		return f.Kind + pairsText(f.Conditions, "")
	}
	return f.Kind
}

// parametersText stands behind an expression.
func parametersText(values map[string]entity.Value) string {
	if len(values) == 0 {
		return ""
	}
	return "  (" + strings.TrimSpace(pairsText(values, "@")) + ")"
}

// pairsText is names and values, those of text in quotes, in the order of the names.
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
