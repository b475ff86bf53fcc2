package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/amqp/consumers"
	"github.com/peeklock/peeklock/amqp/counts"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/amqp/work"
	"github.com/peeklock/peeklock/fsm"
)

// Stats are the statistics of the gateway, see [counts.Stats].
type Stats = counts.Stats

// Throttled counts the requests for an entity that were refused with server-busy, see [counts.Throttled].
type Throttled = counts.Throttled

// Server is the gateway: it speaks AMQP 1.0 with every client that connects. All methods may be called from
// any goroutine.
type Server struct {
	config              Config
	stop                context.CancelFunc // ends the waits of every connection
	group               sync.WaitGroup     // the accept loop, the entityWatcher and the connections
	totals              *counts.Totals
	budget              *budget.Budget
	work                *work.Limiter
	unauthenticatedWork *work.Limiter      // of unauthenticated connections
	scanWork            *work.Limiter      // of links with selectors
	accounts            *account.Accounts  // of owners, over AMQP and HTTP
	refusalLog          refusal.LogLimiter // limits the log lines of connections about refusals
	missingRightLog     refusal.LogLimiter // limits their lines in the audit log
	consumers           consumers.Set      // of subscriptions with names

	limiter *connlimit.Limiter // protects authenticated connections

	mu         sync.Mutex
	closed     bool
	conns      map[*conn]struct{}
	lastNumber uint64 // of connections; begins with the time of Open in microseconds, so that a restarted member repeats none
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
		config: config, stop: stop, totals: new(counts.Totals), budget: budget.New(config.MemoryBytesMax),
		accounts:            account.New(account.For(config.MemoryBytesMax)),
		work:                work.NewLimiter(workMax, workMax/workBurstsPerSecond),
		unauthenticatedWork: work.NewLimiter(unauthenticatedMax, unauthenticatedMax/workBurstsPerSecond),
		scanWork:            work.NewLimiter(scanMax, scanMax/workBurstsPerSecond),
	}
	s.limiter, s.conns = connlimit.New(config.ConnectionsMax, config.ConnectionsPerPeerMax), make(map[*conn]struct{})
	s.lastNumber = uint64(time.Now().UnixMicro())
	watcher := entityWatcher{config.Broker, s.connections}
	s.group.Go(func() { watcher.watch(ctx) })
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

// connections returns the connections.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// Accounts returns the accounts of owners, which the HTTP interfaces of the member share.
func (s *Server) Accounts() *account.Accounts { return s.accounts }

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

// Stats returns the statistics. It does not wait for connections.
func (s *Server) Stats() Stats {
	f := s.totals.Stats()
	f.Connections, f.Memory = s.Connections(), s.budget.Stats()
	return f
}

// Throttled returns the throttled requests by entity, in any order.
func (s *Server) Throttled() []Throttled { return s.totals.Throttled.List() }

// CountThrottled counts a request for an entity that another gateway of this member refused with server-busy.
func (s *Server) CountThrottled(e *fsm.Entity) { s.totals.Throttled.Add(e, 1, time.Now()) }

// admit registers a connection, or closes it if there are too many. If the member is full, an unauthenticated
// connection is closed instead: honest clients put a token early.
func (s *Server) admit(ctx context.Context, peer net.Conn) (*conn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = peer.Close()
		return nil, false
	}
	var c *conn
	counted, err := s.limiter.Add(peer.RemoteAddr(), func() { s.evict(c) })
	if err != nil {
		s.reject(ctx, peer, err)
		return nil, false
	}
	s.totals.Accepted.Add(1)
	c = newConn(&s.config, peer)
	s.lastNumber++
	c.number = s.lastNumber
	c.totals, c.refusalLog, c.consumers = s.totals, &s.refusalLog, &s.consumers
	c.credentials.LimitMissing(&s.missingRightLog)
	c.unauthenticatedWork = s.unauthenticatedWork.Open(work.Owner{Source: c.origin}, unauthenticatedWorkPerSecond, unauthenticatedWorkBurst)
	c.openWork = func(key string) {
		owner := work.Owner{Source: c.origin, Namespace: uint32(c.credentials.Namespace()), Key: key}
		c.account = s.accounts.Open(account.Owner{Namespace: owner.Namespace, Key: key})
		c.work = s.work.Open(owner, workPerSecond, workBurst)
		c.scanWork.Open(s.scanWork.Open(owner, scanWorkPerSecond, scanWorkBurst))
	}
	c.memory.account = s.budget.Open(c.memoryChanged)
	c.onAuthenticated, c.release = counted.Protect, func() { s.release(c, counted) } //nolint:contextcheck // the connection outlives the call
	s.conns[c] = struct{}{}
	s.group.Add(1)
	return c, true
}

// evict closes a connection for another one. It is not counted any longer, although its goroutines have yet to
// end. mu is held, by admit for the other one.
func (s *Server) evict(c *conn) {
	delete(s.conns, c)
	s.group.Go(c.abort) // it locks the connection, and closing a WebSocket may take a moment
}

// reject closes a connection that exceeds a limit.
func (s *Server) reject(ctx context.Context, peer net.Conn, cause error) {
	most := s.config.ConnectionsMax
	if errors.Is(cause, connlimit.ErrPerSource) {
		most = s.config.ConnectionsPerPeerMax
	}
	s.totals.Rejected.Add(1)
	s.rejections.add(ctx, s.config.Logger, peer.RemoteAddr(), cause, most)
	s.group.Go(func() { _ = peer.Close() }) // closing a WebSocket may take a moment, and mu is held
}

// release removes a connection that has ended.
func (s *Server) release(c *conn, counted *connlimit.Conn) {
	counted.Remove()
	c.mu.Lock()
	c.openWork = nil // the answer to a token may still be under way
	if unpaid := c.costs.bytes / responseUnitBytes; unpaid > 0 && c.account != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.work.Wait(ctx, nil, unpaid) // it does not wait: the next connection of the owner begins with less
	}
	c.work.Close()
	c.unauthenticatedWork.Close()
	c.account.Close() // what it holds is released with the last answer of the broker
	c.mu.Unlock()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.group.Done()
}
