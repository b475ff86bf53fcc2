package entities

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// The limits that error texts state, as in fsm.
const (
	subscriptionsMax = 2000    // of a topic
	entitiesMax      = 100_000 // of a cluster
)

// subscriptionsSegment is the part of a path that marks the path of a subscription.
const subscriptionsSegment = "subscriptions"

// checkNew refuses an invalid new entity, except for errors that only the catalog can detect.
func checkNew(kind fsm.EntityKind, name string, rule *fsm.Rule) error {
	_, _, isPath := fsm.SplitSubscriptionPath(name)
	switch {
	case kind > fsm.SubscriptionEntity:
		return fmt.Errorf("%w: the kinds of entities are queues, topics and subscriptions", fsm.InvalidArgument)
	case kind == fsm.SubscriptionEntity && !isPath:
		return fmt.Errorf("%w: a subscription is named %s", fsm.InvalidArgument, fsm.SubscriptionPath("topic", "subscription"))
	case kind != fsm.SubscriptionEntity && hasSubscriptionsSegment(name):
		return fmt.Errorf("%w: no part of the name of a %s may be %q, which is reserved for the paths of subscriptions",
			fsm.InvalidArgument, kind, "subscriptions")
	case kind != fsm.SubscriptionEntity && rule != nil:
		return fmt.Errorf("%w: only a subscription has rules", fsm.InvalidArgument)
	case rule == nil:
		return nil
	}
	if err := rule.Validate(); err != nil {
		return fmt.Errorf("rule %q: %w", rule.Name, err)
	}
	return nil
}

func hasSubscriptionsSegment(name string) bool {
	for segment := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(segment, subscriptionsSegment) {
			return true
		}
	}
	return false
}

// checkSettings refuses settings for an entity of that kind and name: those that the state machines
// would refuse without a reason, and destinations of forwarding that do not exist. A destination may
// be deleted later: messages then go to the dead-letter queue of this entity, and other settings can
// still be changed, because only destinations that the old settings do not name are looked up.
func (r NamespaceView) checkSettings(ctx context.Context, kind fsm.EntityKind, name string, settings, old fsm.EntitySettings) error {
	switch {
	case kind == fsm.TopicEntity && (settings.ForwardTo != "" || settings.ForwardDeadLettersTo != ""):
		return fmt.Errorf("%w: a topic cannot forward: its subscriptions can", fsm.InvalidArgument)
	case kind == fsm.TopicEntity && settings.RequiresSession:
		return fmt.Errorf("%w: a topic has no sessions: its subscriptions can", fsm.InvalidArgument)
	case kind == fsm.SubscriptionEntity && settings.EnablePartitioning:
		return fmt.Errorf("%w: a subscription inherits partitioning from its topic", fsm.InvalidArgument)
	case settings.RequiresSession && settings.ForwardTo != "":
		return fmt.Errorf("%w: an entity that requires sessions cannot forward its messages", fsm.InvalidArgument)
	}
	for _, to := range []struct{ what, name, old string }{
		{"messages", settings.ForwardTo, old.ForwardTo},
		{"dead letters", settings.ForwardDeadLettersTo, old.ForwardDeadLettersTo},
	} {
		if to.name == to.old {
			continue
		}
		if err := r.checkDestination(ctx, kind, name, to.what, to.name); err != nil {
			return err
		}
	}
	return nil
}

// checkDestination refuses a destination that is not a queue or topic. The queue itself is one, as in the service: the
// limit of hops ends the cycle. A queue that is being created does not exist yet.
func (r NamespaceView) checkDestination(ctx context.Context, kind fsm.EntityKind, from, what, to string) error {
	if to == "" || kind == fsm.QueueEntity && strings.EqualFold(from, to) {
		return nil
	}
	entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: to})
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return fmt.Errorf("%w: %s are to be forwarded to %q, which is not an existing queue or topic", fsm.InvalidArgument, what, to)
	case err != nil:
		return fmt.Errorf("look up %q: %w", to, err)
	case entity.Kind == fsm.SubscriptionEntity:
		return fmt.Errorf("%w: %s can be forwarded to a queue or topic, and %q is a subscription", fsm.InvalidArgument, what, entity.Name)
	}
	return nil
}

// checkUpdate refuses changes of settings that are fixed at creation.
func checkUpdate(kind fsm.EntityKind, old, settings fsm.EntitySettings) error {
	var what string
	switch {
	case settings.RequiresDuplicateDetection != old.RequiresDuplicateDetection:
		what = "requiresDuplicateDetection"
	case settings.RequiresSession != old.RequiresSession:
		what = "requiresSession"
	case settings.EnablePartitioning != old.EnablePartitioning:
		what = "enablePartitioning"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s cannot be changed after a %s was created", fsm.InvalidArgument, what, kind)
}

// explainCreate adds the likely reason to an error of the catalog.
func explainCreate(namespace *fsm.Namespace, kind fsm.EntityKind, err error) error {
	switch {
	case errors.Is(err, fsm.EntityExists) && kind != fsm.SubscriptionEntity:
		return fmt.Errorf("%w: names of queues and topics must be unique, ignoring case", err)
	case errors.Is(err, fsm.EntityNotFound) && kind == fsm.SubscriptionEntity:
		return fmt.Errorf("%w: the topic has just been deleted", err)
	case errors.Is(err, fsm.EntityNotFound):
		return fmt.Errorf("%w: the namespace %q has just been deleted", err, namespace.Name)
	case errors.Is(err, fsm.QuotaExceeded) && kind == fsm.SubscriptionEntity:
		return fmt.Errorf("%w: a topic has at most %d subscriptions, a cluster %d entities", err, subscriptionsMax, entitiesMax)
	case errors.Is(err, fsm.QuotaExceeded) && namespace.Settings.EntitiesMax != 0:
		return fmt.Errorf("%w: the namespace %q has at most %d queues and topics, a cluster %d entities",
			err, namespace.Name, namespace.Settings.EntitiesMax, entitiesMax)
	case errors.Is(err, fsm.QuotaExceeded):
		return fmt.Errorf("%w: a cluster has at most %d entities", err, entitiesMax)
	}
	return err
}
