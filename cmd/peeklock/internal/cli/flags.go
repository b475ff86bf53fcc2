package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/spf13/pflag"
)

// optionalFlag is a flag whose value is nil until it is given, because the server has the default.
type optionalFlag[T any] struct {
	to    **T
	parse func(string) (T, error)
	kind  string // in the help
}

var _ pflag.Value = optionalFlag[bool]{}

// Set implements pflag.Value.
func (f optionalFlag[T]) Set(text string) error {
	v, err := f.parse(text)
	if err == nil {
		*f.to = &v
	}
	return err
}

// String implements pflag.Value and returns no default.
func (f optionalFlag[T]) String() string {
	if f.to == nil || *f.to == nil {
		return ""
	}
	return fmt.Sprint(**f.to)
}

// Type implements pflag.Value.
func (f optionalFlag[T]) Type() string { return f.kind }

// durationFlag is a duration on the command line: "30s", "PT30S" or "forever".
func durationFlag(to **entity.Duration) pflag.Value {
	return optionalFlag[entity.Duration]{to, func(text string) (entity.Duration, error) {
		d, err := entity.ParseDuration(text)
		return entity.Duration(d), err
	}, "duration"}
}

func stringFlag(to **string) pflag.Value {
	return optionalFlag[string]{to, func(text string) (string, error) { return text, nil }, "string"}
}

func uint32Flag(to **uint32) pflag.Value {
	return optionalFlag[uint32]{to, func(text string) (uint32, error) {
		n, err := strconv.ParseUint(text, 0, 32)
		return uint32(n), err
	}, "uint32"}
}

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

// sessionFlag is the name of a session. "" is a valid name, so the flag records whether it was given.
type sessionFlag struct{ to **string }

var _ pflag.Value = sessionFlag{}

// Set implements pflag.Value.
func (s sessionFlag) Set(text string) error {
	*s.to = &text
	return nil
}

// String returns the current value.
func (s sessionFlag) String() string {
	if s.to == nil || *s.to == nil {
		return ""
	}
	return **s.to
}

// Type implements pflag.Value.
func (s sessionFlag) Type() string { return "name" }
