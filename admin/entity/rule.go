package entity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Prefixes of the names of conditions.
const (
	systemPrefix = "sys."
	userPrefix   = "user."
)

// RuleFields lists the fields of a Rule, for the text of an error.
const RuleFields = "name, filter (with kind, and expression and parameters or conditions) and action (with expression and parameters)"

// The kinds of filters, as the API calls them.
const (
	FilterSQL         = "sql"
	FilterCorrelation = "correlation"
	FilterTrue        = "true"
	FilterFalse       = "false"
)

// Rule is a rule of a subscription: which messages of the topic it matches, and how its action changes
// their copies.
type Rule struct {
	Name    string     `json:"name,omitempty"` // 1 to 50 characters; in a request as in its path, or omitted
	Filter  Filter     `json:"filter"`
	Action  *SQLText   `json:"action,omitempty"`    // nil: none
	Created *time.Time `json:"createdAt,omitempty"` // set by the member; ignored in a request
}

// Filter is the condition of a rule.
type Filter struct {
	Kind string `json:"kind"` // FilterSQL and so on
	// Expression and Parameters belong to FilterSQL.
	Expression string           `json:"expression,omitempty"`
	Parameters map[string]Value `json:"parameters,omitempty"` // by name without @
	// Conditions belong to FilterCorrelation: the value that each property must have. "sys.Label" and the
	// like are properties of Service Bus; other names are application properties, with or without the
	// prefix "user.".
	Conditions map[string]Value `json:"conditions,omitempty"`
}

// SQLText is the action of a rule: an SQL text with the values of its parameters.
type SQLText struct {
	Expression string           `json:"expression"`
	Parameters map[string]Value `json:"parameters,omitempty"`
}

// Parse checks the rule and returns it as the state machine stores it. Errors wrap fsm.InvalidArgument and
// say where in the text something is wrong.
func (r *Rule) Parse() (fsm.Rule, error) {
	rule := fsm.Rule{Name: r.Name}
	var err error
	if rule.Filter, err = r.Filter.parse(); err != nil {
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

func (f *Filter) parse() (fsm.RuleFilter, error) {
	out := fsm.RuleFilter{}
	sql := f.Expression != "" || len(f.Parameters) > 0
	switch kind := strings.ToLower(f.Kind); {
	case kind != FilterSQL && sql:
		return out, fmt.Errorf("expression and parameters require a filter of kind sql, got %.40q", f.Kind)
	case kind != FilterCorrelation && len(f.Conditions) > 0:
		return out, fmt.Errorf("conditions require a filter of kind correlation, got %.40q", f.Kind)
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

// parameters returns parameters sorted by name: JSON objects have no order.
func parameters(values map[string]Value) []filter.Parameter {
	var list []filter.Parameter
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, filter.Parameter{Name: strings.TrimPrefix(name, "@"), Value: values[name].Value})
	}
	return list
}

// conditionNames lists the properties of Service Bus that a correlation filter can name.
func conditionNames() []string {
	return []string{
		filter.ContentType, filter.CorrelationID, filter.Label, filter.MessageID, filter.ReplyTo, filter.ReplyToSessionID,
		filter.SessionID, filter.To,
	}
}

// conditionProperty parses the name of a condition: "sys.Label", "color", "user.color".
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
	return filter.Property{}, fmt.Errorf("no condition on %.60q is possible: with the prefix sys. use one of %s", name, strings.Join(conditionNames(), ", "))
}

// conditionName returns the name of the condition on a property. An application property whose name begins
// with one of the prefixes gets the prefix "user.".
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

// DescribeRule returns the form of the API. Parse of it returns an equal rule.
func DescribeRule(rule fsm.Rule) Rule {
	r := Rule{Name: rule.Name, Filter: describeFilter(rule.Filter)}
	if rule.Action.Text != "" {
		r.Action = &SQLText{Expression: rule.Action.Text, Parameters: describeParameters(rule.Action.Parameters)}
	}
	if rule.Created != 0 {
		at := time.UnixMilli(int64(rule.Created)).UTC()
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
			out.Conditions[conditionName(c.Property)] = Value{Value: c.Value}
		}
		return out
	}
	return Filter{Kind: "kind " + strconv.Itoa(int(f.Kind))}
}

func describeParameters(list []filter.Parameter) map[string]Value {
	values := make(map[string]Value, len(list))
	for _, p := range list {
		values[strings.TrimPrefix(p.Name, "@")] = Value{Value: p.Value}
	}
	return values
}
