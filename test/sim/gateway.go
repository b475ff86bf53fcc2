package sim

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

const (
	amqpPort = 5672
	// clientsHost is the number of the host of all AMQP clients. Faults cut links between members only.
	clientsHost = 200
	// gatewayCloseMax is how long a gateway waits for its clients when its process is stopped in order.
	gatewayCloseMax = 5 * time.Second
)

// openGateway opens the AMQP gateway of a process, for clients on the simulated network.
func openGateway(host *simnet.Host, node *cluster.Node, name string, log *slog.Logger) (*amqp.Server, error) {
	config := amqp.DefaultConfig()
	var err error
	if config.Listener, err = host.Listen(amqpPort); err != nil {
		return nil, err
	}
	config.Broker = broker{node.Router()}
	config.Authorizer = anybody{}
	config.Logger = log.With("component", "amqp", "name", name)
	config.ContainerID = name
	config.BusyReason = node.BusyReason
	config.FormatLevel = node.FormatLevel
	config.ConnectionsPerPeerMax = 0 // all clients have one address
	gateway, err := amqp.Open(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	return gateway, nil
}

// broker adapts the router to the gateway, as the program does.
type broker struct{ *router.Router }

// Namespace implements amqp.Broker.
func (b broker) Namespace(host string) fsm.NamespaceID { return b.NamespaceByHost(host) }

// Resolve implements amqp.Broker.
func (b broker) Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	return b.In(namespace).Resolve(ctx, path)
}

// CreateEntity implements amqp.Broker.
func (b broker) CreateEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error) {
	entity, err := b.In(namespace).CreateEntity(ctx, kind, name, settings, rule, nil)
	return fsm.EntityRef{Entity: entity}, err
}

// DeleteEntity implements amqp.Broker.
func (b broker) DeleteEntity(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, name string) error {
	return b.In(namespace).DeleteEntity(ctx, kind, name)
}

// FindSubscriptions implements amqp.Broker.
func (b broker) FindSubscriptions(ctx context.Context, namespace fsm.NamespaceID, prefix, suffix string) ([]string, error) {
	return b.In(namespace).FindSubscriptions(ctx, prefix, suffix)
}

// Receiver implements amqp.Broker.
func (b broker) Receiver(at fsm.EntityRef, receiveAndDelete bool) amqp.Receiver {
	return b.Router.Receiver(at, receiveAndDelete)
}

// AcceptSession implements amqp.Broker.
func (b broker) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, amqp.Session)) (cancel func()) {
	return b.Router.AcceptSession(at, wants, receiveAndDelete, wait, func(code fsm.Code, s *router.SessionReceiver) {
		if s == nil {
			done(code, nil)
			return
		}
		done(code, s)
	})
}

// Sessions implements amqp.Broker.
func (b broker) Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, most int) ([]string, error) {
	list, err := b.Router.Sessions(ctx, at, updatedAfter, skip, most)
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].ID
	}
	return names, err
}

// anybody implements amqp.Authorizer: everybody may do everything.
type anybody struct{}

func (anybody) grant() (amqp.Grant, error) {
	return amqp.Grant{Rights: fsm.Manage | fsm.Send | fsm.Listen, Namespace: fsm.DefaultNamespace}, nil
}

// Token implements amqp.Authorizer.
func (a anybody) Token(context.Context, amqp.Client, string, string, string) (amqp.Grant, error) {
	return a.grant()
}

// Password implements amqp.Authorizer.
func (a anybody) Password(context.Context, amqp.Client, string, string) (amqp.Grant, error) {
	return a.grant()
}

// Certificate implements amqp.Authorizer.
func (a anybody) Certificate(context.Context, amqp.Client, *x509.Certificate) (amqp.Grant, error) {
	return a.grant()
}

// reread is Config.Reread: the payload is an AMQP message that the gateway stored, or the whole message.
func reread(payload, patches []byte) (fsm.Message, error) {
	if m, err := message.Reread(payload, patches); err == nil {
		return m, nil
	}
	return fsm.Message{ID: idOf(payload), Payload: payload}, nil
}
