package atom

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
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
	out := entity.Rule{Name: pathName}
	if name := n.child("Name"); name != nil && name.text != "" {
		if pathName != "" && !strings.EqualFold(name.text, pathName) {
			return fsm.Rule{}, fmt.Errorf("%w: the path calls the rule %.60q and the body %.60q", fsm.InvalidArgument, pathName, name.text)
		}
		out.Name = name.text
	}
	if out.Name == "" {
		out.Name = fsm.DefaultRuleName
	}
	var err error
	if out.Filter, err = n.child("Filter").filter(); err != nil {
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Filter: %w", codeOf(err), out.Name, err)
	}
	if out.Action, err = n.child("Action").action(); err != nil {
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Action: %w", codeOf(err), out.Name, err)
	}
	return out.Parse()
}

// filter reads a Filter; without one the rule matches all messages.
func (n *Element) filter() (entity.Filter, error) {
	if n == nil {
		return entity.Filter{Kind: entity.FilterTrue}, nil
	}
	switch kind := n.kindName(); kind {
	case typeTrueFilter:
		return entity.Filter{Kind: entity.FilterTrue}, nil
	case typeFalseFilter:
		return entity.Filter{Kind: entity.FilterFalse}, nil
	case typeSQLFilter:
		out := entity.Filter{Kind: entity.FilterSQL}
		if text := n.child("SqlExpression"); text != nil {
			out.Expression = text.text
		}
		var err error
		out.Parameters, err = n.child("Parameters").pairs()
		return out, err
	case typeCorrelationFilter:
		return n.correlation()
	default:
		return entity.Filter{}, fmt.Errorf("the type is one of %s, %s, %s and %s, not %.40q",
			typeSQLFilter, typeCorrelationFilter, typeTrueFilter, typeFalseFilter, kind)
	}
}

func (n *Element) correlation() (entity.Filter, error) {
	out := entity.Filter{Kind: entity.FilterCorrelation, Conditions: make(map[string]entity.Value)}
	properties, err := n.child("Properties").pairs()
	if err != nil {
		return out, err
	}
	for key, value := range properties {
		out.Conditions[entity.ConditionName(filter.Property{Name: key})] = value
	}
	for _, name := range correlationOrder() {
		if c := n.child(name); c != nil {
			out.Conditions[entity.SystemPrefix+name] = entity.Value{Value: filter.Text(c.text)}
		}
	}
	return out, nil
}

func (n *Element) action() (*entity.SQLText, error) {
	if n == nil {
		return nil, nil //nolint:nilnil // no action is no error
	}
	switch kind := n.kindName(); kind {
	case typeNoAction:
		return nil, nil //nolint:nilnil // no action is no error
	case typeSQLAction:
		out := &entity.SQLText{}
		if text := n.child("SqlExpression"); text != nil {
			out.Expression = text.text
		}
		var err error
		out.Parameters, err = n.child("Parameters").pairs()
		return out, err
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
		x.ruleFilter(&rule.Filter)
		if rule.Action.Text == "" {
			x.leaf("Action", "", "i:type", typeNoAction)
		} else {
			x.open("Action", "i:type", typeSQLAction)
			x.sql(&rule.Action)
			x.end("Action")
		}
		x.time("CreatedAt", rule.Created)
		x.leaf("Name", rule.Name)
		x.end("RuleDescription")
	})
}

func (x *Document) ruleFilter(f *fsm.RuleFilter) {
	switch f.Kind {
	case fsm.TrueFilter:
		x.open("Filter", "i:type", typeTrueFilter)
		x.sql(&fsm.SQLText{Text: "1=1"})
	case fsm.FalseFilter:
		x.open("Filter", "i:type", typeFalseFilter)
		x.sql(&fsm.SQLText{Text: "1=0"})
	case fsm.SQLFilter:
		x.open("Filter", "i:type", typeSQLFilter)
		x.sql(&f.SQL)
	case fsm.CorrelationFilter:
		x.open("Filter", "i:type", typeCorrelationFilter)
		x.conditions(f.Conditions)
	}
	x.end("Filter")
}

func (x *Document) sql(s *fsm.SQLText) {
	x.leaf("SqlExpression", s.Text)
	x.leaf("CompatibilityLevel", compatibilityLevel)
	if len(s.Parameters) == 0 {
		return
	}
	x.open("Parameters")
	for _, p := range s.Parameters {
		x.pair("@"+strings.TrimPrefix(p.Name, "@"), p.Value) // as applications write them
	}
	x.end("Parameters")
}

func (x *Document) conditions(list []filter.Condition) {
	for _, name := range correlationOrder() {
		for _, c := range list {
			if c.Property.Scope == filter.System && c.Property.Name == name {
				_, text := valueXML(c.Value)
				x.leaf(name, text)
			}
		}
	}
	isUser := func(c filter.Condition) bool { return c.Property.Scope != filter.System }
	if !slices.ContainsFunc(list, isUser) {
		return
	}
	x.open("Properties")
	for _, c := range list {
		if isUser(c) {
			x.pair(c.Property.Name, c.Value)
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
