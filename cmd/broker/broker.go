package broker

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
)

// Broker implements amqp.Broker with a router.
type Broker struct{ *router.Router }

// Namespace returns the namespace that a host name selects.
func (b Broker) Namespace(ctx context.Context, host string) (fsm.NamespaceID, error) {
	return b.NamespaceByHost(ctx, host)
}

// Resolve returns the entity at a path of a namespace.
func (b Broker) Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	return b.In(namespace).Resolve(ctx, path)
}

// CreateEntity creates an entity for a link.
func (b Broker) CreateEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error) {
	entity, err := b.In(namespace).CreateEntity(ctx, kind, name, settings, rule, nil)
	return fsm.EntityRef{Entity: entity}, err
}

// DeleteEntity deletes an entity.
func (b Broker) DeleteEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string) error {
	return b.In(namespace).DeleteEntity(ctx, kind, name)
}

// FindSubscriptions returns the paths of the subscriptions whose names begin and end with given texts.
func (b Broker) FindSubscriptions(ctx context.Context, namespace fsm.NamespaceID, prefix, suffix string) ([]string, error) {
	return b.In(namespace).FindSubscriptions(ctx, prefix, suffix)
}

// Receiver opens a receiver. The receivers of both packages have the same methods.
func (b Broker) Receiver(at fsm.EntityRef, receiveAndDelete bool) amqp.Receiver {
	return b.Router.Receiver(at, receiveAndDelete)
}

// AcceptSession accepts a session and passes it to done as the type of the gateway.
func (b Broker) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, amqp.Session)) (cancel func()) {
	return b.Router.AcceptSession(at, wants, receiveAndDelete, wait, func(code fsm.Code, s *router.SessionReceiver) {
		if s == nil {
			done(code, nil)
			return
		}
		done(code, s)
	})
}

// Sessions lists the names of sessions.
func (b Broker) Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, most int) ([]string, error) {
	list, err := b.Router.Sessions(ctx, at, updatedAfter, skip, most)
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].ID
	}
	return names, err
}
