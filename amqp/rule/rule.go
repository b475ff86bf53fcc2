package rule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// The descriptors of a rule in answers (docs/service-bus-protocol.md#rule-descriptors). Those of filters have one digit
// less than the others; clients distinguish them by that.
const (
	descriptor                  = 0x0000013700000004
	emptyActionDescriptor       = 0x0000013700000005
	sqlActionDescriptor         = 0x0000013700000006
	sqlFilterDescriptor         = 0x0000001370000006
	trueFilterDescriptor        = 0x0000001370000007
	falseFilterDescriptor       = 0x0000001370000008
	correlationFilterDescriptor = 0x0000001370000009
)

// The keys of a rule in requests. Clients write the filters that match every message or none
// as SQL: trueText and falseText.
const (
	NameKey              = "rule-name"
	DescriptionKey       = "rule-description"
	sqlFilterKey         = "sql-filter"
	correlationFilterKey = "correlation-filter"
	sqlActionKey         = "sql-rule-action"
	expressionKey        = "expression"
	conditionsKey        = "properties"
	trueText             = "1=1"
	falseText            = "1=0"
)

// compatibilityLevel is that of the rule language; there was never another one.
const compatibilityLevel int32 = 20

// correlationKey is the key of a system property in a correlation filter, in requests; in
// answers they stand in this order (docs/service-bus-protocol.md#rule-descriptors).
type correlationKey struct{ key, property string }

func correlationKeys() [8]correlationKey {
	return [8]correlationKey{
		{"correlation-id", filter.CorrelationID},
		{"message-id", filter.MessageID},
		{"to", filter.To},
		{"reply-to", filter.ReplyTo},
		{"label", filter.Label},
		{"session-id", filter.SessionID},
		{"reply-to-session-id", filter.ReplyToSessionID},
		{"content-type", filter.ContentType},
	}
}

// Parse reads the rule of an add-rule request. Its errors are fit for the client:
// clauses without advice. It also checks that the state machine would accept the
// rule.
func Parse(body wire.Map) (fsm.Rule, error) {
	description, ok := body.Get(DescriptionKey).(wire.Map)
	if !ok {
		return fsm.Rule{}, errors.New("the request has no map " + DescriptionKey)
	}
	rule := fsm.Rule{Name: NameIn(body)}
	if rule.Name == "" {
		return rule, errors.New("the request has no " + NameKey)
	}
	var err error
	if rule.Filter, rule.Forms, err = parseFilter(description); err != nil {
		return rule, err
	}
	if rule.Action, err = parseAction(description); err != nil {
		return rule, err
	}
	return rule, ruleError(rule.Validate())
}

// NameIn returns the name of the rule in a request to add or remove one, "" when there is none.
func NameIn(body wire.Map) string {
	if name := body.Text(NameKey); name != "" {
		return name
	}
	description, _ := body.Get(DescriptionKey).(wire.Map)
	return description.Text(NameKey)
}

// parseFilter reads the filter, and the forms of its values. There must be exactly one filter.
func parseFilter(description wire.Map) (f fsm.RuleFilter, forms []fsm.ValueForm, err error) {
	sql, correlation := description.Get(sqlFilterKey), description.Get(correlationFilterKey)
	switch {
	case sql != nil && correlation != nil:
		return f, nil, errors.New("the rule has two filters, " + sqlFilterKey + " and " + correlationFilterKey)
	case sql != nil:
		f.Kind = fsm.SQLFilter
		if f.SQL.Text, err = parseExpression(sqlFilterKey, sql); err != nil {
			return f, nil, err
		}
		switch f.SQL.Text {
		case trueText:
			return fsm.RuleFilter{Kind: fsm.TrueFilter}, nil, nil
		case falseText:
			return fsm.RuleFilter{Kind: fsm.FalseFilter}, nil, nil
		}
		return f, nil, nil
	case correlation != nil:
		f.Kind = fsm.CorrelationFilter
		m, ok := correlation.(wire.Map)
		if !ok {
			return f, nil, errors.New(correlationFilterKey + " is not a map")
		}
		f.Conditions, forms, err = parseConditions(m)
		return f, forms, err
	}
	return f, nil, errors.New("the rule has no filter: neither " + sqlFilterKey + " nor " + correlationFilterKey)
}

// parseAction reads the action. null, and an action without text, mean that there is none: .NET writes the
// first, others the second.
func parseAction(description wire.Map) (t fsm.SQLText, err error) {
	action := description.Get(sqlActionKey)
	if m, ok := action.(wire.Map); action == nil || ok && m.Get(expressionKey) == nil {
		return t, nil
	}
	t.Text, err = parseExpression(sqlActionKey, action)
	return t, err
}

