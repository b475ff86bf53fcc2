package command

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm/filter"
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

// DurationFlag is a duration on the command line: "30s", "PT30S" or "forever".
func DurationFlag(to **entity.Duration) pflag.Value {
	return optionalFlag[entity.Duration]{to, func(text string) (entity.Duration, error) {
		d, err := entity.ParseDuration(text)
		return entity.Duration(d), err
	}, "duration"}
}

// StringFlag is a text that is nil until it is given.
func StringFlag(to **string) pflag.Value {
	return optionalFlag[string]{to, func(text string) (string, error) { return text, nil }, "string"}
}

// Uint32Flag is a number that is nil until it is given.
func Uint32Flag(to **uint32) pflag.Value {
	return optionalFlag[uint32]{to, func(text string) (uint32, error) {
		n, err := strconv.ParseUint(text, 0, 32)
		return uint32(n), err
	}, "uint32"}
}

// BytesFlag is a number of bytes, such as 64MiB, that is nil until it is given.
func BytesFlag[T uint32 | uint64](to **T) pflag.Value {
	return optionalFlag[T]{to, func(text string) (T, error) {
		n, err := entity.ParseBytes(text)
		if err == nil && uint64(n) > uint64(^T(0)) {
			err = fmt.Errorf("%s is more than %d bytes", text, ^T(0))
		}
		return T(n), err
	}, "bytes"}
}

// Uint64Flag is a number that is nil until it is given.
func Uint64Flag(to **uint64) pflag.Value {
	return optionalFlag[uint64]{to, func(text string) (uint64, error) { return strconv.ParseUint(text, 0, 64) }, "uint64"}
}

// TypedPair parses key=value, where the value is text, or key:=json, where the value keeps its type.
func TypedPair(flag, pair string) (string, entity.Value, error) {
	key, text, found := strings.Cut(pair, "=")
	key, typed := strings.CutSuffix(key, ":")
	if !found || key == "" {
		return "", entity.Value{}, cli.Usagef("%s is key=value, not %q", flag, output.Printable(pair, 100))
	}
	if !typed {
		return key, entity.Value{Value: filter.Text(text)}, nil
	}
	var value entity.Value
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return "", value, cli.Usagef("%s %s: JSON follows :=, as in %s:=7; %w", flag, key, key, err)
	}
	return key, value, nil
}

// TypedPairs parses several pairs; each key may occur once.
func TypedPairs(flag string, pairs []string) (map[string]entity.Value, error) {
	var values map[string]entity.Value
	for _, pair := range pairs {
		key, value, err := TypedPair(flag, pair)
		if err != nil {
			return nil, err
		}
		if _, twice := values[key]; twice {
			return nil, cli.Usagef("%s %s is given twice", flag, key)
		}
		if values == nil {
			values = make(map[string]entity.Value)
		}
		values[key] = value
	}
	return values, nil
}
