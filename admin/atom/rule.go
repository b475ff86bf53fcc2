package atom

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Types of filters and actions in the service.
const (
	typeSQLFilter         = "SqlFilter"
	typeCorrelationFilter = "CorrelationFilter"
	typeTrueFilter        = "TrueFilter"
	typeFalseFilter       = "FalseFilter"
	typeSQLAction         = "SqlRuleAction"
	typeNoAction          = "EmptyRuleAction"
	pairElement           = "KeyValueOfstringanyType"
	compatibilityLevel    = "20"
)

// correlationOrder is the order of the elements of a CorrelationFilter; Properties follow.
func correlationOrder() []string {
	return []string{
		filter.CorrelationID, filter.MessageID, filter.To, filter.ReplyTo, filter.Label, filter.SessionID,
		filter.ReplyToSessionID, filter.ContentType,
	}
}

// FirstRule returns the DefaultRuleDescription of a subscription; nil for the default rule.
func (n *Element) FirstRule() (*fsm.Rule, error) {
	given := n.child("DefaultRuleDescription")
	if given == nil {
		return nil, nil //nolint:nilnil // no rule of its own is no error
	}
	rule, err := given.rule("")
	return &rule, err
}

// Rule reads a RuleDescription and checks it as the control API does. The name is that of the path, or that of the
// body, or the default one. Errors wrap fsm.InvalidArgument or fsm.NotImplemented.
func (n *Element) Rule(pathName string) (fsm.Rule, error) {
	if n.name != "RuleDescription" {
		return fsm.Rule{}, fmt.Errorf("%w: a %.60s does not belong to a rule", fsm.InvalidArgument, n.name)
	}
	return n.rule(pathName)
}

func (n *Element) rule(pathName string) (fsm.Rule, error) {
	out := fsm.Rule{Name: pathName}
	if name := n.child("Name"); name != nil && name.text != "" {
		if pathName != "" && !strings.EqualFold(name.text, pathName) {
			return fsm.Rule{}, fmt.Errorf("%w: the path calls the rule %.60q and the body %.60q", fsm.InvalidArgument, pathName, name.text)
		}
		out.Name = name.text
	}
	if out.Name == "" {
		out.Name = fsm.DefaultRuleName
	}
	filterForms, err := n.child("Filter").filter(&out.Filter)
	if err != nil {
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Filter: %w", codeOf(err), out.Name, err)
	}
	actionForms, err := n.child("Action").action(&out.Action)
	if err != nil {
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Action: %w", codeOf(err), out.Name, err)
	}
	out.Forms = fsm.KnownForms(append(filterForms, actionForms...))
	if err := out.Validate(); err != nil {
		return fsm.Rule{}, fmt.Errorf("rule %.60q: %w", out.Name, err)
	}
	return out, nil
}

// filter reads a Filter, and the forms of its values; without one the rule matches all messages.
func (n *Element) filter(to *fsm.RuleFilter) ([]fsm.ValueForm, error) {
	if n == nil {
		return nil, nil
	}
	switch kind := n.kindName(); kind {
	case typeTrueFilter:
		return nil, nil
	case typeFalseFilter:
		to.Kind = fsm.FalseFilter
		return nil, nil
	case typeSQLFilter:
		to.Kind = fsm.SQLFilter
		return n.sql(&to.SQL)
	case typeCorrelationFilter:
		to.Kind = fsm.CorrelationFilter
		return n.correlation(to)
	default:
		return nil, fmt.Errorf("the type is one of %s, %s, %s and %s, not %.40q",
			typeSQLFilter, typeCorrelationFilter, typeTrueFilter, typeFalseFilter, kind)
	}
}

// sql reads an expression with its parameters, in their order.
func (n *Element) sql(to *fsm.SQLText) ([]fsm.ValueForm, error) {
	if text := n.child("SqlExpression"); text != nil {
		to.Text = text.text
	}
	list, err := n.child("Parameters").pairs()
	forms := make([]fsm.ValueForm, len(list))
	for i, p := range list {
		to.Parameters = append(to.Parameters, filter.Parameter{Name: strings.TrimPrefix(p.key, "@"), Value: p.value})
		forms[i] = p.form
	}
	return forms, err
}

