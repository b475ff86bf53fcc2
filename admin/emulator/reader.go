package emulator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
)

// reader reads the JSON and collects its errors.
type reader struct {
	lenient  bool // mistakes are warnings
	file     File
	found    bool // the file has namespaces
	mistakes int
	errors   []error // the first of them
	dropped  int     // number of warnings beyond warningsMax
}

// field is a field that an object may have.
type field struct {
	name string
	read func(path string, raw json.RawMessage)
}

func (r *reader) addError(path, format string, args ...any) {
	r.mistakes++
	if r.lenient {
		r.warn(path, "left out: %s", fmt.Errorf(format, args...).Error())
		return
	}
	if len(r.errors) < errorsMax {
		r.errors = append(r.errors, fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...)))
	}
}

func (r *reader) warn(path, format string, args ...any) {
	if len(r.file.Warnings) >= warningsMax {
		r.dropped++
		return
	}
	r.file.Warnings = append(r.file.Warnings, fmt.Sprintf("%.300s: %s", path, fmt.Sprintf(format, args...)))
}

// object reads the fields of an object, with names in any case, as in .NET. null is like an omitted field.
func (r *reader) object(path string, raw json.RawMessage, fields ...field) {
	var found map[string]json.RawMessage
	if json.Unmarshal(raw, &found) != nil || found == nil {
		r.addError(path, "is an object in braces, not %.40s", raw)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		at := slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, key) })
		switch {
		case at < 0:
			r.warn(joinPath(path, key), "unknown and ignored")
		case string(found[key]) != "null":
			fields[at].read(joinPath(path, fields[at].name), found[key])
		}
	}
}

// joinPath is the path of a field, without UserConfig, which everything is below.
func joinPath(path, name string) string {
	if path == "" || path == "UserConfig" {
		return name
	}
	return path + "." + name
}

// list reads the elements of a list.
func (r *reader) list(each func(path string, raw json.RawMessage)) func(string, json.RawMessage) {
	return func(path string, raw json.RawMessage) {
		var found []json.RawMessage
		if json.Unmarshal(raw, &found) != nil {
			r.addError(path, "is a list in brackets, not %.40s", raw)
			return
		}
		for i, element := range found {
			each(fmt.Sprintf("%s[%d]", path, i), element)
		}
	}
}

func (r *reader) text(into *string) func(string, json.RawMessage) {
	return func(path string, raw json.RawMessage) {
		if json.Unmarshal(raw, into) != nil {
			r.addError(path, "is a text in quotes, not %.40s", raw)
		}
	}
}

// bool reads a setting without effect.
func (r *reader) bool(into **bool) func(string, json.RawMessage) {
	return func(path string, raw json.RawMessage) {
		on, err := entity.ParseBool(strings.Trim(string(raw), `"`))
		if err != nil {
			r.addError(path, "is true or false, not %.40s", raw)
			return
		}
		*into = &on
	}
}

// truncate limits texts of the file in messages.
func truncate(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}
