package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The types of filters and actions, as the service calls them.
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

// correlationOrder is the order of a CorrelationFilter's elements; Properties follow.
func correlationOrder() []string {
	return []string{
		filter.CorrelationID, filter.MessageID, filter.To, filter.ReplyTo, filter.Label, filter.SessionID,
		filter.ReplyToSessionID, filter.ContentType,
	}
}

// atomGetRule is GET /{topic}/Subscriptions/{name}/Rules/{rule}.
func (s *Server) atomGetRule(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	return s.replyRule(w, r, http.StatusOK, t)
}

// replyRule answers with a rule as the machine has it.
func (s *Server) replyRule(w http.ResponseWriter, r *http.Request, status int, t atomTarget) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.name); err != nil {
		return err
	}
	subscription, _, err := s.namespace(r).Entity(r.Context(), fsm.SubscriptionEntity, t.name)
	if err != nil {
		return withEntityName(t.name, err)
	}
	rule, err := s.findRule(r, t.name, t.rule)
	if err != nil {
		return err
	}
	x := newXML()
	x.rule(r, subscription, &rule, true)
	s.replyXML(w, status, atomEntryType, x)
	return nil
}

// atomPutRule is PUT .../Rules/{rule}, which adds a rule, and with If-Match replaces it. The Go
// client leaves the name out of the path for the default rule.
func (s *Server) atomPutRule(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.name); err != nil {
		return err
	}
	description, err := readDescription(r.Body)
	if err != nil {
		return err
	}
	if description.name != "RuleDescription" {
		return fmt.Errorf("%w: a %.60s does not belong to a rule", fsm.InvalidArgument, description.name)
	}
	rule, err := description.rule(t.rule)
	if err != nil {
		return err
	}
	t.rule, contextOf(r).rule = rule.Name, rule.Name
	replace := r.Header.Get("If-Match") != ""
	if err := s.namespace(r).PutRule(r.Context(), t.name, rule, replace); err != nil {
		return withRuleName(t.name, rule.Name, err)
	}
	if replace {
		return s.replyRule(w, r, http.StatusOK, t)
	}
	return s.replyRule(w, r, http.StatusCreated, t)
}

// atomDeleteRule is DELETE .../Rules/{rule}.
func (s *Server) atomDeleteRule(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	if err := entity.CheckName(fsm.SubscriptionEntity, t.name); err != nil {
		return err
	}
	if err := s.namespace(r).DropRule(r.Context(), t.name, t.rule); err != nil {
		return withRuleName(t.name, t.rule, err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// firstRule is the DefaultRuleDescription of a subscription; nil for the usual rule.
func (n *element) firstRule() (*fsm.Rule, error) {
	given := n.child("DefaultRuleDescription")
	if given == nil {
		return nil, nil //nolint:nilnil // no rule of its own is no error
	}
	rule, err := given.rule("")
	return &rule, err
}

// rule reads a rule and checks it as the control API does. The name is that of the path, or of
// the body, or the default one.
func (n *element) rule(pathName string) (fsm.Rule, error) {
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
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Filter: %w", codeOr(err, fsm.InvalidArgument), out.Name, err)
	}
	if out.Action, err = n.child("Action").action(); err != nil {
		return fsm.Rule{}, fmt.Errorf("%w: rule %.60q: Action: %w", codeOr(err, fsm.InvalidArgument), out.Name, err)
	}
	return out.Parse()
}

// filter reads a Filter; none is the one that takes everything.
func (n *element) filter() (entity.Filter, error) {
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

func (n *element) correlation() (entity.Filter, error) {
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

func (n *element) action() (*entity.SQLText, error) {
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

// rule writes an entry with a rule. Filter and Action are always there, since Go follows both
// without looking.
func (x *xmlWriter) rule(r *http.Request, subscription fsm.Entity, rule *fsm.Rule, top bool) {
	item := atomItem{
		path: subscription.Name + "/" + rulesWord + "/" + rule.Name, title: rule.Name, author: namespaceOf(r),
		published: rule.Created, updated: rule.Created,
	}
	x.entry(r, item, top, func() {
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

func (x *xmlWriter) ruleFilter(f *fsm.RuleFilter) {
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

func (x *xmlWriter) sql(s *fsm.SQLText) {
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

func (x *xmlWriter) conditions(list []filter.Condition) {
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
