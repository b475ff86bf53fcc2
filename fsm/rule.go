package fsm

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Limits of rules and of their names.
const (
	ruleNameCharactersMax         = 50
	SubscriptionNameCharactersMax = 50
	RuleBytesMax                  = 64 * 1024 // of an encoded rule, without its time of creation
)

// SubscriptionsMax is the maximum number of subscriptions of a topic.
const SubscriptionsMax = 2000

// ValueTextBytesMax is the maximum length of the text of a ValueForm.
const ValueTextBytesMax = 64

// DefaultRuleName is the first rule of a subscription unless another is given.
const DefaultRuleName = "$Default"

// FilterKind is the kind of filter of a rule.
type FilterKind uint8

// The kinds of filters. The numbers are part of the log format.
const (
	TrueFilter        FilterKind = 0
	FalseFilter       FilterKind = 1
	SQLFilter         FilterKind = 2
	CorrelationFilter FilterKind = 3
)

// Rule selects the messages of the topic that a subscription gets, and can change its copies. A
// subscription gets one copy of a message if any rule without action matches it, and one more for
// every rule with an action that matches; those have the name of the rule in the application
// property RuleName.
type Rule struct {
	Name    string     `json:"Name"` // 1 to 50 characters; compared case-insensitively
	Filter  RuleFilter `json:"Filter"`
	Action  SQLText    `json:"Action"`  // "" for none
	Created Instant    `json:"Created"` // set by the state machine
	// Forms are the forms in which a client gave the values: of the parameters of the filter, of its
	// conditions and of the parameters of the action, in their order. They have no effect. nil if
	// they are not known.
	Forms []ValueForm `json:"Forms,omitempty"`
}

// ValueForm is the form in which a client gave a value: its type, and where the value does not
// determine it, the text.
type ValueForm struct {
	Type ValueType `json:"Type"`
	Text string    `json:"Text"` // at most ValueTextBytesMax; "" if the value says everything
}

// ValueType is a type of values of clients: one of XML Schema, or the type of AMQP that corresponds
// to it.
type ValueType uint8

// The types. The numbers are part of the log format: append only.
const (
	TypeOfValue       ValueType = 0 // the one that suits the value
	TypeString        ValueType = 1
	TypeBoolean       ValueType = 2
	TypeByte          ValueType = 3 // signed 8 bits
	TypeUnsignedByte  ValueType = 4
	TypeShort         ValueType = 5
	TypeUnsignedShort ValueType = 6
	TypeInt           ValueType = 7
	TypeUnsignedInt   ValueType = 8
	TypeLong          ValueType = 9
	TypeUnsignedLong  ValueType = 10
	TypeFloat         ValueType = 11
	TypeDouble        ValueType = 12
	TypeDecimal       ValueType = 13
	TypeDateTime      ValueType = 14
	TypeDuration      ValueType = 15
	TypeGUID          ValueType = 16
	TypeBinary        ValueType = 17
	TypeChar          ValueType = 18
	TypeURI           ValueType = 19
)

// KnownForms returns the forms, or nil if none says anything.
func KnownForms(forms []ValueForm) []ValueForm {
	for _, f := range forms {
		if f != (ValueForm{}) {
			return forms
		}
	}
	return nil
}

// SplitForms returns the forms of the values of the filter and of the action, one for each.
func (r Rule) SplitForms() (ofFilter, ofAction []ValueForm) {
	forms := r.Forms
	if len(forms) != r.values() {
		forms = make([]ValueForm, r.values())
	}
	n := len(forms) - len(r.Action.Parameters)
	return forms[:n], forms[n:]
}

// values returns the number of values of a rule, to which Forms belong.
func (r Rule) values() int {
	return len(r.Filter.SQL.Parameters) + len(r.Filter.Conditions) + len(r.Action.Parameters)
}

// validForms reports whether there are no forms, or one for each value.
func (r Rule) validForms() bool {
	for i := range r.Forms {
		if f := &r.Forms[i]; f.Type > TypeURI || len(f.Text) > ValueTextBytesMax || !utf8.ValidString(f.Text) {
			return false
		}
	}
	return len(r.Forms) == 0 || len(r.Forms) == r.values()
}

// RuleFilter is the condition of a rule.
type RuleFilter struct {
	Kind       FilterKind         `json:"Kind"`
	SQL        SQLText            `json:"SQL"`        // SQLFilter only
	Conditions []filter.Condition `json:"Conditions"` // CorrelationFilter only
}

