package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Limits of a path.
const (
	pathBytesMax  = 1024
	pathDepthMax  = 32
	documentBytes = 1 << 20 // JSON bodies that are longer have no path
)

// jsonPath is a condition on a JSON document: $.customer.id, $['a b'][0], and with a value behind =, $.customer.id=7.
// Without a value the path has to exist. The value is JSON; a word that is not is a text.
type jsonPath struct {
	steps []string // names of fields, or indexes
	value any      // if compares
	// compares: the value at the path has to equal value, otherwise it only has to exist.
	compares bool
}

var errPath = errors.New("want a path such as $.customer.id, $['a b'][0] or $.customer.id=7")

// parsePath reads a path.
func parsePath(text string) (*jsonPath, error) {
	if len(text) > pathBytesMax {
		return nil, errPath
	}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, errPath
	}
	p := new(jsonPath)
	for rest != "" && rest[0] != '=' {
		var step string
		switch {
		case len(p.steps) == pathDepthMax:
			return nil, errPath
		case rest[0] == '.':
			end := strings.IndexAny(rest[1:], ".[=")
			if end < 0 {
				end = len(rest) - 1
			}
			step, rest = rest[1:end+1], rest[end+1:]
		case strings.HasPrefix(rest, "['"):
			end := strings.Index(rest, "']")
			if end < 0 {
				return nil, errPath
			}
			step, rest = rest[2:end], rest[end+2:]
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, errPath
			}
			step, rest = rest[1:end], rest[end+1:]
			if _, err := strconv.ParseUint(step, 10, 31); err != nil {
				return nil, errPath
			}
		default:
			return nil, errPath
		}
		if step == "" {
			return nil, errPath
		}
		p.steps = append(p.steps, step)
	}
	if rest != "" {
		p.compares = true
		value := strings.TrimPrefix(strings.TrimPrefix(rest, "="), "=")
		if json.Unmarshal([]byte(value), &p.value) != nil {
			p.value = value
		}
	}
	return p, nil
}

// matches reports whether a document is JSON, has the path, and there the value.
func (p *jsonPath) matches(document []byte) bool {
	if len(document) > documentBytes {
		return false
	}
	raw := json.RawMessage(document)
	if !json.Valid(raw) {
		return false
	}
	for _, step := range p.steps {
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			return false
		}
		switch raw[0] {
		case '{':
			var fields map[string]json.RawMessage
			if json.Unmarshal(raw, &fields) != nil {
				return false
			}
			raw = fields[step]
		case '[':
			var items []json.RawMessage
			i, err := strconv.Atoi(step)
			if err != nil || json.Unmarshal(raw, &items) != nil || i >= len(items) || i < 0 {
				return false
			}
			raw = items[i]
		default:
			return false
		}
	}
	if len(raw) == 0 {
		return false
	}
	if !p.compares {
		return true
	}
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return false
	}
	switch value.(type) {
	case map[string]any, []any:
		return false // only plain values are compared
	}
	return value == p.value
}
