package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/peeklock/peeklock/fsm/filter"
)

// The fewest bytes an item takes.
const (
	propertyBytesMin  = 3 // scope, name, kind of the value; of a condition too
	parameterBytesMin = 2 // name, kind of the value
)

func appendProperty(dst []byte, p filter.Property) []byte {
	return appendString(append(dst, byte(p.Scope)), p.Name)
}

func (r *reader) property() filter.Property {
	scope := filter.Scope(r.byte())
	if scope > filter.System {
		r.fail(errFlag)
	}
	return filter.Property{Scope: scope, Name: r.string()}
}

func (r *reader) value() filter.Value {
	v, rest, err := filter.DecodeValue(r.b)
	if err != nil {
		r.fail(err)
		return filter.Value{}
	}
	r.b = rest
	return v
}

// propertiesVersion is the first byte of encoded properties.
const propertiesVersion byte = 1

// AppendProperties appends the encoding of properties to dst: a version byte, then scope,
// name and value of each. No properties are no bytes at all. A message whose encoding is
// longer than 64 KiB is refused.
func AppendProperties(dst []byte, properties []Property) []byte {
	if len(properties) == 0 {
		return dst
	}
	dst = append(dst, propertiesVersion)
	for i := range properties {
		dst = filter.AppendValue(appendProperty(dst, properties[i].Name), properties[i].Value)
	}
	return dst
}

// DecodeProperties reads what AppendProperties wrote; bytes over its limit are an error.
func DecodeProperties(b []byte) ([]Property, error) {
	var list []Property
	if err := eachProperty(b, func(p Property) { list = append(list, p) }); err != nil {
		return nil, err
	}
	return list, nil
}

// validProperties says whether DecodeProperties would succeed. It allocates nothing.
func validProperties(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if len(b) == 1 || len(b) > propertiesBytesMax || b[0] != propertiesVersion {
		return false
	}
	for b = b[1:]; len(b) > 0; {
		_, rest, ok := filter.CutText(b[1:])
		if !ok || filter.Scope(b[0]) > filter.System {
			return false
		}
		rest, err := filter.SkipValue(rest)
		if err != nil {
			return false
		}
		b = rest
	}
	return true
}

// eachProperty takes one copy of the bytes, which all names and texts are pieces of.
func eachProperty(b []byte, visit func(Property)) error {
	switch {
	case len(b) == 0:
		return nil
	case len(b) > propertiesBytesMax:
		return fmt.Errorf("decode properties of %d bytes: %w", len(b), errOverLimit)
	case b[0] != propertiesVersion:
		return fmt.Errorf("decode properties: %w", errVersion)
	case len(b) == 1:
		return fmt.Errorf("decode properties: %w", errShort)
	}
	for s := string(b[1:]); s != ""; {
		scope := filter.Scope(s[0])
		if scope > filter.System {
			return fmt.Errorf("decode properties: %w", errFlag)
		}
		name, rest, ok := filter.CutText(s[1:])
		if !ok {
			return fmt.Errorf("decode name of property: %w", errShort)
		}
		v, rest, err := filter.CutValue(rest)
		if err != nil {
			return fmt.Errorf("decode property: %w", err)
		}
		visit(Property{Name: filter.Property{Scope: scope, Name: name}, Value: v})
		s = rest
	}
	return nil
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

func appendPutRule(dst []byte, c PutRule) []byte {
	dst = appendBool(binary.AppendUvarint(dst, uint64(c.Subscription)), c.Replace)
	return appendRule(dst, &c.Rule)
}

func (r *reader) putRule() PutRule {
	return PutRule{Subscription: EntityID(r.uvarint()), Replace: r.bool(), Rule: r.rule()}
}
