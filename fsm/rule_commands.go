package fsm

import (
	"encoding/binary"

	"github.com/peeklock/peeklock/fsm/filter"
)

// PutRule adds a rule to a subscription. Refused with EntityNotFound if there is no such
// subscription, InvalidArgument if Rule.Validate fails, RuleExists, or QuotaExceeded if the topic
// already has sqlRulesMax or correlationRulesMax rules, or rulesBytesMax bytes of them. The rule
// applies to messages that are published after it.
type PutRule struct {
	Subscription EntityID
	Rule         Rule
	Replace      bool // replace the rule of that name: RuleNotFound if there is none
}

// DropRule removes a rule by name, case-insensitively. Refused with RuleNotFound or EntityNotFound.
type DropRule struct {
	Subscription EntityID
	Name         string
}

func appendPutRule(dst []byte, c PutRule) []byte {
	dst = appendBool(binary.AppendUvarint(dst, uint64(c.Subscription)), c.Replace)
	return appendRule(dst, &c.Rule)
}

func (r *reader) putRule() PutRule {
	return PutRule{Subscription: EntityID(r.uvarint()), Replace: r.bool(), Rule: r.rule()}
}

func appendSQL(dst []byte, t SQLText) []byte {
	dst = binary.AppendUvarint(appendString(dst, t.Text), uint64(len(t.Parameters)))
	for i := range t.Parameters {
		dst = filter.AppendValue(appendString(dst, t.Parameters[i].Name), t.Parameters[i].Value)
	}
	return dst
}

func (r *reader) sql() SQLText {
	t := SQLText{Text: r.string()}
	for range r.count(parameterBytesMin) {
		t.Parameters = append(t.Parameters, filter.Parameter{Name: r.string(), Value: r.value()})
	}
	return t
}

func appendRule(dst []byte, x *Rule) []byte {
	dst = append(appendString(dst, x.Name), byte(x.Filter.Kind))
	dst = appendSQL(dst, x.Filter.SQL)
	dst = binary.AppendUvarint(dst, uint64(len(x.Filter.Conditions)))
	for i := range x.Filter.Conditions {
		c := &x.Filter.Conditions[i]
		dst = filter.AppendValue(appendProperty(dst, c.Property), c.Value)
	}
	return binary.AppendUvarint(appendSQL(dst, x.Action), uint64(x.Created))
}

func (r *reader) rule() Rule {
	x := Rule{Name: r.string(), Filter: RuleFilter{Kind: FilterKind(r.byte()), SQL: r.sql()}}
	for range r.count(propertyBytesMin) {
		x.Filter.Conditions = append(x.Filter.Conditions, filter.Condition{Property: r.property(), Value: r.value()})
	}
	x.Action, x.Created = r.sql(), r.instant()
	return x
}

// appendFirstRule writes the rule that a subscription is made with, if there is one.
func appendFirstRule(dst []byte, x *Rule) []byte {
	if x == nil {
		return append(dst, 0)
	}
	return appendRule(append(dst, 1), x)
}

func (r *reader) firstRule() *Rule {
	if !r.bool() {
		return nil
	}
	x := r.rule()
	return &x
}

// The fewest bytes an item takes.
const (
	propertyBytesMin  = 3 // scope, name, kind of the value; of a condition too
	parameterBytesMin = 2 // name, kind of the value
)
