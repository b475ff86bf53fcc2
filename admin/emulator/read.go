package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

func (r *reader) userConfig(path string, raw json.RawMessage) {
	r.object(path, raw,
		field{"Namespaces", r.list(r.namespace)},
		field{"Logging", func(string, json.RawMessage) {}}) // of the emulator itself
	r.checkUniqueNames()
}

func (r *reader) namespace(path string, raw json.RawMessage) {
	r.found = true
	n := namespace{path: path}
	r.object(path, raw,
		field{"Name", r.text(&n.name)},
		field{"Queues", r.list(func(path string, raw json.RawMessage) { r.queue(&n, path, raw) })},
		field{"Topics", r.list(func(path string, raw json.RawMessage) { r.topic(&n, path, raw) })})
	first, before := len(r.file.namespaces) == 0, r.mistakes
	switch {
	case first: // its name is not used
	case !isLabel(n.name):
		r.addError(path+".Name", "%q: a namespace has 1 to %d letters, digits and inner hyphens", truncate(n.name), namespaceNameBytesMax)
	case strings.EqualFold(n.name, fsm.DefaultNamespaceName):
		r.addError(path+".Name", "%q is what the first namespace of the file becomes", n.name)
	}
	if r.mistakes > before {
		return
	}
	r.file.namespaces = append(r.file.namespaces, n)
}

// isLabel reports whether a name can be the first part of a host name.
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

// name reports whether an entity can have a name, as administration decides. That of a subscription is here without its
// topic.
func (r *reader) name(kind fsm.EntityKind, path, name string) bool {
	var err error
	switch {
	case name == "":
		err = errors.New("is missing")
	case kind == fsm.SubscriptionEntity:
		err = entity.CheckName(kind, fsm.SubscriptionPath("t", name))
	default:
		err = entity.CheckName(kind, name)
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), fsm.InvalidArgument.Error()+": ")
		if name != "" {
			text = fmt.Sprintf("%q: %s", truncate(name), text)
		}
		r.addError(path+".Name", "%s", text)
	}
	return err == nil
}

func (r *reader) queue(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.QueueEntity}
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)})
	if r.name(e.kind, path, e.name) {
		n.entities = append(n.entities, e)
	}
}

func (r *reader) topic(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.TopicEntity}
	n.entities = append(n.entities, e)
	first := len(n.entities)
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)},
		field{"Subscriptions", r.list(func(path string, raw json.RawMessage) { r.subscription(n, path, raw) })})
	if !r.name(e.kind, path, e.name) {
		n.entities = n.entities[:first-1]
		return
	}
	for _, s := range n.entities[first:] {
		s.name = fsm.SubscriptionPath(e.name, s.name)
	}
}

func (r *reader) subscription(n *namespace, path string, raw json.RawMessage) {
	e := &resource{path: path, kind: fsm.SubscriptionEntity}
	r.object(path, raw, field{"Name", r.text(&e.name)}, field{"Properties", r.properties(e)},
		field{"Rules", r.list(func(path string, raw json.RawMessage) { r.rule(e, path, raw) })})
	if r.name(e.kind, path, e.name) {
		n.entities = append(n.entities, e)
	}
}

// checkUniqueNames refuses names that are given twice, which would overwrite each other.
func (r *reader) checkUniqueNames() {
	spaces := make(map[string]string)
	r.file.namespaces = slices.DeleteFunc(r.file.namespaces, func(n namespace) bool { return !isUnique(r, spaces, n.path, n.name, "the namespace") })
	for i := range r.file.namespaces {
		n := &r.file.namespaces[i]
		names := make(map[string]string)
		n.entities = slices.DeleteFunc(n.entities, func(e *resource) bool { return !isUnique(r, names, e.path, e.name, "an entity") })
		for _, e := range n.entities {
			rules, at := make(map[string]string), -1
			e.rules = slices.DeleteFunc(e.rules, func(rule fsm.Rule) bool {
				at++
				return !isUnique(r, rules, fmt.Sprintf("%s.Rules[%d]", e.path, at), rule.Name, "the rule")
			})
		}
	}
}

func isUnique(r *reader, seen map[string]string, path, name, what string) bool {
	key := strings.ToLower(name)
	if other, twice := seen[key]; twice {
		r.addError(path+".Name", "%s %q is in the file already: %s", what, truncate(name), other)
		return false
	}
	seen[key] = path
	return true
}

// properties reads the settings that the kind of entity has.
func (r *reader) properties(e *resource) func(string, json.RawMessage) {
	e.settings.InElements = true
	var fields []field
	table := entity.Table()
	for i := range table {
		if s := &table[i]; s.Element != "" && s.Has(e.kind) {
			fields = append(fields, field{s.Element, func(path string, raw json.RawMessage) { r.setting(&e.settings, s, path, raw) }})
		}
	}
	hints := &e.settings.ReadBack
	fields = append(fields, field{"EnableBatchedOperations", r.bool(&hints.BatchedOperations)})
	if e.kind != fsm.SubscriptionEntity {
		fields = append(fields, field{"SupportOrdering", r.bool(&hints.SupportOrdering)}, field{"EnableExpress", r.bool(&hints.Express)})
	}
	return func(path string, raw json.RawMessage) { r.object(path, raw, fields...) }
}

// setting reads a setting within the limits of the broker, not of the emulator. A namespace may allow less.
func (r *reader) setting(given *entity.Settings, s *entity.Setting, path string, raw json.RawMessage) {
	wanted := *given
	err := s.ParseJSON(raw, &wanted)
	if err == nil {
		r.raiseWindow(&wanted, path)
		err = s.Check(&wanted, entity.MaxLimits())
	}
	if err != nil {
		r.addError(path, "%w", err)
		return
	}
	*given = wanted
}

// raiseWindow raises a window of duplicate detection that the emulator accepts to the shortest one of the broker: to
// remember message ids for longer changes nothing for a test.
func (r *reader) raiseWindow(given *entity.Settings, path string) {
	window := given.DuplicateDetectionHistoryTimeWindow
	if window != nil && *window >= entity.Duration(time.Second) && *window < entity.Duration(entity.DuplicateWindowMin) {
		r.warn(path, "%s is raised to %s, the shortest window", *window, entity.DuplicateWindowMin)
		*window = entity.Duration(entity.DuplicateWindowMin)
	}
}
