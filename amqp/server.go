package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/amqp/work"
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

// Server is the gateway: it speaks AMQP 1.0 with every client that connects. All methods may be called from
// any goroutine.
type Server struct {
	config              Config
	stop                context.CancelFunc // ends the waits of every connection
	group               sync.WaitGroup     // the accept loop and the connections
	totals              *totals
	budget              *budget.Budget
	work                *work.Limiter
	unauthenticatedWork *work.Limiter // of unauthenticated connections
	scanWork            *work.Limiter // of links with selectors
	refusalLog          logLimiter    // limits the log lines of connections about refusals
	missingRightLog     logLimiter    // limits their lines in the audit log
	consumers           consumers     // of subscriptions with names

	limiter *connlimit.Limiter // protects authenticated connections

	mu         sync.Mutex
	closed     bool
	conns      map[*conn]struct{}
	rejections rejections
}

// Open starts a Server. The Server uses ctx only for its values, and runs until Close.
func Open(ctx context.Context, config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	workMax := workPerSecondPerProcessor * config.Processors
	unauthenticatedMax := unauthenticatedWorkPerSecondPerProcessor * config.Processors
	scanMax := scanWorkPerSecondPerProcessor * config.Processors
	s := &Server{
		config: config, stop: stop, totals: new(totals), budget: budget.New(config.MemoryBytesMax),
		work:                work.NewLimiter(workMax, workMax/workBurstsPerSecond),
		unauthenticatedWork: work.NewLimiter(unauthenticatedMax, unauthenticatedMax/workBurstsPerSecond),
		scanWork:            work.NewLimiter(scanMax, scanMax/workBurstsPerSecond),
	}
	s.limiter, s.conns = connlimit.New(config.ConnectionsMax, config.ConnectionsPerPeerMax), make(map[*conn]struct{})
	if config.Listener != nil {
		s.group.Go(func() { s.accept(ctx) })
	}
	return s, nil
}

// accept accepts connections until the listener is closed.
func (s *Server) accept(ctx context.Context) {
	for pause := time.Duration(0); ; {
		peer, err := s.config.Listener.Accept()
		if err == nil {
			pause = 0
			s.start(ctx, peer)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// For example, no file descriptors are left: that ends without intervention, but not sooner if accept
		// retries at once.
		pause = min(time.Second, max(10*time.Millisecond, 2*pause))
		s.config.Logger.WarnContext(ctx, "failed to accept connection", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// start serves peer on its own goroutine.
func (s *Server) start(ctx context.Context, peer net.Conn) {
	c, ok := s.admit(ctx, peer)
	if !ok {
		return
	}
	go c.serve(ctx)
}

// Serve serves one client over an open connection until the connection ends, and closes it. It is for
// connections that the Listener does not accept, such as net.Pipe. When ctx ends, waits for the broker end;
// only Close closes the connection.
func (s *Server) Serve(ctx context.Context, peer net.Conn) {
	c, ok := s.admit(ctx, peer)
	if !ok {
		return
	}
	c.serve(ctx)
}

// Connections returns how many clients are connected.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close closes every connection with amqp:connection:forced, on which all SDKs connect again, waits until the
// clients have disconnected, and disconnects the others when ctx ends. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	if s.config.Listener != nil {
		_ = s.config.Listener.Close()
	}
	for _, c := range conns {
		c.fail(ctx, &wire.Error{Condition: wire.ConditionConnectionForced, Description: "The member is shutting down."})
	}
	s.stop()
	gone := make(chan struct{})
	go func() { s.group.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	for _, c := range conns {
		_ = c.peer.Close()
	}
	<-gone
	return fmt.Errorf("close gateway: %w", ctx.Err())
}
