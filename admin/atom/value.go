package atom

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Types of XML Schema that clients use for values; they choose the prefix.
const (
	xsdString        = "string"
	xsdBoolean       = "boolean"
	xsdByte          = "byte"
	xsdUnsignedByte  = "unsignedByte"
	xsdShort         = "short"
	xsdUnsignedShort = "unsignedShort"
	xsdInt           = "int"
	xsdUnsignedInt   = "unsignedInt"
	xsdLong          = "long"
	xsdUnsignedLong  = "unsignedLong"
	xsdFloat         = "float"
	xsdDouble        = "double"
	xsdDecimal       = "decimal"
	xsdDateTime      = "dateTime"
	xsdBinary        = "base64Binary"
	xsdURI           = "anyURI"
)

// Types of the serialization namespace, which .NET uses for what XML Schema does not have.
const (
	serialDuration = "duration"
	serialGUID     = "guid"
)

// typeNames returns the name of each type that says more than the value does, "" for the others.
func typeNames() [fsm.TypeURI + 1]string {
	return [...]string{
		fsm.TypeByte: xsdByte, fsm.TypeUnsignedByte: xsdUnsignedByte, fsm.TypeShort: xsdShort, fsm.TypeUnsignedShort: xsdUnsignedShort,
		fsm.TypeInt: xsdInt, fsm.TypeUnsignedInt: xsdUnsignedInt, fsm.TypeLong: xsdLong, fsm.TypeUnsignedLong: xsdUnsignedLong,
		fsm.TypeFloat: xsdFloat, fsm.TypeDouble: xsdDouble, fsm.TypeDecimal: xsdDecimal, fsm.TypeDateTime: xsdDateTime,
		fsm.TypeDuration: serialDuration, fsm.TypeGUID: serialGUID, fsm.TypeBinary: xsdBinary, fsm.TypeURI: xsdURI,
	}
}

// typeNamed returns the type with a name, TypeOfValue for names without one.
func typeNamed(name string) fsm.ValueType {
	names := typeNames()
	return fsm.ValueType(max(0, slices.Index(names[:], name)))
}

// pair is one of Parameters or Properties.
type pair struct {
	key   string
	value filter.Value
	form  fsm.ValueForm
}

// pairs reads Parameters or Properties: a list of names with values.
func (n *Element) pairs() ([]pair, error) {
	if n == nil {
		return nil, nil
	}
	list := make([]pair, 0, len(n.children))
	seen := make(map[string]bool, len(n.children))
	for i := range n.children {
		child := &n.children[i]
		key := child.child("Key")
		if child.name != pairElement || key == nil {
			return nil, fmt.Errorf("%s holds %s, each with Key and Value", n.name, pairElement)
		}
		if seen[key.text] {
			return nil, fmt.Errorf("%.60q is given twice", key.text)
		}
		seen[key.text] = true
		value, form, err := child.child("Value").typedValue()
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", key.text, err)
		}
		list = append(list, pair{key.text, value, form})
	}
	return list, nil
}

// typedValue reads a Value with its form. The text is kept where another one would be written for the value.
func (n *Element) typedValue() (filter.Value, fsm.ValueForm, error) {
	value, err := n.value()
	if n == nil || err != nil {
		return value, fsm.ValueForm{}, err
	}
	form := fsm.ValueForm{Type: typeNamed(n.kindName())}
	if form.Type == fsm.TypeOfValue {
		return value, form, nil
	}
	text := strings.TrimSpace(n.text)
	if _, _, written := valueXML(value, form); written != text && len(text) <= fsm.ValueTextBytesMax {
		form.Text = text
	}
	return value, form, nil
}

