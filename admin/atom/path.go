package atom

import (
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Words of paths, in any case.
const (
	namespaceWord = "$namespaceinfo"
	ResourcesWord = "$Resources"
	RulesWord     = "Rules"
)

// Resource is the kind of thing that a path names.
type Resource uint8

// The resources.
const (
	NamespaceResource Resource = iota + 1 // /$namespaceinfo
	ListResource                          // /$Resources/Queues, /{topic}/Subscriptions
	EntityResource                        // /{queue or topic}, /{topic}/Subscriptions/{name}
	RulesResource                         // /{topic}/Subscriptions/{name}/Rules
	RuleResource                          // /{topic}/Subscriptions/{name}/Rules/{rule}
)

// Target is what a path names.
type Target struct {
	Resource Resource
	Kind     fsm.EntityKind // of a list
	Name     string         // the entity; of a list of subscriptions their topic
	Rule     string
}

// Kinds returns the kinds of entities that can have the name.
func (t Target) Kinds() []fsm.EntityKind {
	if _, _, ok := fsm.SplitSubscriptionPath(t.Name); ok {
		return []fsm.EntityKind{fsm.SubscriptionEntity}
	}
	return []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity}
}

// ParsePath parses a decoded path. Names of topics and rules may contain slashes, those of subscriptions not. The path
// of a list, an entity or a rule may end with a slash. Callers check the names, whose kind they know. Errors wrap fsm.EntityNotFound or
// fsm.InvalidArgument.
func ParsePath(p string) (Target, error) {
	nothing := fmt.Errorf("%w: nothing is at %.400s", fsm.EntityNotFound, p)
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	word := func(i int, w string) bool { return i < len(parts) && strings.EqualFold(parts[i], w) }
	ends := func(i int) bool { return len(parts) == i || len(parts) == i+1 && parts[i] == "" }
	switch {
	case word(0, namespaceWord) && ends(1):
		return Target{Resource: NamespaceResource}, nil
	case word(0, ResourcesWord) && word(1, "Queues") && ends(2):
		return Target{Resource: ListResource, Kind: fsm.QueueEntity}, nil
	case word(0, ResourcesWord) && word(1, "Topics") && ends(2):
		return Target{Resource: ListResource, Kind: fsm.TopicEntity}, nil
	case ends(0) || strings.HasPrefix(parts[0], "$"):
		return Target{}, nothing
	}
	i := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, entity.SubscriptionsWord) })
	if i < 0 {
		name := strings.TrimSuffix(strings.Join(parts, "/"), "/")
		return Target{Resource: EntityResource, Name: name}, entity.CheckPathName(name)
	}
	topic := strings.Join(parts[:i], "/")
	if ends(i + 1) {
		return Target{Resource: ListResource, Kind: fsm.SubscriptionEntity, Name: topic}, entity.CheckPathName(topic)
	}
	t := Target{Resource: EntityResource, Name: fsm.SubscriptionPath(topic, parts[i+1])}
	switch {
	case ends(i + 2):
	case !word(i+2, RulesWord):
		return Target{}, nothing
	case ends(i + 3):
		t.Resource = RulesResource
	default:
		t.Resource, t.Rule = RuleResource, strings.TrimSuffix(strings.Join(parts[i+3:], "/"), "/")
	}
	return t, entity.CheckPathName(t.Name)
}