// correlation reads conditions: those on application properties in their order, then the others.
func (n *Element) correlation(to *fsm.RuleFilter) ([]fsm.ValueForm, error) {
	list, err := n.child("Properties").pairs()
	if err != nil {
		return nil, err
	}
	var forms []fsm.ValueForm
	for _, p := range list {
		to.Conditions = append(to.Conditions, filter.Condition{Property: filter.Property{Name: p.key}, Value: p.value})
		forms = append(forms, p.form)
	}
	for _, name := range correlationOrder() {
		if c := n.child(name); c != nil {
			to.Conditions = append(to.Conditions, filter.Condition{Property: filter.Property{Name: name, Scope: filter.System}, Value: filter.Text(c.text)})
			forms = append(forms, fsm.ValueForm{})
		}
	}
	return forms, nil
}

func (n *Element) action(to *fsm.SQLText) ([]fsm.ValueForm, error) {
	if n == nil {
		return nil, nil
	}
	switch kind := n.kindName(); kind {
	case typeNoAction:
		return nil, nil
	case typeSQLAction:
		return n.sql(to)
	default:
		return nil, fmt.Errorf("the type is %s or %s, not %.40q", typeSQLAction, typeNoAction, kind)
	}
}

// rule writes an entry with a rule. Filter and Action are always present, since Go dereferences both without a check.
func (x *Document) rule(subscription fsm.Entity, rule *fsm.Rule, top bool) {
	i := item{
		path: subscription.Name + "/" + RulesWord + "/" + rule.Name, title: rule.Name, author: x.origin.namespace(),
		published: rule.Created, updated: rule.Created,
	}
	x.entry(i, top, func() {
		x.open("RuleDescription", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
		filterForms, actionForms := rule.SplitForms()
		x.ruleFilter(&rule.Filter, filterForms)
		if rule.Action.Text == "" {
			x.leaf("Action", "", "i:type", typeNoAction)
		} else {
			x.open("Action", "i:type", typeSQLAction)
			x.sql(&rule.Action, actionForms)
			x.end("Action")
		}
		x.time("CreatedAt", rule.Created)
		x.leaf("Name", rule.Name)
		x.end("RuleDescription")
	})
}

func (x *Document) ruleFilter(f *fsm.RuleFilter, forms []fsm.ValueForm) {
	switch f.Kind {
	case fsm.TrueFilter:
		x.open("Filter", "i:type", typeTrueFilter)
		x.sql(&fsm.SQLText{Text: "1=1"}, nil)
	case fsm.FalseFilter:
		x.open("Filter", "i:type", typeFalseFilter)
		x.sql(&fsm.SQLText{Text: "1=0"}, nil)
	case fsm.SQLFilter:
		x.open("Filter", "i:type", typeSQLFilter)
		x.sql(&f.SQL, forms)
	case fsm.CorrelationFilter:
		x.open("Filter", "i:type", typeCorrelationFilter)
		x.conditions(f.Conditions, forms)
	}
	x.end("Filter")
}

func (x *Document) sql(s *fsm.SQLText, forms []fsm.ValueForm) {
	x.leaf("SqlExpression", s.Text)
	x.leaf("CompatibilityLevel", compatibilityLevel)
	if len(s.Parameters) == 0 {
		return
	}
	x.open("Parameters")
	for i, p := range s.Parameters {
		x.pair("@"+strings.TrimPrefix(p.Name, "@"), p.Value, forms[i]) // as applications write them
	}
	x.end("Parameters")
}

func (x *Document) conditions(list []filter.Condition, forms []fsm.ValueForm) {
	for _, name := range correlationOrder() {
		for _, c := range list {
			if c.Property.Scope == filter.System && c.Property.Name == name {
				_, _, text := valueXML(c.Value, fsm.ValueForm{})
				x.leaf(name, text)
			}
		}
	}
	isUser := func(c filter.Condition) bool { return c.Property.Scope != filter.System }
	if !slices.ContainsFunc(list, isUser) {
		return
	}
	x.open("Properties")
	for i, c := range list {
		if isUser(c) {
			x.pair(c.Property.Name, c.Value, forms[i])
		}
	}
	x.end("Properties")
}

// codeOf returns the code in an error, InvalidArgument when there is none.
func codeOf(err error) fsm.Code {
	var code fsm.Code
	if errors.As(err, &code) {
		return code
	}
	return fsm.InvalidArgument
}

// RuleDocument is an entry with the description of a rule.
func RuleDocument(o Origin, subscription fsm.Entity, rule *fsm.Rule) *Document {
	x := newDocument(o)
	x.rule(subscription, rule, true)
	return x
}

// AddRule adds an entry to a feed.
func (x *Document) AddRule(subscription fsm.Entity, rule *fsm.Rule) {
	x.rule(subscription, rule, false)
}
