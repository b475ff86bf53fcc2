package emulator

import (
	_ "embed"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// FileName is the name of the file in a folder that is given instead of it.
const FileName = "Config.json"

// Limits of a file. It is written by hand, and its size bounds everything in it.
const (
	warningsMax           = 100 // further ones are only counted
	errorsMax             = 10  // reported at once
	namespaceNameBytesMax = 50
)

// File is a Config.json that was read, and checked as far as possible without a cluster. Immutable.
type File struct {
	// Warnings list what was ignored or changed, each with its path.
	Warnings []string

	namespaces []namespace
}

// namespace is one of the namespaces of a file. The first becomes the default one of the cluster, whatever its name is.
type namespace struct {
	path, name string
	entities   []*resource // topics before their subscriptions
}

// resource is a queue, topic or subscription.
type resource struct {
	path     string // in the file: Namespaces[0].Queues[2]
	kind     fsm.EntityKind
	name     string          // of a subscription: its path
	settings entity.Settings // that the file gives
	rules    []fsm.Rule      // of a subscription; none: it has the default rule
}

// Namespaces returns the names in the order of the file. The first one is the default namespace of the cluster, whatever
// its name is.
func (f *File) Namespaces() []string {
	names := make([]string, len(f.namespaces))
	for i := range names {
		names[i] = f.namespaces[i].name
	}
	return names
}

// Entity is a queue, topic or subscription that a file lists.
type Entity struct {
	Kind     fsm.EntityKind
	Name     string          // of a subscription: its path
	Settings entity.Settings // that the file gives
	Rules    []fsm.Rule      // of a subscription; none: it has the default rule
}

// Entities returns what the file lists for the namespace with an index of Namespaces: topics before their subscriptions.
func (f *File) Entities(namespace int) []Entity {
	list := make([]Entity, len(f.namespaces[namespace].entities))
	for i, e := range f.namespaces[namespace].entities {
		list[i] = Entity{e.kind, e.name, e.settings, e.rules}
	}
	return list
}
