package amqp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/amqp/work"
)

// rejections counts refused connections, for the log. The mutex of the Server guards it.
type rejections struct {
	count  int       // since logged
	logged time.Time // when rejections were last logged
}

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
	s.totals.accepted.Add(1)
	c = newConn(&s.config, peer)
	c.totals, c.refusalLog, c.consumers = s.totals, &s.refusalLog, &s.consumers
	c.credentials.LimitMissing(&s.missingRightLog)
	c.unauthenticatedWork = s.unauthenticatedWork.Open(work.Owner{Source: c.origin}, unauthenticatedWorkPerSecond, unauthenticatedWorkBurst)
	c.openWork = func(key string) {
		owner := work.Owner{Source: c.origin, Namespace: uint32(c.credentials.Namespace()), Key: key}
		c.work = s.work.Open(owner, workPerSecond, workBurst)
		c.scanWork.Open(s.scanWork.Open(owner, scanWorkPerSecond, scanWorkBurst))
	}
	c.memory.account = s.budget.Open(c.memoryChanged)
	c.onAuthenticated, c.release = counted.Protect, func() { s.release(c, counted) }
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

// reject closes a connection that exceeds a limit. It logs at most once per rejectLogEvery, so that a flood of
// connections does not become a flood of log lines.
func (s *Server) reject(ctx context.Context, peer net.Conn, cause error) {
	most := s.config.ConnectionsMax
	if errors.Is(cause, connlimit.ErrPerSource) {
		most = s.config.ConnectionsPerPeerMax
	}
	s.rejections.count++
	s.totals.rejected.Add(1)
	if now := time.Now(); now.Sub(s.rejections.logged) >= rejectLogEvery {
		s.config.Logger.WarnContext(ctx, "connections refused", "reason", cause, "peer", peer.RemoteAddr(), "max", most, "count", s.rejections.count)
		s.rejections = rejections{logged: now}
	}
	s.group.Go(func() { _ = peer.Close() }) // closing a WebSocket may take a moment, and mu is held
}

// release removes a connection that has ended.
func (s *Server) release(c *conn, counted *connlimit.Conn) {
	counted.Remove()
	c.mu.Lock()
	c.openWork = nil // the answer to a token may still be under way
	c.work.Close()
	c.unauthenticatedWork.Close()
	c.mu.Unlock()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.group.Done()
}
