package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// The words of paths; they are matched in any case.
const (
	namespaceWord = "$namespaceinfo"
	resourcesWord = "$Resources"
	rulesWord     = "Rules"
)

// atomResource says what a path leads to.
type atomResource uint8

const (
	atomNamespace atomResource = iota + 1 // /$namespaceinfo
	atomList                              // /$Resources/Queues, /{topic}/Subscriptions
	atomEntity                            // /{queue or topic}, /{topic}/Subscriptions/{name}
	atomRules                             // /{topic}/Subscriptions/{name}/Rules
	atomRule                              // /{topic}/Subscriptions/{name}/Rules/{rule}
)

// atomTarget is what a path leads to.
type atomTarget struct {
	resource atomResource
	kind     fsm.EntityKind // of a list
	name     string         // the entity; of a list of subscriptions their topic
	rule     string
}

// kinds are those that the name of an entity can have.
func (t atomTarget) kinds() []fsm.EntityKind {
	if _, _, ok := fsm.SplitSubscriptionPath(t.name); ok {
		return []fsm.EntityKind{fsm.SubscriptionEntity}
	}
	return []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity}
}

// parseATOMPath takes a decoded path apart. Names of topics hold slashes, and so may those
// of rules; that of a subscription does not. Lists are asked for with and without a slash at
// the end. Names are checked later, by who knows their kind.
func parseATOMPath(p string) (atomTarget, error) {
	nothing := fmt.Errorf("%w: nothing is at %.400s", fsm.EntityNotFound, p)
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	word := func(i int, w string) bool { return i < len(parts) && strings.EqualFold(parts[i], w) }
	ends := func(i int) bool { return len(parts) == i || len(parts) == i+1 && parts[i] == "" }
	switch {
	case word(0, namespaceWord) && ends(1):
		return atomTarget{resource: atomNamespace}, nil
	case word(0, resourcesWord) && word(1, "Queues") && ends(2):
		return atomTarget{resource: atomList, kind: fsm.QueueEntity}, nil
	case word(0, resourcesWord) && word(1, "Topics") && ends(2):
		return atomTarget{resource: atomList, kind: fsm.TopicEntity}, nil
	case ends(0) || strings.HasPrefix(parts[0], "$"):
		return atomTarget{}, nothing
	}
	i := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, entity.SubscriptionsWord) })
	if i < 0 {
		name := strings.TrimSuffix(strings.Join(parts, "/"), "/")
		return atomTarget{resource: atomEntity, name: name}, entity.CheckPathName(name)
	}
	topic := strings.Join(parts[:i], "/")
	if ends(i + 1) {
		return atomTarget{resource: atomList, kind: fsm.SubscriptionEntity, name: topic}, entity.CheckPathName(topic)
	}
	t := atomTarget{resource: atomEntity, name: fsm.SubscriptionPath(topic, parts[i+1])}
	switch {
	case ends(i + 2):
	case !word(i+2, rulesWord):
		return atomTarget{}, nothing
	case ends(i + 3):
		t.resource = atomRules
	default:
		t.resource, t.rule = atomRule, strings.Join(parts[i+3:], "/")
	}
	return t, entity.CheckPathName(t.name)
}