// SQLText is a text in the SQL language of rules with the values of its @parameters.
type SQLText struct {
	Text       string             `json:"Text"` // at most filter.TextCharactersMax characters
	Parameters []filter.Parameter `json:"Parameters"`
}

// Validate returns an error that wraps InvalidArgument if the rule is invalid, or uses a system property that no message has
// while rules are evaluated, which stored rules may do. Its text is meant for the author of the rule.
func (r Rule) Validate() error {
	p, err := ParseRule(&r)
	if err != nil {
		return err
	}
	if p.SQL != nil {
		if err := p.SQL.Check(); err != nil {
			return fmt.Errorf("%w: filter: %w", InvalidArgument, err)
		}
	}
	if p.Action != nil {
		if err := p.Action.Check(); err != nil {
			return fmt.Errorf("%w: action: %w", InvalidArgument, err)
		}
	}
	return nil
}

// ParsedRule is the parsed form of a rule.
type ParsedRule struct {
	SQL         *filter.Expr        // SQLFilter
	Correlation *filter.Correlation // CorrelationFilter
	Action      *filter.Action      // nil for none
	Size        int                 // of the encoded rule, without its time of creation
}

// ParseRule parses a rule. Errors wrap InvalidArgument, and their text is meant for the author of the rule.
func ParseRule(r *Rule) (p ParsedRule, err error) {
	switch n := utf8.RuneCountInString(r.Name); {
	case n < 1 || n > ruleNameCharactersMax:
		return p, fmt.Errorf("%w: name of %d characters, 1 to %d allowed", InvalidArgument, n, ruleNameCharactersMax)
	case strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return p, fmt.Errorf("%w: control character in the name", InvalidArgument)
	case !validTexts(r):
		return p, fmt.Errorf("%w: a text is not UTF-8", InvalidArgument)
	case !r.validForms():
		return p, fmt.Errorf("%w: the forms do not match the values", InvalidArgument)
	}
	// The size does not depend on the time of creation: a rule that was accepted must be accepted
	// from an image too, where it has one.
	timeless := *r
	timeless.Created = 0
	x := fields.Encoder(nil)
	timeless.Fields(&x)
	if p.Size = len(x.Buf); p.Size > RuleBytesMax {
		return p, fmt.Errorf("%w: rule of %d bytes, at most %d allowed", InvalidArgument, p.Size, RuleBytesMax)
	}
	if r.Filter.Kind != SQLFilter && (r.Filter.SQL.Text != "" || len(r.Filter.SQL.Parameters) > 0) {
		return p, fmt.Errorf("%w: a text belongs to an SQL filter only", InvalidArgument)
	}
	if r.Filter.Kind != CorrelationFilter && len(r.Filter.Conditions) > 0 {
		return p, fmt.Errorf("%w: conditions belong to a correlation filter only", InvalidArgument)
	}
	switch r.Filter.Kind {
	case TrueFilter, FalseFilter:
	case SQLFilter:
		p.SQL, err = filter.Parse(r.Filter.SQL.Text, r.Filter.SQL.Parameters)
	case CorrelationFilter:
		p.Correlation, err = filter.NewCorrelation(r.Filter.Conditions)
	default:
		return p, fmt.Errorf("%w: unknown kind %d of filter", InvalidArgument, r.Filter.Kind)
	}
	if err != nil {
		return p, fmt.Errorf("%w: filter: %w", InvalidArgument, err)
	}
	switch {
	case r.Action.Text != "":
		if p.Action, err = filter.ParseAction(r.Action.Text, r.Action.Parameters); err != nil {
			return p, fmt.Errorf("%w: action: %w", InvalidArgument, err)
		}
	case len(r.Action.Parameters) > 0:
		return p, fmt.Errorf("%w: parameters of no action", InvalidArgument)
	}
	return p, nil
}

// validTexts reports whether all names and texts can be sent as JSON unchanged.
func validTexts(r *Rule) bool {
	valid := utf8.ValidString(r.Name) && r.Filter.SQL.valid() && r.Action.valid()
	for i := range r.Filter.Conditions {
		c := &r.Filter.Conditions[i]
		valid = valid && utf8.ValidString(c.Property.Name) && c.Property.Scope <= filter.System
	}
	return valid && r.Created >= 0
}

func (t *SQLText) valid() bool {
	valid := utf8.ValidString(t.Text)
	for i := range t.Parameters {
		valid = valid && utf8.ValidString(t.Parameters[i].Name)
	}
	return valid
}
