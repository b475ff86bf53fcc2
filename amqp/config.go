package amqp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/fsm"
)

// Config configures a Server. Start from DefaultConfig.
type Config struct {
	// Listener accepts the clients; the Server closes it. It is responsible for TLS. Nil if all connections
	// are passed to Serve.
	Listener   net.Listener
	Broker     Broker
	Authorizer Authorizer
	Logger     *slog.Logger
	// Audit records security events: logins, missing rights,
	// revoked keys (see audit). Never secrets.
	Audit *slog.Logger

	// Tracer creates spans for messages whose sender was sampled. Nil: no messages are traced or searched for
	// a context. Its sampler must follow the parent.
	Tracer trace.Tracer
	// Slow logs the requests to $management and $cbs that took SlowAfter or longer; nil or 0: none. The times
	// of sends and settlements are measured behind the Broker.
	Slow      *slog.Logger
	SlowAfter time.Duration

	ContainerID string // container-id of open (part 2, 2.7.1): the name of this member
	Version     string // shown to clients in the properties of open

	ConnectionsMax        int // limit of concurrent connections; new ones above it are closed at once
	ConnectionsPerPeerMax int // limit of those from one IP address, or one /64 of IPv6; 0: no limit
	InFlightBytesMax      int // bytes received on a connection and not yet stored
	// MemoryBytesMax limits the memory of all connections together: messages that are not stored, settled or
	// sent yet. It is shared fairly by namespace and key; see package budget. At least budget.BytesMin.
	MemoryBytesMax int64
	// Processors is the number of processors that the process may use. The work that clients request per second
	// is limited in proportion (package work). At least 1.
	Processors int
	// BusyReason returns the reason why this member accepts no new messages at the moment, with advice, in
	// whole sentences; "" if it accepts them. nil: it always accepts them. Clients get the reason with
	// server-busy. BusyReason must be cheap.
	BusyReason func() string
	// QuotaReason returns the reason why no more is stored for a namespace, as BusyReason does; "" if it is not known. Clients
	// get it with amqp:resource-limit-exceeded. nil: it is never known.
	QuotaReason func(namespace fsm.NamespaceID) string
}

// DefaultConfig returns a Config with every limit set. The caller adds Broker, Authorizer and usually
// Listener.
func DefaultConfig() Config {
	return Config{
		Logger:                slog.New(slog.DiscardHandler),
		Audit:                 slog.New(slog.DiscardHandler),
		ContainerID:           "peeklock",
		Version:               "dev",
		ConnectionsMax:        connectionsMaxDefault,
		ConnectionsPerPeerMax: connectionsPerPeerMaxDefault,
		InFlightBytesMax:      inFlightBytesDefault,
		MemoryBytesMax:        memoryBytesDefault,
		Processors:            runtime.GOMAXPROCS(0),
	}
}

// Validate reports fields that are missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Broker == nil:
		return errors.New("gateway has no broker")
	case c.Authorizer == nil:
		return errors.New("gateway has no authorizer")
	case c.Logger == nil:
		return errors.New("gateway has no logger")
	case c.Audit == nil:
		return errors.New("gateway has no audit log")
	case c.ContainerID == "":
		return errors.New("gateway has no container id")
	case c.ConnectionsMax < 1:
		return fmt.Errorf("connections max %d is below 1", c.ConnectionsMax)
	case c.ConnectionsPerPeerMax < 0:
		return fmt.Errorf("connections per peer max %d is below 0", c.ConnectionsPerPeerMax)
	case c.InFlightBytesMax < 1<<20:
		return fmt.Errorf("in-flight bytes max %d is below 1 MiB", c.InFlightBytesMax)
	case c.MemoryBytesMax < budget.BytesMin:
		return fmt.Errorf("memory bytes max %d is below %d", c.MemoryBytesMax, budget.BytesMin)
	case c.Processors < 1:
		return fmt.Errorf("processors %d is below 1", c.Processors)
	}
	return nil
}
