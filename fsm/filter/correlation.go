package filter

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Condition is one property of a correlation filter and the value it must have.
type Condition struct {
	Property Property `json:"Property"`
	Value    Value    `json:"Value"`
}

// Correlation is a correlation filter: all its conditions must hold. A filter without conditions
// matches every message. It is immutable.
type Correlation struct{ conditions []equalCondition }

// equalCondition is a Condition as it is compared: the name folded, the value normalized.
type equalCondition struct {
	name  string // folded for User
	value Value
	scope Scope
}

// NewCorrelation checks and copies the conditions. System properties must be among the eight that a
// correlation filter can use (ContentType to To), no property may occur twice, and no value may be
// NULL. Errors wrap ErrInvalid.
func NewCorrelation(conditions []Condition) (*Correlation, error) {
	if len(conditions) > ConditionsMax {
		return nil, fmt.Errorf("%w: %d conditions, %d at most", ErrInvalid, len(conditions), ConditionsMax)
	}
	c := &Correlation{conditions: make([]equalCondition, 0, len(conditions))}
	size := 0
	for _, one := range conditions {
		h := equalCondition{scope: one.Property.Scope, name: one.Property.Name, value: normalized(one.Value)}
		if h.scope == User {
			h.name = Fold(h.name)
		} else if h.name = findSystem(h.name).name; systemIndex(h.name) < 0 {
			return nil, fmt.Errorf("%w: no condition on %v", ErrInvalid, one.Property)
		}
		switch size += len(h.name) + h.value.size(); {
		case h.name == "" || len(h.name) > NameBytesMax:
			return nil, fmt.Errorf("%w: a name of %d bytes, 1 to %d allowed", ErrInvalid, len(h.name), NameBytesMax)
		case size > CorrelationBytesMax:
			return nil, fmt.Errorf("%w: over %d bytes", ErrInvalid, CorrelationBytesMax)
		case h.value.kind == KindNull:
			return nil, fmt.Errorf("%w: %v = NULL", ErrInvalid, one.Property)
		}
		c.conditions = append(c.conditions, h)
	}
	slices.SortStableFunc(c.conditions, func(a, b equalCondition) int {
		if a.scope != b.scope {
			return int(b.scope) - int(a.scope) // System first: the usual ones, and cheap to look up
		}
		return strings.Compare(a.name, b.name)
	})
	for i := 1; i < len(c.conditions); i++ {
		if a, b := c.conditions[i-1], c.conditions[i]; a.name == b.name && a.scope == b.scope {
			return nil, fmt.Errorf("%w: %s twice", ErrInvalid, b.name)
		}
	}
	return c, nil
}

// Match reports whether all conditions hold. Values are equal if type and value are: strings
// case-sensitively, a string never equals a number; but an integer equals a decimal that is exactly
// this integer, because JavaScript senders have no other numbers. Match cannot fail: a missing
// property is not equal.
func (c *Correlation) Match(m Message) bool {
	for i := range c.conditions {
		if !c.conditions[i].matches(m) {
			return false
		}
	}
	return true
}

func (h *equalCondition) matches(m Message) bool {
	var v Value
	if h.scope == User {
		v, _ = m.User(h.name)
	} else {
		v = m.System(h.name)
	}
	return v.kind != KindNull && normalized(v) == h.value && !isNaN(v)
}

// normalized returns one form for equal numbers: the integer, if there is one. Then values that are
// equal are equal keys of a map.
func normalized(v Value) Value {
	if v.kind != KindDouble {
		return v
	}
	if i, ok := integerPart(v); ok {
		return i
	}
	return v
}

func isNaN(v Value) bool { return v.kind == KindDouble && math.IsNaN(v.AsDouble()) }

// systemNames are the system properties that a correlation filter can use.
func systemNames() [8]string {
	return [8]string{ContentType, CorrelationID, Label, MessageID, ReplyTo, ReplyToSessionID, SessionID, To}
}

func systemIndex(name string) int {
	names := systemNames()
	return slices.Index(names[:], name)
}
