package cluster

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// peerServer serves the forward connections of other members, which carry requests.
type peerServer struct {
	mu    sync.Mutex // guards conns
	conns map[fsm.MemberID]*peerServerConn
}

// peerServerConn is a forward connection of another member.
type peerServerConn struct {
	conn net.Conn
	done chan struct{} // closed when it is no longer served
}

// serve serves the requests of another member. A second connection of the same member replaces the first,
// and is served only when no request of the first connection is still waiting: such a request could lock
// messages that no receiver gets.
func (s *peerServer) serve(ctx context.Context, host rpc.Host, logger *slog.Logger, from fsm.MemberID, conn net.Conn) {
	now := &peerServerConn{conn: conn, done: make(chan struct{})}
	defer close(now.done)
	s.mu.Lock()
	before := s.conns[from]
	if s.conns == nil {
		s.conns = make(map[fsm.MemberID]*peerServerConn)
	}
	s.conns[from] = now
	s.mu.Unlock()
	if before != nil {
		_ = before.conn.Close()
		<-before.done
	}
	rpc.Serve(ctx, host, logger, from, conn)
	s.mu.Lock()
	if s.conns[from] == now {
		delete(s.conns, from)
	}
	s.mu.Unlock()
}

// count returns the number of open connections.
func (s *peerServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
