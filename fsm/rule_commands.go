package fsm

import (
	"github.com/peeklock/peeklock/fsm/fields"
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

func (PutRule) kind() Kind                           { return KindPutRule }
func (c PutRule) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c PutRule) Check() Code { return CodeIf(c.Rule.Validate() == nil) }

func (c *PutRule) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Subscription)
	fields.Bool(x, &c.Replace)
	c.Rule.Fields(x)
}

func (DropRule) kind() Kind                           { return KindDropRule }
func (c DropRule) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (DropRule) Check() Code { return OK }

func (c *DropRule) fields(x *fields.Codec) {
	fields.Uint64(x, &c.Subscription)
	fields.Text(x, &c.Name)
}

// Fields lists the fields of the record for the codec.
func (r *Rule) Fields(x *fields.Codec) {
	fields.Text(x, &r.Name)
	kind := r.Filter.Kind
	if x.Encoding() && len(r.Forms) > 0 {
		kind |= withForms
	}
	if fields.Uint8(x, &kind); !x.Encoding() {
		r.Filter.Kind = kind &^ withForms
	}
	r.Filter.SQL.fields(x)
	for i := range fields.Len(x, &r.Filter.Conditions, propertyBytesMin) {
		fieldProperty(x, &r.Filter.Conditions[i].Property)
		fieldValue(x, &r.Filter.Conditions[i].Value)
	}
	r.Action.fields(x)
	fields.Int64(x, &r.Created)
	if kind&withForms == 0 {
		return
	}
	for i := range fields.Len(x, &r.Forms, formBytesMin) {
		fields.Uint8(x, &r.Forms[i].Type)
		fields.Text(x, &r.Forms[i].Text)
	}
	if len(r.Forms) == 0 {
		x.Fail(fields.ErrFlag) // a rule without forms has only one encoding
	}
}

func (t *SQLText) fields(x *fields.Codec) {
	fields.Text(x, &t.Text)
	for i := range fields.Len(x, &t.Parameters, parameterBytesMin) {
		fields.Text(x, &t.Parameters[i].Name)
		fieldValue(x, &t.Parameters[i].Value)
	}
}

// fieldFirstRule is the first rule of a subscription, if there is one.
func fieldFirstRule(x *fields.Codec, r **Rule) {
	present := *r != nil
	if fields.Bool(x, &present); !present {
		return
	}
	if !x.Encoding() {
		*r = &Rule{}
	}
	(*r).Fields(x)
}

func fieldProperty(x *fields.Codec, p *filter.Property) {
	if fields.Uint8(x, &p.Scope); p.Scope > filter.System && !x.Encoding() {
		x.Fail(fields.ErrFlag)
	}
	fields.Text(x, &p.Name)
}

func fieldValue(x *fields.Codec, v *filter.Value) {
	if x.Encoding() {
		x.Buf = filter.AppendValue(x.Buf, *v)
		return
	}
	var err error
	if *v, x.Buf, err = filter.DecodeValue(x.Buf); err != nil {
		x.Fail(err)
	}
}
