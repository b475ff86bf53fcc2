package cli

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm/filter"
)

// typedPair parses key=value, where the value is text, or key:=json, where the value keeps its type.
func typedPair(flag, pair string) (string, entity.Value, error) {
	key, text, found := strings.Cut(pair, "=")
	key, typed := strings.CutSuffix(key, ":")
	if !found || key == "" {
		return "", entity.Value{}, Usagef("%s is key=value, not %q", flag, Printable(pair, 100))
	}
	if !typed {
		return key, entity.Value{Value: filter.Text(text)}, nil
	}
	var value entity.Value
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return "", value, Usagef("%s %s: JSON follows :=, as in %s:=7; %w", flag, key, key, err)
	}
	return key, value, nil
}

// typedPairs parses several pairs; each key may occur once.
func typedPairs(flag string, pairs []string) (map[string]entity.Value, error) {
	var values map[string]entity.Value
	for _, pair := range pairs {
		key, value, err := typedPair(flag, pair)
		if err != nil {
			return nil, err
		}
		if _, twice := values[key]; twice {
			return nil, Usagef("%s %s is given twice", flag, key)
		}
		if values == nil {
			values = make(map[string]entity.Value)
		}
		values[key] = value
	}
	return values, nil
}

// wireValue converts a value to the type that go-amqp sends.
func wireValue(v filter.Value) any {
	switch v.Kind() {
	case filter.KindNull:
	case filter.KindBool:
		return v.AsBool()
	case filter.KindInt:
		return v.AsInt()
	case filter.KindDouble:
		return v.AsDouble()
	case filter.KindText:
		return v.AsText()
	case filter.KindTime:
		return time.UnixMilli(v.AsInt()).UTC()
	case filter.KindGUID:
		return amqp.UUID([]byte(v.AsText()))
	case filter.KindBinary:
		return []byte(v.AsText())
	case filter.KindSpan: // refused by the caller: the client library cannot send it
	}
	return nil
}
