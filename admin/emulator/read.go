package emulator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// The ranges of settings. They are those of the broker, not of the emulator.
const (
	lockDurationMin    = 5 * time.Second
	lockDurationMax    = 24 * time.Hour // a namespace may allow less
	lifeMin            = time.Millisecond
	duplicateWindowMin = 20 * time.Second
	duplicateWindowMax = 7 * 24 * time.Hour
	deliveryCountMax   = 2000
)

// reader walks the JSON and collects what is wrong with it.
type reader struct {
	file    File
	found   bool // namespaces were there
	errors  []error
	dropped int // warnings that were one too many
}

// field is something that an object may have.
type field struct {
	name string
	read func(path string, raw json.RawMessage)
}

func (r *reader) addError(path, format string, args ...any) {
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

// object reads the fields of an object, whose names count without case, as in .NET. null
// is as good as nothing.
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

// joinPath is the path of a field. What everything is under is not worth its place.
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

func (r *reader) userConfig(path string, raw json.RawMessage) {
	r.object(path, raw,
		field{"Namespaces", r.list(r.namespace)},
		field{"Logging", func(string, json.RawMessage) {}}) // where the emulator writes its log
	r.checkUniqueNames()
}

func (r *reader) namespace(path string, raw json.RawMessage) {
	r.found = true
	n := namespace{path: path}
	r.object(path, raw,
		field{"Name", r.text(&n.name)},
		field{"Queues", r.list(func(path string, raw json.RawMessage) { r.queue(&n, path, raw) })},
		field{"Topics", r.list(func(path string, raw json.RawMessage) { r.topic(&n, path, raw) })})
	first := len(r.file.namespaces) == 0
	switch {
	case first: // of no consequence: it is the default one
	case !isLabel(n.name):
		r.addError(path+".Name", "%q: a namespace has 1 to %d letters, digits and inner hyphens", truncate(n.name), namespaceNameBytesMax)
	case strings.EqualFold(n.name, fsm.DefaultNamespaceName):
		r.addError(path+".Name", "%q is what the first namespace of the file becomes", n.name)
	}
	r.file.namespaces = append(r.file.namespaces, n)
}

// isLabel says whether a name can be the first part of a host name.
func isLabel(name string) bool {
	for _, c := range name {
		if !isAlphanumeric(c) && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= namespaceNameBytesMax && name[0] != '-' && name[len(name)-1] != '-'
}

func isAlphanumeric(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// name checks the name of an entity.
func (r *reader) name(path, name string, bytesMax int, others string) {
	switch {
	case name == "":
		r.addError(path+".Name", "is missing")
	case len(name) > bytesMax:
		r.addError(path+".Name", "is at most %d characters long", bytesMax)
	case strings.ContainsFunc(name, func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune(others, c) }) ||
		!isAlphanumeric(rune(name[0])) || !isAlphanumeric(rune(name[len(name)-1])):
		r.addError(path+".Name", "%q: a name has letters, digits and %s, and begins and ends with a letter or digit", truncate(name), others)
	case slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || strings.EqualFold(part, "Subscriptions") }):
		r.addError(path+".Name", "%q: a name has no part that is empty or Subscriptions", truncate(name))
	}
}

func (r *reader) queue(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.QueueEntity}
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)})
	r.name(path, e.name, nameBytesMax, ".-_/")
	n.entities = append(n.entities, e)
}

func (r *reader) topic(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.TopicEntity}
	n.entities = append(n.entities, e)
	first := len(n.entities)
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)},
		field{"Subscriptions", r.list(func(path string, raw json.RawMessage) { r.subscription(n, path, raw) })})
	r.name(path, e.name, nameBytesMax, ".-_/")
	for _, s := range n.entities[first:] {
		s.name = fsm.SubscriptionPath(e.name, s.name)
	}
}

func (r *reader) subscription(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.SubscriptionEntity}
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)},
		field{"Rules", r.list(func(path string, raw json.RawMessage) { r.rule(e, path, raw) })})
	r.name(path, e.name, subscriptionNameMax, ".-_")
	n.entities = append(n.entities, e)
}

// checkUniqueNames refuses names that are given twice, which would change each other's settings.
func (r *reader) checkUniqueNames() {
	spaces := make(map[string]string)
	for i := range r.file.namespaces {
		n := &r.file.namespaces[i]
		checkUnique(r, spaces, n.path, n.name, "the namespace")
		names := make(map[string]string)
		for _, e := range n.entities {
			checkUnique(r, names, e.path, e.name, "an entity")
			rules := make(map[string]string)
			for j, rule := range e.rules {
				checkUnique(r, rules, fmt.Sprintf("%s.Rules[%d]", e.path, j), rule.Name, "the rule")
			}
		}
	}
}

