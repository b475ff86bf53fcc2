package sim

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cmd/broker"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/load"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

const (
	// clientsHost is the number of the host of all AMQP clients. Faults cut links between members only.
	clientsHost = 200
	// gatewayCloseMax is how long a gateway waits for its clients when its process is stopped in order.
	gatewayCloseMax = 5 * time.Second
)

// openGateway opens the AMQP gateway of a process, for clients on the simulated network.
func openGateway(host *simnet.Host, node *cluster.Node, name string, log *slog.Logger) (*amqp.Server, error) {
	config := amqp.DefaultConfig()
	var err error
	if config.Listener, err = host.Listen(load.GatewayPort); err != nil {
		return nil, err
	}
	config.Broker = broker.Broker{Router: node.Router()}
	config.Authorizer = anybody{}
	config.Logger = log.With("component", "amqp", "name", name)
	config.ContainerID = name
	config.BusyReason = node.BusyReason
	config.ConnectionsPerPeerMax = 0 // all clients have one address
	gateway, err := amqp.Open(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	return gateway, nil
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