// value reads a Value by its type; an omitted or nil one is NULL.
func (n *Element) value() (filter.Value, error) {
	if n == nil {
		return filter.Value{}, nil
	}
	text := strings.TrimSpace(n.text)
	switch kind := n.kindName(); kind {
	case xsdString, "":
		return filter.Text(n.text), nil
	case xsdURI:
		return filter.Text(text), nil
	case xsdBoolean:
		b, err := entity.ParseBool(text)
		return filter.Bool(b), err
	case xsdLong, xsdUnsignedInt:
		return parseInteger(kind, text, 64)
	case xsdUnsignedLong:
		u, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not of type %s with 64 bits", text, kind)
		}
		return filter.Uint(u), nil
	case xsdInt, xsdShort, xsdByte, xsdUnsignedByte, xsdUnsignedShort:
		return parseInteger(kind, text, 32)
	case xsdDouble, xsdFloat, xsdDecimal:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not of type %s", text, kind)
		}
		return filter.Double(f), nil
	case xsdDateTime:
		return parseTime(text)
	case serialDuration:
		return parseSpan(text)
	case serialGUID:
		return entity.ParseGUID(text)
	case xsdBinary:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return filter.Value{}, errors.New("not base64")
		}
		return filter.Binary(b), nil
	default:
		return filter.Value{}, fmt.Errorf("%w: values of the type %.40q", fsm.NotImplemented, kind)
	}
}

// parseInteger keeps to the size of the type: a larger number could not be written for the clients that read only int.
func parseInteger(kind, text string, bits int) (filter.Value, error) {
	i, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return filter.Value{}, fmt.Errorf("%.40q is not of type %s with %d bits", text, kind, bits)
	}
	return filter.Int(i), nil
}

// parseTime parses a time; without a zone it is UTC.
func parseTime(text string) (filter.Value, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if at, err = time.Parse("2006-01-02T15:04:05.999999999", text); err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is not of type %s: write it like 2026-11-20T12:00:00Z", text, xsdDateTime)
		}
	}
	return filter.Time(at.UnixMilli()), nil
}

// parseSpan parses a duration of ISO 8601 into a time span, and refuses one that is longer than a TimeSpan of .NET.
func parseSpan(text string) (filter.Value, error) {
	if v, ok := filter.ParseSpan(text); ok && strings.HasPrefix(strings.TrimPrefix(text, "-"), "P") {
		return v, nil
	}
	return filter.Value{}, fmt.Errorf("%.40q is not of type %s: write it like PT1M30S", text, serialDuration)
}

// pair writes a name with its value. The prefix has four characters and the attribute is "i:type": JavaScript depends on
// both.
func (x *Document) pair(name string, v filter.Value, form fsm.ValueForm) {
	kind, xmlns, text := valueXML(v, form)
	x.open(pairElement)
	x.leaf("Key", name)
	x.leaf("Value", text, "i:type", "d6p1:"+kind, "xmlns:d6p1", xmlns)
	x.end(pairElement)
}

// valueXML returns type, namespace of the type, and text of a value, as they were given. Where that is not known, the types
// are the six that all clients read: identifiers and bytes are then text.
func valueXML(v filter.Value, form fsm.ValueForm) (kind, xmlns, text string) {
	kind, text = plainXML(v)
	name := typeNames()[form.Type]
	if v.Kind() == filter.KindSpan {
		name = serialDuration // all clients read it
	}
	switch name {
	case "":
		return kind, schemaXMLNS, text
	case serialDuration:
		return name, serialXMLNS, cmp.Or(form.Text, text)
	case serialGUID:
		return name, serialXMLNS, cmp.Or(form.Text, text)
	}
	return name, schemaXMLNS, cmp.Or(form.Text, text)
}

// plainXML returns type and text of a value whose form is not known.
func plainXML(v filter.Value) (kind, text string) {
	switch v.Kind() {
	case filter.KindBool:
		return xsdBoolean, strconv.FormatBool(v.AsBool())
	case filter.KindInt:
		text = strconv.FormatInt(v.AsInt(), 10)
		if i := v.AsInt(); i < math.MinInt32 || i > math.MaxInt32 {
			return xsdLong, text
		}
		return xsdInt, text
	case filter.KindDouble:
		text = strconv.FormatFloat(v.AsDouble(), 'g', -1, 64)
		return xsdDouble, strings.TrimPrefix(strings.ReplaceAll(text, "Inf", "INF"), "+")
	case filter.KindTime:
		return xsdDateTime, time.UnixMilli(v.AsInt()).UTC().Format(entity.TimeLayout)
	case filter.KindGUID:
		return xsdString, v.String()
	case filter.KindSpan:
		return serialDuration, v.ISO()
	case filter.KindBinary:
		return xsdString, base64.StdEncoding.EncodeToString([]byte(v.AsText()))
	case filter.KindNull, filter.KindText:
	}
	return xsdString, v.AsText()
}
