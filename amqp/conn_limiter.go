package amqp

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/peeklock/peeklock/amqp/origin"
)

// connLimiter tracks the open connections. The mutex of the Server guards all of it.
type connLimiter struct {
	conns                    map[*conn]*trackedConn
	perOrigin                map[netip.Addr]int // number of connections by address
	unauthenticated          *list.List         // of *conn, oldest first
	unauthenticatedPerOrigin map[netip.Addr]int // number of unauthenticated connections by address
	rejected                 int                // since rejectionLogged
	rejectionLogged          time.Time          // when rejections were last logged
}

// trackedConn is an open connection.
type trackedConn struct {
	origin          netip.Addr    // the zero Addr if the connection does not come from an IP address
	unauthenticated *list.Element // nil after it was authenticated or closed
}

func newConnLimiter() connLimiter {
	return connLimiter{conns: make(map[*conn]*trackedConn), perOrigin: make(map[netip.Addr]int), unauthenticated: list.New(), unauthenticatedPerOrigin: make(map[netip.Addr]int)}
}

// admit registers a connection, or closes it if there are too many. If the member is full, it closes an
// unauthenticated connection instead: the oldest of the address that has the most. Honest clients put a token
// early, and a client that opens thousands of connections loses its own.
func (s *Server) admit(ctx context.Context, peer net.Conn) (*conn, bool) {
	from := origin.Of(peer.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.config.ConnectionsPerPeerMax
	switch {
	case s.closed:
		_ = peer.Close()
		return nil, false
	case from.IsValid() && most > 0 && s.perOrigin[from] >= most:
		s.reject(ctx, peer, "too many connections from one address", most)
		return nil, false
	case len(s.conns) >= s.config.ConnectionsMax && !s.closeOldestUnauthenticated():
		s.reject(ctx, peer, "too many connections", s.config.ConnectionsMax)
		return nil, false
	}
	s.totals.accepted.Add(1)
	c := newConn(&s.config, peer)
	c.totals, c.refusalLog, c.missingRightLog = s.totals, &s.refusalLog, &s.missingRightLog
	c.memory.account = s.budget.Open(c.memoryChanged)
	c.onAuthenticated, c.release = func() { s.markAuthenticated(c) }, func() { s.release(c) }
	s.conns[c] = &trackedConn{origin: from, unauthenticated: s.unauthenticated.PushBack(c)}
	s.unauthenticatedPerOrigin[from]++
	s.perOrigin[from]++
	s.group.Add(1)
	return c, true
}

// reject closes a connection that exceeds a limit. It logs at most once per rejectLogEvery, so that a flood of
// connections does not become a flood of log lines.
func (s *Server) reject(ctx context.Context, peer net.Conn, cause string, most int) {
	s.rejected++
	s.totals.rejected.Add(1)
	if now := time.Now(); now.Sub(s.rejectionLogged) >= rejectLogEvery {
		s.config.Logger.WarnContext(ctx, "connections refused", "reason", cause, "peer", peer.RemoteAddr(), "max", most, "count", s.rejected)
		s.rejectionLogged, s.rejected = now, 0
	}
	s.group.Go(func() { _ = peer.Close() }) // Close may take a moment (WebSocket), and mu is held
}

// closeOldestUnauthenticated makes space for one connection: it closes the oldest unauthenticated connection
// of the address that has the most of them; false if there is none. The connection is not counted any longer,
// although its goroutines have yet to end.
func (s *Server) closeOldestUnauthenticated() bool {
	most := 0
	for _, n := range s.unauthenticatedPerOrigin {
		most = max(most, n)
	}
	for e := s.unauthenticated.Front(); e != nil; e = e.Next() {
		c := e.Value.(*conn) //nolint:forcetypeassert // nothing else is put in
		if s.unauthenticatedPerOrigin[s.conns[c].origin] == most {
			s.untrack(c)
			s.group.Go(func() { _ = c.peer.Close() })
			return true
		}
	}
	return false
}

// markAuthenticated records that a connection is authenticated. The mutex of the connection is held.
func (s *Server) markAuthenticated(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.conns[c]; a != nil {
		s.removeUnauthenticated(a)
	}
}

// removeUnauthenticated removes a connection from the list of unauthenticated connections, once.
func (s *Server) removeUnauthenticated(a *trackedConn) {
	if a.unauthenticated == nil {
		return
	}
	s.unauthenticated.Remove(a.unauthenticated)
	a.unauthenticated = nil
	if s.unauthenticatedPerOrigin[a.origin]--; s.unauthenticatedPerOrigin[a.origin] == 0 {
		delete(s.unauthenticatedPerOrigin, a.origin)
	}
}

// release removes a connection that has ended.
func (s *Server) release(c *conn) {
	s.mu.Lock()
	s.untrack(c)
	s.mu.Unlock()
	s.group.Done()
}

// untrack removes a connection, once.
func (s *Server) untrack(c *conn) {
	a := s.conns[c]
	if a == nil {
		return
	}
	s.removeUnauthenticated(a)
	delete(s.conns, c)
	if s.perOrigin[a.origin]--; s.perOrigin[a.origin] == 0 {
		delete(s.perOrigin, a.origin)
	}
}
