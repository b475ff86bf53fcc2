package admin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The limits of a list of rules. The largest rule is 64 KiB, so this many fit into what
// members say to each other at once.
const (
	pageRulesMax    = 200
	pageRulesNormal = 100
)

// Prefixes of the names of conditions.
const (
	systemPrefix = "sys."
	userPrefix   = "user."
)

// putRule is PUT /v1/rules/{subscription}?name=, which adds a rule; with replace=true it
// takes the place of the rule of that name, which must be there.
func (s *Server) putRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r, "replace")
	if err != nil {
		return err
	}
	replace, err := boolParameter(r, "replace")
	if err != nil {
		return err
	}
	var asked Rule
	if err := decodeBody(r, &asked, ruleFields); err != nil {
		return err
	}
	if asked.Name == "" {
		asked.Name = name
	}
	if !strings.EqualFold(asked.Name, name) {
		return fmt.Errorf("%w: the path calls the rule %.60q and the body %.60q", fsm.InvalidArgument, name, asked.Name)
	}
	rule, err := asked.rule()
	if err != nil {
		return err
	}
	if err := s.namespace(r).PutRule(r.Context(), path, rule, replace); err != nil {
		return withRuleName(path, name, err)
	}
	status := http.StatusCreated
	if replace {
		status = http.StatusOK
	}
	s.writeJSON(w, r, status, describeRule(rule))
	return nil
}

// getRules is GET /v1/rules/{subscription}?skip=&max=, a list in the order of making, and
// with name= one rule.
func (s *Server) getRules(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Has("name") {
		return s.showRule(w, r)
	}
	if err := checkParameters(r, "skip", "max"); err != nil {
		return err
	}
	path, err := entityName(fsm.SubscriptionEntity, r)
	if err != nil {
		return err
	}
	limit, err := numberParameter(r, "max", pageRulesNormal, 1, pageRulesMax)
	if err != nil {
		return err
	}
	skip, err := numberParameter(r, "skip", 0, 0, 1<<31-1)
	if err != nil {
		return err
	}
	rules, err := s.namespace(r).Rules(r.Context(), path, skip, limit)
	if err != nil {
		return withEntityName(path, err)
	}
	page := RulePage{Rules: make([]Rule, len(rules))}
	for i := range rules {
		page.Rules[i] = describeRule(rules[i])
	}
	if len(rules) == limit {
		page.Next = skip + limit
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// showRule is GET /v1/rules/{subscription}?name=.
func (s *Server) showRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r)
	if err != nil {
		return err
	}
	rule, err := s.findRule(r, path, name)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, describeRule(rule))
	return nil
}

// findRule walks the list: rules are kept in the order of their making, and one of them is
// asked for by people only.
func (s *Server) findRule(r *http.Request, path, name string) (fsm.Rule, error) {
	for skip := 0; ; skip += pageRulesMax {
		rules, err := s.namespace(r).Rules(r.Context(), path, skip, pageRulesMax)
		if err != nil {
			return fsm.Rule{}, withEntityName(path, err)
		}
		for i := range rules {
			if strings.EqualFold(rules[i].Name, name) {
				return rules[i], nil
			}
		}
		if len(rules) < pageRulesMax {
			return fsm.Rule{}, withRuleName(path, name, fsm.RuleNotFound)
		}
	}
}