// parseExpression reads the text of a filter or an action.
func parseExpression(what string, v any) (string, error) {
	m, ok := v.(wire.Map)
	if !ok {
		return "", errors.New(what + " is not a map")
	}
	text, ok := wire.AsText(m.Get(expressionKey))
	if !ok {
		return "", errors.New(what + " has no string " + expressionKey)
	}
	return text, nil
}

// parseConditions reads a correlation filter. null is no condition.
func parseConditions(m wire.Map) (conditions []filter.Condition, forms []fsm.ValueForm, err error) {
	for _, k := range correlationKeys() {
		v := m.Get(k.key)
		if v == nil {
			continue
		}
		text, ok := wire.AsText(v)
		if !ok {
			return nil, nil, fmt.Errorf("%s of %s is not a string", k.key, correlationFilterKey)
		}
		conditions, forms = append(conditions, condition(filter.System, k.property, filter.Text(text))), append(forms, fsm.ValueForm{})
	}
	given := m.Get(conditionsKey)
	properties, ok := given.(wire.Map)
	if given != nil && !ok {
		return nil, nil, fmt.Errorf("%s of %s is not a map", conditionsKey, correlationFilterKey)
	}
	for _, p := range properties {
		name, ok := wire.AsText(p.Key)
		if !ok {
			return nil, nil, fmt.Errorf("a key in %s of %s is not a string", conditionsKey, correlationFilterKey)
		}
		encoded := wire.AppendValue(nil, p.Value)
		v, ok := message.FilterValue(encoded, string(encoded))
		if !ok {
			return nil, nil, fmt.Errorf("property %q of %s is of a type that cannot be compared", name, correlationFilterKey)
		}
		conditions, forms = append(conditions, condition(filter.User, name, v)), append(forms, fsm.ValueForm{Type: typeOf(p.Value)})
	}
	return conditions, fsm.KnownForms(forms), nil
}

func condition(scope filter.Scope, name string, v filter.Value) filter.Condition {
	return filter.Condition{Property: filter.Property{Name: name, Scope: scope}, Value: v}
}

// ruleError returns what is wrong with a rule, for a client: without the code that the error carries for
// other callers.
func ruleError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), fsm.InvalidArgument.Error()+": "))
}

// Encode encodes a rule as answers show it: a described list of filter, action, name and
// creation time. There is always an action, since clients look into it.
func Encode(rule *fsm.Rule) []byte {
	return wire.AppendValue(nil, described(descriptor,
		describeFilter(rule), describeAction(rule.Action), rule.Name, time.UnixMilli(int64(rule.Created))))
}

func described(descriptor uint64, fields ...any) wire.Described {
	return wire.Described{Descriptor: descriptor, Value: fields}
}

func describeAction(action fsm.SQLText) wire.Described {
	if action.Text == "" {
		return described(emptyActionDescriptor)
	}
	return described(sqlActionDescriptor, action.Text, compatibilityLevel)
}

func describeFilter(rule *fsm.Rule) wire.Described {
	f := &rule.Filter
	switch f.Kind {
	case fsm.SQLFilter:
		return described(sqlFilterDescriptor, f.SQL.Text, compatibilityLevel)
	case fsm.CorrelationFilter:
		forms, _ := rule.SplitForms()
		return describeCorrelation(f.Conditions, forms)
	case fsm.FalseFilter:
		return described(falseFilterDescriptor)
	case fsm.TrueFilter:
	}
	return described(trueFilterDescriptor)
}

// describeCorrelation writes null where there is no condition; the map of properties is always there.
func describeCorrelation(conditions []filter.Condition, forms []fsm.ValueForm) wire.Described {
	keys := correlationKeys()
	fields := make([]any, len(keys)+1)
	properties := wire.Map{}
	for i := range conditions {
		c := &conditions[i]
		encoded := wire.Raw(encodeValue(c.Value, forms[i].Type))
		if c.Property.Scope == filter.User {
			properties = append(properties, wire.Pair{Key: c.Property.Name, Value: encoded})
			continue
		}
		for at, k := range keys {
			if filter.Fold(k.property) == filter.Fold(c.Property.Name) {
				fields[at] = encoded
			}
		}
	}
	fields[len(keys)] = properties
	return described(correlationFilterDescriptor, fields...)
}
