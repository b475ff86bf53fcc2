package entities

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

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
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
		return rule, cli.Usagef("a rule has one filter: give one of --sql, --correlation, --true, --false")
	}
	parameters, err := command.TypedPairs("--parameter", r.parameter)
	if err != nil {
		return rule, err
	}
	if rule.Filter.Conditions, err = command.TypedPairs("--correlation", r.correlation); err != nil {
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
		return rule, cli.Usagef("--parameter goes with --sql or --action")
	}
	return rule, nil
}

// RulePath returns the path of a rule in the API.
func RulePath(subscription, name string) string {
	return client.NamePath("/v1/rules/", subscription) + "?name=" + url.QueryEscape(name)
}

func rules(ctx context.Context, c *client.Client, subscription string) ([]entity.Rule, error) {
	return allPages(ctx, c, client.NamePath("/v1/rules/", subscription)+"?max=200", "skip", func(p *api.RulePage) ([]entity.Rule, string) {
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

func ruleNoun() command.Noun {
	path := func(args []string) string { return RulePath(args[0], args[1]) }
	return command.Noun{Name: "rule", Short: "Add, list, show, replace, remove and test rules of subscriptions", Long: `Add, list, show, replace and remove rules of subscriptions. A subscription gets a message of its topic when at
least one of its rules matches: one copy if a rule without an action matches, and one more for each matching rule
with an action. A new subscription has the rule $Default, which matches all messages: remove it when you add others.`, Verbs: []command.Verb{
		putRuleVerb(command.Verb{
			Use: "add " + SubscriptionArg + " RULE", Short: "Add a rule to a subscription",
			Example: `  peeklock rule add orders/Subscriptions/large large --sql "size > @least" --parameter least:=100
  peeklock rule add orders/Subscriptions/eu eu --correlation region=eu --correlation sys.Label=order
  peeklock rule add orders/Subscriptions/audit mark --true --action "SET audited = TRUE"`,
		}, "", "added"),
		putRuleVerb(command.Verb{
			Use: "replace " + SubscriptionArg + " RULE", Short: "Replace a rule",
			Example: `  peeklock rule replace orders/Subscriptions/audit '$Default' --sql "sys.Label LIKE 'order%'"`,
		}, "&replace=true", "replaced"),
		command.ListVerb(command.Verb{
			Use: "list " + SubscriptionArg, Short: "List the rules of a subscription by name",
			Example: "  peeklock rule list orders/Subscriptions/audit", Args: wantSubscription(0), Complete: command.CompleteNames("subscriptions"),
		}, func(i command.Invocation) ([]entity.Rule, error) { return rules(i.Ctx, i.Client, i.Args[0]) }, []any{"name", "filter", "action"}, ruleRow),
		command.GetVerb[entity.Rule](command.Verb{
			Use: "show " + SubscriptionArg + " RULE", Short: "Show a rule", Args: wantSubscription(1),
			Example: "  peeklock rule show orders/Subscriptions/audit '$Default'", Complete: completeRule,
		}, path),
		command.DeleteVerb(command.Verb{
			Use: "remove " + SubscriptionArg + " RULE", Aliases: []string{"delete"}, Args: wantSubscription(1),
			Short:   "Remove a rule; messages that it has matched stay",
			Example: "  peeklock rule remove orders/Subscriptions/audit '$Default'", Complete: completeRule,
			Would: command.WouldIfFound(path, func(args []string) string { return "remove rule " + args[1] + " from " + args[0] }),
		}, path, func(args []string) string { return args[1] }, func(args []string) string { return "rule " + args[1] + " removed from " + args[0] }),
		ruleTestVerb(),
	}}
}

func putRuleVerb(v command.Verb, query, done string) command.Verb {
	var flags ruleFlags
	v.Long = v.Short + ".\n\n" + ruleHelp
	v.Args, v.Complete, v.Flags = wantSubscription(1), completeRule, flags.flags
	v.Run = func(i command.Invocation) error {
		flags.given(i.Changed)
		rule, err := flags.rule()
		if err != nil {
			return err
		}
		var made entity.Rule
		if err := i.Client.Call(i.Ctx, http.MethodPut, RulePath(i.Args[0], i.Args[1])+query, rule, &made); err != nil {
			return err
		}
		if i.Out.IsTable() {
			return i.Out.Note("rule %s %s at %s", made.Name, done, i.Args[0])
		}
		return i.Out.Fields(made)
	}
	v.Would = func(i command.Invocation) (command.Would, error) {
		flags.given(i.Changed)
		rule, err := flags.rule()
		if err == nil {
			err = i.Client.Call(i.Ctx, http.MethodGet, SubscriptionPath(i.Args[0]), nil, nil)
		}
		if err == nil && query == "" {
			err = mustNotExist(i, RulePath(i.Args[0], i.Args[1]), "rule "+i.Args[1])
		}
		if err != nil {
			return command.Would{}, err
		}
		if query == "" {
			return command.Wouldf("add rule %s to %s: %s", i.Args[1], i.Args[0], filterText(&rule.Filter))
		}
		var now entity.Rule
		if err := i.Client.Call(i.Ctx, http.MethodGet, RulePath(i.Args[0], i.Args[1]), nil, &now); err != nil {
			return command.Would{}, err
		}
		return command.Wouldf("replace rule %s of %s: %s by %s", now.Name, i.Args[0], filterText(&now.Filter), filterText(&rule.Filter))
	}
	return v
}

func ruleRow(r *entity.Rule) []any {
	action := "-"
	if r.Action != nil {
		action = r.Action.Expression + parametersText(r.Action.Parameters)
	}
	return []any{output.Printable(r.Name, 50), output.Printable(filterText(&r.Filter), 120), output.Printable(action, 80)}
}

// completeRule offers subscriptions, and then the rules of the chosen subscription.
func completeRule(ctx context.Context, c *client.Client, args []string) []string {
	if len(args) != 1 {
		return command.CompleteNames("subscriptions")(ctx, c, args)
	}
	return command.PageNames(ctx, c, client.NamePath("/v1/rules/", args[0])+"?max="+strconv.Itoa(command.CompletionNames))
}