func checkUnique(r *reader, seen map[string]string, path, name, what string) {
	key := strings.ToLower(name)
	if other, twice := seen[key]; twice {
		r.addError(path+".Name", "%s %q is in the file already: %s", what, truncate(name), other)
	}
	seen[key] = path
}

// properties reads the settings that the kind of entity has.
func (r *reader) properties(e *resource) func(string, json.RawMessage) {
	fields := []field{r.durationField(e, "DefaultMessageTimeToLive", lifeMin, entity.Forever, func(s *fsm.EntitySettings, v fsm.Millis) { s.DefaultTimeToLive = v })}
	if e.kind != fsm.SubscriptionEntity {
		fields = append(fields,
			r.duplicateWindowField(e),
			valueField(r, e, "RequiresDuplicateDetection", "true or false", nil, func(s *fsm.EntitySettings, v bool) { s.RequiresDuplicateDetection = v }))
	}
	if e.kind != fsm.TopicEntity {
		fields = append(fields,
			r.durationField(e, "LockDuration", lockDurationMin, lockDurationMax, func(s *fsm.EntitySettings, v fsm.Millis) { s.LockDuration = v }),
			valueField(r, e, "MaxDeliveryCount", fmt.Sprintf("a number from 1 to %d", deliveryCountMax),
				func(v uint32) bool { return v >= 1 && v <= deliveryCountMax }, func(s *fsm.EntitySettings, v uint32) { s.MaxDeliveryCount = v }),
			valueField(r, e, "DeadLetteringOnMessageExpiration", "true or false", nil, func(s *fsm.EntitySettings, v bool) { s.DeadLetterOnExpiry = v }),
			valueField(r, e, "RequiresSession", "true or false", nil, func(s *fsm.EntitySettings, v bool) { s.RequiresSession = v }),
			valueField(r, e, "ForwardTo", "the name of a queue or topic", isDestination, func(s *fsm.EntitySettings, v string) { s.ForwardTo = v }),
			valueField(r, e, "ForwardDeadLetteredMessagesTo", "the name of a queue or topic", isDestination, func(s *fsm.EntitySettings, v string) { s.ForwardDeadLettersTo = v }))
	}
	return func(path string, raw json.RawMessage) { r.object(path, raw, fields...) }
}

func isDestination(name string) bool { return len(name) <= nameBytesMax }

// valueField is a field that is one JSON value.
func valueField[T any](r *reader, e *resource, name, is string, good func(T) bool, into func(*fsm.EntitySettings, T)) field {
	return field{name, func(path string, raw json.RawMessage) {
		var value T
		if json.Unmarshal(raw, &value) != nil || good != nil && !good(value) {
			r.addError(path, "is %s, not %.40s", is, raw)
			return
		}
		e.changes = append(e.changes, func(s *fsm.EntitySettings) { into(s, value) })
	}}
}

// durationField is a field that is a length of time.
func (r *reader) durationField(e *resource, name string, least, most time.Duration, into func(*fsm.EntitySettings, fsm.Millis)) field {
	return field{name, func(path string, raw json.RawMessage) {
		var value entity.Duration
		switch err := value.UnmarshalJSON(raw); {
		case err != nil:
			r.addError(path, "%w", err)
		case time.Duration(value) < least || time.Duration(value) > most:
			r.addError(path, "is %s to %s, not %s", least, entity.Duration(most), value)
		default:
			e.changes = append(e.changes, func(s *fsm.EntitySettings) { into(s, toMillis(time.Duration(value))) })
		}
	}}
}

// duplicateWindowField is how long ids are remembered. The emulator takes less than we remember: more
// is what nobody will miss.
func (r *reader) duplicateWindowField(e *resource) field {
	const name = "DuplicateDetectionHistoryTimeWindow"
	into := func(s *fsm.EntitySettings, v fsm.Millis) { s.DuplicateWindow = max(v, toMillis(duplicateWindowMin)) }
	plain := r.durationField(e, name, time.Second, duplicateWindowMax, into)
	return field{name, func(path string, raw json.RawMessage) {
		var value entity.Duration
		if value.UnmarshalJSON(raw) == nil && value >= entity.Duration(time.Second) && value < entity.Duration(duplicateWindowMin) {
			r.warn(path, "%s is raised to %s, the least there is", value, duplicateWindowMin)
		}
		plain.read(path, raw)
	}}
}

func toMillis(d time.Duration) fsm.Millis {
	if d == entity.Forever {
		return fsm.Forever
	}
	return fsm.Millis(d.Milliseconds())
}

// truncate keeps what a file says from filling the screen.
func truncate(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}
