package emulator

import (
	"errors"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Check returns an error, with paths, for what an empty cluster would refuse although each value is valid: settings that
// exclude each other, and destinations that the file does not list. In a cluster with entities, destinations may be those.
func (f *File) Check() error {
	var r reader
	for i := range f.namespaces {
		n := &f.namespaces[i]
		kinds := make(map[string]fsm.EntityKind)
		for _, e := range n.entities {
			kinds[strings.ToLower(e.name)] = e.kind
		}
		for _, e := range n.entities {
			r.checkSettings(e)
			r.checkDestination(kinds, e, "ForwardTo", e.settings.ForwardTo)
			r.checkDestination(kinds, e, "ForwardDeadLetteredMessagesTo", e.settings.ForwardDeadLetteredMessagesTo)
		}
	}
	return errors.Join(r.errors...)
}

// checkSettings refuses settings that exclude each other.
func (r *reader) checkSettings(e *resource) {
	table, limits := entity.Table(), entity.LimitsOf(fsm.NamespaceSettings{})
	for i := range table {
		if err := table[i].Check(&e.settings, limits); err != nil {
			r.addError(e.path+".Properties."+table[i].Element, "%w", err)
			return
		}
	}
	settings := entity.DefaultSettings(e.kind)
	e.settings.StoreIn(&settings)
	switch {
	case settings.RequiresSession && settings.ForwardTo != "":
		r.addError(e.path+".Properties.ForwardTo", "an entity that requires sessions cannot forward its messages")
	case !settings.ValidFor(e.kind):
		r.addError(e.path+".Properties", "the settings exclude each other")
	}
}

func (r *reader) checkDestination(kinds map[string]fsm.EntityKind, e *resource, name string, to *string) {
	if to == nil || *to == "" {
		return
	}
	path := e.path + ".Properties." + name
	switch kind, found := kinds[strings.ToLower(*to)]; {
	case !found:
		r.addError(path, "%q is not a queue or topic of the file", truncate(*to))
	case kind == fsm.SubscriptionEntity:
		r.addError(path, "messages can be forwarded to a queue or topic, and %q is a subscription", truncate(*to))
	}
}
