package fsm

import (
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

// The minimum sizes of items.
const (
	propertyBytesMin  = 3 // scope, name, kind of the value; also of a condition
	parameterBytesMin = 2 // name, kind of the value
	formBytesMin      = 2 // type, text
)

// withForms is a bit beside the kind of the filter: the rule ends with the forms of its values.
const withForms = 1 << 7

func (PutRule) kind() Kind             { return KindPutRule }
func (c PutRule) encode(x codec) codec { c.fields(&x); return x }
func (c PutRule) check() Code          { return codeIf(c.Rule.Validate() == nil) }

func (c *PutRule) fields(x *codec) {
	field64(x, &c.Subscription)
	fieldBool(x, &c.Replace)
	c.Rule.fields(x)
}

func (DropRule) kind() Kind             { return KindDropRule }
func (c DropRule) encode(x codec) codec { c.fields(&x); return x }
func (DropRule) check() Code            { return OK }

func (c *DropRule) fields(x *codec) {
	field64(x, &c.Subscription)
	fieldText(x, &c.Name)
}

func (r *Rule) fields(x *codec) {
	fieldText(x, &r.Name)
	kind := r.Filter.Kind
	if x.encoding && len(r.Forms) > 0 {
		kind |= withForms
	}
	if field8(x, &kind); !x.encoding {
		r.Filter.Kind = kind &^ withForms
	}
	r.Filter.SQL.fields(x)
	for i := range fieldLen(x, &r.Filter.Conditions, propertyBytesMin) {
		fieldProperty(x, &r.Filter.Conditions[i].Property)
		fieldValue(x, &r.Filter.Conditions[i].Value)
	}
	r.Action.fields(x)
	fieldTime(x, &r.Created)
	if kind&withForms == 0 {
		return
	}
	for i := range fieldLen(x, &r.Forms, formBytesMin) {
		field8(x, &r.Forms[i].Type)
		fieldText(x, &r.Forms[i].Text)
	}
	if len(r.Forms) == 0 {
		x.fail(errFlag) // a rule without forms has only one encoding
	}
}

func (t *SQLText) fields(x *codec) {
	fieldText(x, &t.Text)
	for i := range fieldLen(x, &t.Parameters, parameterBytesMin) {
		fieldText(x, &t.Parameters[i].Name)
		fieldValue(x, &t.Parameters[i].Value)
	}
}

// fieldFirstRule is the first rule of a subscription, if there is one.
func fieldFirstRule(x *codec, r **Rule) {
	present := *r != nil
	if fieldBool(x, &present); !present {
		return
	}
	if !x.encoding {
		*r = &Rule{}
	}
	(*r).fields(x)
}

func fieldProperty(x *codec, p *filter.Property) {
	if field8(x, &p.Scope); p.Scope > filter.System && !x.encoding {
		x.fail(errFlag)
	}
	fieldText(x, &p.Name)
}

func fieldValue(x *codec, v *filter.Value) {
	if x.encoding {
		x.b = filter.AppendValue(x.b, *v)
		return
	}
	var err error
	if *v, x.b, err = filter.DecodeValue(x.b); err != nil {
		x.fail(err)
	}
}
