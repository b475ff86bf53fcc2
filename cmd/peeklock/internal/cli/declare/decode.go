package declare

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// mistakesMax is the number of mistakes that are reported at once.
const mistakesMax = 10

// decoder reads nodes of YAML into the types of a document, and collects mistakes with their lines.
type decoder struct {
	file     string
	mistakes []error
}

// add records a mistake at a node; path names its key.
func (d *decoder) add(node *yaml.Node, path, format string, args ...any) {
	if len(d.mistakes) < mistakesMax {
		d.mistakes = append(d.mistakes, fmt.Errorf("%s:%d: %s: %w", d.file, node.Line, strings.TrimPrefix(path, "."), fmt.Errorf(format, args...)))
	}
}

// decodeYAML reads a text of YAML or JSON into a struct. The error names the file, lines and keys.
func decodeYAML(file string, text []byte, into any) error {
	var tree any // finds duplicate keys, and aliases that multiply
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("%s is not valid YAML: %w", file, err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return err // an empty file declares nothing
	}
	d := &decoder{file: file}
	d.value(root.Content[0], reflect.ValueOf(into).Elem(), "")
	return errors.Join(d.mistakes...)
}

// value reads a node into a value.
func (d *decoder) value(node *yaml.Node, into reflect.Value, path string) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Tag == "!!null" && into.Kind() != reflect.Struct {
		return // as if it was not given
	}
	_, writesItself := into.Addr().Interface().(json.Unmarshaler)
	switch kind := into.Kind(); {
	case kind == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(node, into.Elem(), path)
	case writesItself:
		d.scalar(node, into, path)
	case kind == reflect.Struct:
		d.mapping(node, into, path)
	case kind == reflect.Map:
		into.Set(reflect.MakeMap(into.Type()))
		d.each(node, path, func(key, value *yaml.Node) {
			element := reflect.New(into.Type().Elem()).Elem()
			d.value(value, element, path+"."+key.Value)
			into.SetMapIndex(reflect.ValueOf(key.Value), element)
		})
	case kind == reflect.Slice && node.Kind != yaml.SequenceNode:
		d.add(node, path, "is a list")
	case kind == reflect.Slice:
		into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
		for i, element := range node.Content {
			d.value(element, into.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case kind == reflect.String && (node.Tag == "!!str" || node.Tag == "!!timestamp"):
		into.SetString(node.Value)
	default:
		d.scalar(node, into, path)
	}
}

// mapping reads a mapping into a struct.
func (d *decoder) mapping(node *yaml.Node, into reflect.Value, path string) {
	known := properties(into.Type())
	given := make(map[string]bool)
	d.each(node, path, func(key, value *yaml.Node) {
		names := make([]string, len(known))
		for i, p := range known {
			if names[i] = p.name; p.name == key.Value {
				given[p.name] = true
				d.value(value, into.FieldByIndex(p.index), path+"."+p.name)
				return
			}
		}
		d.add(key, path+"."+key.Value, "unknown key%s", cli.Nearest(key.Value, names))
	})
	for _, p := range known {
		if p.required && !given[p.name] && node.Kind == yaml.MappingNode {
			d.add(node, path+"."+p.name, "is missing")
		}
	}
}

// each calls visit for the pairs of a mapping, first for those that it merges from others (<<).
func (d *decoder) each(node *yaml.Node, path string, visit func(key, value *yaml.Node)) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		d.add(node, path, "is a mapping of keys to values")
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Tag != "!!merge":
		case value.Kind == yaml.SequenceNode:
			for at := range value.Content { // the first one wins
				d.each(value.Content[len(value.Content)-1-at], path, visit)
			}
		default:
			d.each(value, path, visit)
		}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; key.Tag != "!!merge" {
			visit(key, node.Content[i+1])
		}
	}
}

// scalar reads a value as encoding/json does.
func (d *decoder) scalar(node *yaml.Node, into reflect.Value, path string) {
	var tree any = node.Value
	var err error
	if node.Tag != "!!timestamp" { // a text such as 2026-11-28 that is not in quotes
		err = node.Decode(&tree)
	}
	encoded := []byte(node.Value)
	isNumber := node.Tag == "!!int" || node.Tag == "!!float"
	if err == nil && (!isNumber || !json.Valid(encoded)) { // the number 3.0 stays a decimal
		encoded, err = json.Marshal(tree)
	}
	if err == nil {
		err = json.Unmarshal(encoded, into.Addr().Interface())
	}
	wrong := new(json.UnmarshalTypeError)
	switch {
	case err == nil:
	case !errors.As(err, &wrong):
		d.add(node, path, "%w", err)
	case into.Kind() == reflect.Bool:
		d.add(node, path, "is true or false, not %.60s", encoded)
	case into.Kind() == reflect.String:
		d.add(node, path, "is a text, not %.60s: put it in quotes", encoded)
	default:
		d.add(node, path, "is a whole number from 0 to %s, not %.60s", strconv.FormatUint(1<<into.Type().Bits()-1, 10), encoded)
	}
}
