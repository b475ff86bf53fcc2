package emulator

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// ruleConfig is a rule in the form of the file.
type ruleConfig struct {
	kind        string
	sql, action string
	hasSQL      bool
	conditions  []filter.Condition
	hasCorr     bool
}

// rule reads one rule and checks it as the state machine does.
func (r *reader) rule(e *resource, path string, raw json.RawMessage) {
	var text ruleConfig
	rule := fsm.Rule{}
	before := r.mistakes
	r.object(path, raw,
		field{"Name", r.text(&rule.Name)},
		field{"Properties", func(path string, raw json.RawMessage) { r.ruleProperties(&text, path, raw) }})
	if r.mistakes > before {
		return
	}
	switch properties := path + ".Properties"; strings.ToLower(text.kind) {
	case "sql", "sqlfilter":
		rule.Filter = fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: text.sql}}
		r.checkFilterType(properties, text.hasSQL, text.hasCorr, "SqlFilter", "CorrelationFilter")
	case "correlation", "correlationfilter":
		rule.Filter = fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: text.conditions}
		r.checkFilterType(properties, text.hasCorr, text.hasSQL, "CorrelationFilter", "SqlFilter")
	case "":
		r.addError(properties+".FilterType", "is missing: it is Sql or Correlation")
	default:
		r.addError(properties+".FilterType", "is Sql or Correlation, not %q", truncate(text.kind))
	}
	rule.Action.Text = text.action
	if r.mistakes > before {
		return
	}
	if err := rule.Validate(); err != nil {
		r.addError(path, "%w", err)
		return
	}
	e.rules = append(e.rules, rule)
}

// checkFilterType checks that the file gives the filter that FilterType names, and no other.
func (r *reader) checkFilterType(path string, wanted, other bool, name, otherName string) {
	if !wanted {
		r.addError(path+"."+name, "is missing, but FilterType names it")
	}
	if other {
		r.warn(path+"."+otherName, "ignored: FilterType names another filter")
	}
}

func (r *reader) ruleProperties(text *ruleConfig, path string, raw json.RawMessage) {
	r.object(path, raw,
		field{"FilterType", r.text(&text.kind)},
		field{"SqlFilter", func(path string, raw json.RawMessage) {
			text.hasSQL = true
			r.object(path, raw, field{"SqlExpression", r.text(&text.sql)})
		}},
		field{"CorrelationFilter", func(path string, raw json.RawMessage) {
			text.hasCorr = true
			r.correlation(text, path, raw)
		}},
		field{"Action", func(path string, raw json.RawMessage) {
			r.object(path, raw, field{"SqlExpression", r.text(&text.action)})
		}})
}

// correlation reads the conditions in an order that does not depend on the file, so that the same conditions make equal
// rules.
func (r *reader) correlation(text *ruleConfig, path string, raw json.RawMessage) {
	var fields []field
	for name, property := range map[string]string{
		"ContentType": filter.ContentType, "CorrelationId": filter.CorrelationID, "Label": filter.Label, "Subject": filter.Label,
		"MessageId": filter.MessageID, "ReplyTo": filter.ReplyTo, "ReplyToSessionId": filter.ReplyToSessionID,
		"SessionId": filter.SessionID, "To": filter.To,
	} {
		fields = append(fields, field{name, func(path string, raw json.RawMessage) {
			var value string
			r.text(&value)(path, raw)
			if value == "" { // an unset property of the object that the file was written from
				return
			}
			text.conditions = append(text.conditions, filter.Condition{
				Property: filter.Property{Name: property, Scope: filter.System}, Value: filter.Text(value),
			})
		}})
	}
	fields = append(fields, field{"Properties", func(path string, raw json.RawMessage) { r.conditions(text, path, raw) }})
	r.object(path, raw, fields...)
}

// conditions reads the conditions on application properties, whose values keep their type.
func (r *reader) conditions(text *ruleConfig, path string, raw json.RawMessage) {
	var found map[string]json.RawMessage
	if json.Unmarshal(raw, &found) != nil {
		r.addError(path, "is an object in braces, not %.40s", raw)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		var value entity.Value
		if err := json.Unmarshal(found[name], &value); err != nil {
			r.addError(joinPath(path, truncate(name)), "%w", err)
			continue
		}
		text.conditions = append(text.conditions, filter.Condition{Property: filter.Property{Name: name}, Value: value.Value})
	}
}
