package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// Would is the answer of a command with --dry-run.
type Would struct {
	Would   string   `json:"would"`             // such as "delete queue orders"
	Changes []Change `json:"changes,omitempty"` // of settings
}

// Change is a setting with its value now and afterwards.
type Change struct {
	Setting string `json:"setting"`
	From    any    `json:"from,omitempty"` // nil: not set
	To      any    `json:"to"`
}

// Wouldf formats what a command would do.
func Wouldf(format string, args ...any) (Would, error) {
	return Would{Would: fmt.Sprintf(format, args...)}, nil
}

// String returns one line.
func (w Would) String() string {
	texts := make([]string, len(w.Changes))
	for at, c := range w.Changes {
		from := ""
		if c.From != nil {
			from = fmt.Sprintf(" from %v", c.From)
		}
		texts[at] = fmt.Sprintf("%s%s to %v", c.Setting, from, c.To)
	}
	text := "would " + w.Would
	if len(texts) > 0 {
		text += ": " + strings.Join(texts, ", ")
	}
	return text
}

// Changes returns the fields of given whose values differ from those of current. Both are structs of the control API, in which
// omitted fields are not given.
func Changes(given, current any) ([]Change, error) {
	var wanted, now map[string]any
	for from, to := range map[*map[string]any]any{&wanted: given, &now: current} {
		text, err := json.Marshal(to)
		if err == nil {
			err = json.Unmarshal(text, from)
		}
		if err != nil {
			return nil, fmt.Errorf("compare settings: %w", err)
		}
	}
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !reflect.DeepEqual(wanted[name], now[name]) {
			changes = append(changes, Change{name, now[name], wanted[name]})
		}
	}
	return changes, nil
}

// WouldUpdate says how given would change current, which is called name.
func WouldUpdate(name string, given, current any) (Would, error) {
	changes, err := Changes(given, current)
	if err != nil || len(changes) == 0 {
		return Would{Would: "change nothing: " + name + " is so already"}, err
	}
	return Would{Would: "update " + name, Changes: changes}, nil
}

// Print prints what would be done.
func (w Would) Print(out *output.Output) error {
	if out.IsTable() {
		return out.Note("%s", w)
	}
	return out.Data(w)
}
