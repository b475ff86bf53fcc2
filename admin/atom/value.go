package atom

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Types of XML Schema that clients use for values; they choose the prefix.
const (
	xsdString   = "string"
	xsdBoolean  = "boolean"
	xsdInt      = "int"
	xsdLong     = "long"
	xsdDouble   = "double"
	xsdDateTime = "dateTime"
)

// pairs reads Parameters or Properties: a list of names with values.
func (n *Element) pairs() (map[string]entity.Value, error) {
	if n == nil {
		return nil, nil //nolint:nilnil // none given is no error
	}
	values := make(map[string]entity.Value, len(n.children))
	for i := range n.children {
		pair := &n.children[i]
		key := pair.child("Key")
		if pair.name != pairElement || key == nil {
			return nil, fmt.Errorf("%s holds %s, each with Key and Value", n.name, pairElement)
		}
		if _, twice := values[key.text]; twice {
			return nil, fmt.Errorf("%.60q is given twice", key.text)
		}
		value, err := pair.child("Value").value()
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", key.text, err)
		}
		values[key.text] = entity.Value{Value: value}
	}
	return values, nil
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
	case xsdBoolean:
		b, err := entity.ParseBool(text)
		return filter.Bool(b), err
	case xsdLong, "unsignedInt":
		return parseInteger(kind, text, 64)
	case xsdInt, "short", "byte", "unsignedByte", "unsignedShort":
		return parseInteger(kind, text, 32)
	case xsdDouble, "float", "decimal":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is no %s", text, kind)
		}
		return filter.Double(f), nil
	case xsdDateTime:
		return parseTime(text)
	case "guid":
		return entity.ParseGUID(text)
	case "base64Binary":
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
		return filter.Value{}, fmt.Errorf("%.40q is no %s of %d bits", text, kind, bits)
	}
	return filter.Int(i), nil
}

// parseTime parses a time; without a zone it is UTC.
func parseTime(text string) (filter.Value, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if at, err = time.Parse("2006-01-02T15:04:05.999999999", text); err != nil {
			return filter.Value{}, fmt.Errorf("%.40q is no %s like 2026-11-20T12:00:00Z", text, xsdDateTime)
		}
	}
	return filter.Time(at.UnixMilli()), nil
}

// pair writes a name with its value. The prefix has four characters and the attribute is "i:type": JavaScript depends on
// both.
func (x *Document) pair(name string, v filter.Value) {
	kind, text := valueXML(v)
	x.open(pairElement)
	x.leaf("Key", name)
	x.leaf("Value", text, "i:type", "d6p1:"+kind, "xmlns:d6p1", schemaXMLNS)
	x.end(pairElement)
}

// valueXML returns type and text of a value. Clients know six types, so identifiers and bytes, which only other APIs can
// put into a rule, become text.
func valueXML(v filter.Value) (kind, text string) {
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
	case filter.KindBinary:
		return xsdString, base64.StdEncoding.EncodeToString([]byte(v.AsText()))
	case filter.KindNull, filter.KindText:
	}
	return xsdString, v.AsText()
}