// deleteRule is DELETE /v1/rules/{subscription}?name=.
func (s *Server) deleteRule(w http.ResponseWriter, r *http.Request) error {
	path, name, err := ruleName(r)
	if err != nil {
		return err
	}
	if err := s.namespace(r).DropRule(r.Context(), path, name); err != nil {
		return withRuleName(path, name, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ruleName is the subscription in the path and the rule in the parameter; the names of
// rules hold what a path cannot, as $Default does.
func ruleName(r *http.Request, others ...string) (path, name string, err error) {
	if err := checkParameters(r, append(others, "name")...); err != nil {
		return "", "", err
	}
	if path, err = entityName(fsm.SubscriptionEntity, r); err != nil {
		return "", "", err
	}
	if name = r.URL.Query().Get("name"); name == "" {
		return "", "", fmt.Errorf("%w: which rule? say so with ?name=", fsm.InvalidArgument)
	}
	return path, name, nil
}

// withRuleName is naming for what concerns one rule.
func withRuleName(path, name string, err error) error {
	switch codeOf(err) { //nolint:exhaustive // the others are named by naming
	case fsm.RuleNotFound:
		return fmt.Errorf("%w: '%s' has no rule '%.60s'", fsm.RuleNotFound, path, name)
	case fsm.RuleExists:
		return fmt.Errorf("%w: '%s' has a rule '%.60s'", fsm.RuleExists, path, name)
	}
	return withEntityName(path, err)
}

const ruleFields = "name, filter (with kind, and expression and parameters or conditions) and action (with expression and parameters)"

// rule checks a rule as asked for and turns it into one of the machine. Errors wrap
// InvalidArgument and say where in the text something is wrong.
func (r *Rule) rule() (fsm.Rule, error) {
	rule := fsm.Rule{Name: r.Name}
	var err error
	if rule.Filter, err = r.Filter.filter(); err != nil {
		return rule, fmt.Errorf("%w: rule %.60q: %w", fsm.InvalidArgument, r.Name, err)
	}
	if r.Action != nil {
		rule.Action = fsm.SQLText{Text: r.Action.Expression, Parameters: parameters(r.Action.Parameters)}
	}
	if err := rule.Validate(); err != nil {
		return rule, fmt.Errorf("rule %.60q: %w", r.Name, err)
	}
	return rule, nil
}

func (f *Filter) filter() (fsm.RuleFilter, error) {
	out := fsm.RuleFilter{}
	sql := f.Expression != "" || len(f.Parameters) > 0
	switch kind := strings.ToLower(f.Kind); {
	case kind != FilterSQL && sql:
		return out, fmt.Errorf("expression and parameters belong to a filter of kind sql, not %.40q", f.Kind)
	case kind != FilterCorrelation && len(f.Conditions) > 0:
		return out, fmt.Errorf("conditions belong to a filter of kind correlation, not %.40q", f.Kind)
	case kind == FilterTrue:
		out.Kind = fsm.TrueFilter
	case kind == FilterFalse:
		out.Kind = fsm.FalseFilter
	case kind == FilterSQL:
		out.Kind = fsm.SQLFilter
		out.SQL = fsm.SQLText{Text: f.Expression, Parameters: parameters(f.Parameters)}
	case kind == FilterCorrelation:
		out.Kind = fsm.CorrelationFilter
		for _, name := range slices.Sorted(maps.Keys(f.Conditions)) {
			property, err := conditionProperty(name)
			if err != nil {
				return out, err
			}
			out.Conditions = append(out.Conditions, filter.Condition{Property: property, Value: f.Conditions[name].Value})
		}
	default:
		return out, fmt.Errorf("the kind of a filter is sql, correlation, true or false, not %.40q", f.Kind)
	}
	return out, nil
}

// parameters are sorted by name: JSON objects have no order.
func parameters(values map[string]Value) []filter.Parameter {
	var list []filter.Parameter
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, filter.Parameter{Name: strings.TrimPrefix(name, "@"), Value: values[name].Value})
	}
	return list
}

// conditionNames are the properties of Service Bus that a correlation filter can name.
func conditionNames() []string {
	return []string{
		filter.ContentType, filter.CorrelationID, filter.Label, filter.MessageID, filter.ReplyTo, filter.ReplyToSessionID,
		filter.SessionID, filter.To,
	}
}

// conditionProperty reads the name of a condition: "sys.Label", "color", "user.color".
func conditionProperty(name string) (filter.Property, error) {
	if rest, ok := cutPrefixFold(name, userPrefix); ok {
		return filter.Property{Name: rest}, nil
	}
	rest, ok := cutPrefixFold(name, systemPrefix)
	if !ok {
		return filter.Property{Name: name}, nil
	}
	if strings.EqualFold(rest, "Subject") {
		rest = filter.Label // its name in newer clients
	}
	for _, known := range conditionNames() {
		if strings.EqualFold(rest, known) {
			return filter.Property{Name: known, Scope: filter.System}, nil
		}
	}
	return filter.Property{}, fmt.Errorf("no condition on %.60q is possible: sys. goes before one of %s", name, strings.Join(conditionNames(), ", "))
}

// conditionName is the opposite. An application property that looks as if it were not one
// gets its prefix.
func conditionName(p filter.Property) string {
	if p.Scope == filter.System {
		return systemPrefix + p.Name
	}
	_, system := cutPrefixFold(p.Name, systemPrefix)
	_, user := cutPrefixFold(p.Name, userPrefix)
	if system || user {
		return userPrefix + p.Name
	}
	return p.Name
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// describeRule shows a rule of the machine. What it gives can be asked for again.
func describeRule(rule fsm.Rule) Rule {
	r := Rule{Name: rule.Name, Filter: describeFilter(rule.Filter)}
	if rule.Action.Text != "" {
		r.Action = &SQLText{Expression: rule.Action.Text, Parameters: describeParameters(rule.Action.Parameters)}
	}
	if rule.Created != 0 {
		at := toTime(rule.Created)
		r.Created = &at
	}
	return r
}

func describeFilter(f fsm.RuleFilter) Filter {
	switch f.Kind {
	case fsm.TrueFilter:
		return Filter{Kind: FilterTrue}
	case fsm.FalseFilter:
		return Filter{Kind: FilterFalse}
	case fsm.SQLFilter:
		return Filter{Kind: FilterSQL, Expression: f.SQL.Text, Parameters: describeParameters(f.SQL.Parameters)}
	case fsm.CorrelationFilter:
		out := Filter{Kind: FilterCorrelation, Conditions: make(map[string]Value, len(f.Conditions))}
		for _, c := range f.Conditions {
			out.Conditions[conditionName(c.Property)] = Value{c.Value}
		}
		return out
	}
	return Filter{Kind: "kind " + strconv.Itoa(int(f.Kind))}
}

func describeParameters(list []filter.Parameter) map[string]Value {
	values := make(map[string]Value, len(list))
	for _, p := range list {
		values[strings.TrimPrefix(p.Name, "@")] = Value{p.Value}
	}
	return values
}
