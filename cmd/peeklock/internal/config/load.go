package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// fileBytesMax limits the size of the configuration file, which people write by hand.
const fileBytesMax = 1024 * 1024

// The layers of the configuration, from lowest to highest precedence.
const (
	fromDefault = "default"
	fromFile    = "file"
	fromEnv     = "environment"
	fromFlag    = "flag"
)

// envPrefix begins every environment variable of the configuration.
const envPrefix = "PEEKLOCK_"

// Settings is the configuration of a member with the origin of each value.
type Settings struct {
	Member
	ownKey bool           // a key other than the emulator's is configured; set by Keys
	path   string         // of the file, or ""
	lines  map[string]int // of the settings in the file
	layers map[string]*koanf.Koanf
	merged *koanf.Koanf
}

// Load reads the layers in the order file, environment (KEY=value), flags; later ones win. All its errors are mistakes
// of the user.
func Load(env []string, flags *pflag.FlagSet) (*Settings, error) {
	s := &Settings{layers: make(map[string]*koanf.Koanf), merged: koanf.New("."), lines: make(map[string]int)}
	known := defaults()
	s.path, _ = flags.GetString("config")
	if s.path == "" {
		for _, pair := range env {
			if value, found := strings.CutPrefix(pair, envPrefix+"CONFIG="); found {
				s.path = value
			}
		}
	}
	for _, layer := range []struct {
		name string
		load func(*koanf.Koanf) error
	}{
		{fromDefault, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(known, ""), nil) }},
		{fromFile, func(k *koanf.Koanf) error {
			if s.path == "" {
				return nil
			}
			if err := k.Load(file.Provider(s.path), yamlParser{s.lines}); err != nil {
				return fmt.Errorf("%s: %w", s.path, err)
			}
			return nil
		}},
		{fromEnv, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(environment(env, known), ""), nil) }},
		{fromFlag, func(k *koanf.Koanf) error { return k.Load(confmap.Provider(changedFlags(flags, known), ""), nil) }},
	} {
		k := koanf.New(".")
		if err := layer.load(k); err != nil {
			return nil, fmt.Errorf("read the configuration from the %s: %w", layer.name, err)
		}
		s.layers[layer.name] = k
		for _, key := range k.Keys() {
			if _, ok := known[key]; !ok {
				return nil, s.invalid(key, "unknown setting%s: possible are %s", cli.Nearest(key, names()), strings.Join(names(), ", "))
			}
		}
		if err := s.merged.Merge(k); err != nil {
			return nil, fmt.Errorf("read the configuration from the %s: %w", layer.name, err)
		}
	}
	if len(s.merged.Strings("join")) > 0 && s.origin("expect") == fromDefault {
		// A member that names others is to join them. With the default, it would bootstrap a cluster of its own
		// before it has heard from them.
		if err := s.merged.Set("expect", 0); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	for _, row := range sortedTable() {
		if err := s.decode(&row); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decode stores the value of a setting in its field.
func (s *Settings) decode(row *Setting) error {
	value := s.merged.Get(row.Name)
	decoder, err := mapstructure.NewDecoder(decoderConfig(&s.Member))
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err = decoder.Decode(map[string]any{row.Name: value}); err == nil {
		return nil
	}
	shown := fmt.Sprint(value)
	if row.IsSecret {
		shown = "(hidden)"
	}
	switch row.Default.(type) {
	case int:
		return s.invalid(row.Name, "%.100q is not a whole number", shown)
	case bool:
		return s.invalid(row.Name, "%.100q is not true or false", shown)
	case string:
		return s.invalid(row.Name, "%.100q is not a text", shown)
	case []string:
		return s.invalid(row.Name, "%.100q is not a list of texts", shown)
	case quantity.Bytes:
		_, err = entity.ParseBytes(shown)
	case quantity.Duration:
		err = new(quantity.Duration).Set(shown)
	}
	return s.invalid(row.Name, "%w", err)
}

// invalid returns an error about the value of a setting. It begins with the place of the value: the line in the file, the
// variable, or the flag.
func (s *Settings) invalid(setting, format string, args ...any) error {
	where, top := setting, strings.Split(setting, ".")[0]
	switch s.origin(setting) {
	case fromFile:
		where = fmt.Sprintf("%s:%d: %s", s.path, s.lines[top], setting)
	case fromEnv:
		where = envPrefix + strings.ToUpper(setting)
	case fromFlag:
		where = "--" + strings.ReplaceAll(setting, "_", "-")
	}
	return fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...))
}

// defaults returns the default values by name.
func defaults() map[string]any {
	all := make(map[string]any)
	for _, s := range Table() {
		all[s.Name] = s.Default
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "member"
	}
	all["name"] = name
	return all
}

