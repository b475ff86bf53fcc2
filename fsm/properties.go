package fsm

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Property is one property of a message as rules read it.
type Property struct {
	Name  filter.Property
	Value filter.Value
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

// DecodeProperties decodes the output of AppendProperties; bytes over its limit are an error.
func DecodeProperties(b []byte) ([]Property, error) {
	var list []Property
	if err := EachProperty(b, func(p Property) { list = append(list, p) }); err != nil {
		return nil, err
	}
	return list, nil
}

// ValidProperties reports whether DecodeProperties would succeed. It allocates nothing.
func ValidProperties(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if len(b) == 1 || len(b) > PropertiesBytesMax || b[0] != propertiesVersion {
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

// EachProperty calls visit for every property. It copies the bytes once; all names and texts are
// slices of that copy.
func EachProperty(b []byte, visit func(Property)) error {
	switch {
	case len(b) == 0:
		return nil
	case len(b) > PropertiesBytesMax:
		return fmt.Errorf("decode properties of %d bytes: %w", len(b), fields.ErrOverLimit)
	case b[0] != propertiesVersion:
		return fmt.Errorf("decode properties: %w", fields.ErrVersion)
	case len(b) == 1:
		return fmt.Errorf("decode properties: %w", fields.ErrShort)
	}
	for s := string(b[1:]); s != ""; {
		scope := filter.Scope(s[0])
		if scope > filter.System {
			return fmt.Errorf("decode properties: %w", fields.ErrFlag)
		}
		name, rest, ok := filter.CutText(s[1:])
		if !ok {
			return fmt.Errorf("decode name of property: %w", fields.ErrShort)
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

func appendProperty(dst []byte, p filter.Property) []byte {
	return fields.AppendText(append(dst, byte(p.Scope)), p.Name)
}