// environment returns the settings among the environment variables. The variables that the command line reads as a
// client are not settings, nor are those that Kubernetes sets for a Service that is called peeklock
// (PEEKLOCK_SERVICE_HOST, PEEKLOCK_PORT_5672_TCP). A member whose key came from the environment of a user would
// accept that user's secret for another cluster.
func environment(env []string, known map[string]any) map[string]any {
	out := make(map[string]any)
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		name, found := strings.CutPrefix(name, envPrefix)
		if !found || slices.Contains([]string{"SERVER", "CONTEXT", "KEY", "KEY_NAME", "CA", "NAMESPACE", "CONFIG"}, name) || fromKubernetes(name) {
			continue
		}
		key := strings.ToLower(name)
		if _, isList := known[key].([]string); isList {
			out[key] = splitList(value)
			continue
		}
		out[key] = value
	}
	return out
}

func fromKubernetes(name string) bool {
	return strings.HasPrefix(name, "SERVICE_") || strings.Contains(name, "_SERVICE_") ||
		name == "PORT" || strings.HasPrefix(name, "PORT_") || strings.Contains(name, "_PORT_") || strings.HasSuffix(name, "_PORT")
}

// changedFlags returns the flags that were set, by the names of their settings.
func changedFlags(flags *pflag.FlagSet, known map[string]any) map[string]any {
	out := make(map[string]any)
	flags.Visit(func(f *pflag.Flag) {
		key := strings.ReplaceAll(f.Name, "-", "_")
		if _, ok := known[key]; !ok {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			out[key] = list.GetSlice()
			return
		}
		out[key] = f.Value.String()
	})
	return out
}

func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// sortedTable returns Table sorted by name.
func sortedTable() []Setting {
	all := Table()
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func names() []string {
	var list []string
	for _, s := range sortedTable() {
		list = append(list, s.Name)
	}
	return list
}

// origin returns the layer with the highest precedence that has the setting.
func (s *Settings) origin(key string) string {
	for _, layer := range []string{fromFlag, fromEnv, fromFile} {
		if k := s.layers[layer]; k != nil && k.Exists(key) {
			return layer
		}
	}
	return fromDefault
}

// IsGiven reports whether a setting is given, even if its value equals the default.
func (s *Settings) IsGiven(name string) bool { return s.origin(name) != fromDefault }

// Value is a setting with its effective value, for config print.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// List returns all settings sorted by name. For secrets it shows only whether they are set.
func (s *Settings) List() []Value {
	var out []Value
	for _, row := range sortedTable() {
		text := fmt.Sprint(s.merged.Get(row.Name))
		switch {
		case row.Name == "keys":
			names := make([]string, len(s.Keys))
			for i, k := range s.Keys {
				names[i] = k.Name
			}
			text = strings.Join(names, ",")
		case row.IsSecret && text != "":
			text = "(hidden)"
		default:
			if _, isList := row.Default.([]string); isList {
				text = strings.Join(decodeList(s.merged.Get(row.Name)), ",")
			}
		}
		out = append(out, Value{Name: row.Name, Value: text, Origin: s.origin(row.Name)})
	}
	return out
}

// decodeList decodes a list, which may also be one text with commas; it returns nil if value is neither.
func decodeList(value any) (list []string) {
	decoder, err := mapstructure.NewDecoder(decoderConfig(&list))
	if err != nil || decoder.Decode(value) != nil {
		return nil
	}
	return list
}

// decoderConfig parses numbers and booleans from text, the only type that environment variables have, and refuses
// fields that do not exist. A setting is stored in the field that has its name without underscores.
func decoderConfig(result any) *mapstructure.DecoderConfig {
	return &mapstructure.DecoderConfig{
		Result: result, WeaklyTypedInput: true, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToSliceHookFunc(","), decodeQuantity),
		MatchName: func(key, field string) bool {
			return strings.EqualFold(strings.ReplaceAll(key, "_", ""), field)
		},
	}
}

// decodeQuantity parses numbers of bytes and lengths of time, which the file may have as numbers, too.
func decodeQuantity(from, to reflect.Value) (any, error) {
	target, isQuantity := to.Addr().Interface().(pflag.Value)
	if !isQuantity || from.Type() == to.Type() {
		return from.Interface(), nil
	}
	if err := target.Set(fmt.Sprint(from.Interface())); err != nil {
		return nil, err
	}
	return to.Interface(), nil
}

// yamlParser lets koanf read YAML with the library that the rest of the module uses.
type yamlParser struct {
	lines map[string]int // gets the lines of the settings
}

// Unmarshal reads a mapping; an empty file is an empty mapping.
func (p yamlParser) Unmarshal(data []byte) (map[string]any, error) {
	if len(data) > fileBytesMax {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	out := map[string]any{}
	if len(document.Content) == 0 {
		return out, nil
	}
	for at, key := range document.Content[0].Content {
		if at%2 == 0 {
			p.lines[key.Value] = key.Line
		}
	}
	return out, document.Decode(&out)
}

// Marshal implements koanf.Parser; the configuration is never written.
func (yamlParser) Marshal(value map[string]any) ([]byte, error) { return yaml.Marshal(value) }
