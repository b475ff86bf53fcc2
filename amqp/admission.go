package amqp

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"time"
)

// admission is who is connected. All of it belongs to the mutex of the Server.
type admission struct {
	conns     map[*conn]*admitted
	origins   map[netip.Addr]int // connections of each
	strangers *list.List         // of *conn that have proved nothing yet, the oldest in front
	unproved  map[netip.Addr]int // how many of these come from each address
	refused   int                // since told
	toldAt    time.Time          // when it was last logged that connections are refused
}

// admitted is what is known of a connection.
type admitted struct {
	origin   netip.Addr    // the zero Addr when it does not come from an IP address
	stranger *list.Element // nil once it has proved itself or was cut off
}

func newAdmission() admission {
	return admission{conns: make(map[*conn]*admitted), origins: make(map[netip.Addr]int), strangers: list.New(), unproved: make(map[netip.Addr]int)}
}

// admit registers a connection, or closes it when there are too many. When a member is full
// one that has proved nothing goes: of the address that has the most of those, the oldest. An
// honest client has put a token long ago, and one that opens thousands cuts off its own.
func (s *Server) admit(ctx context.Context, peer net.Conn) (*conn, bool) {
	origin := originOf(peer.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.config.ConnectionsPerPeerMax
	switch {
	case s.closed:
		_ = peer.Close()
		return nil, false
	case origin.IsValid() && most > 0 && s.origins[origin] >= most:
		s.turnAway(ctx, peer, "too many connections from one address", most)
		return nil, false
	case len(s.conns) >= s.config.ConnectionsMax && !s.cutStranger():
		s.turnAway(ctx, peer, "too many connections", s.config.ConnectionsMax)
		return nil, false
	}
	s.totals.accepted.Add(1)
	c := newConn(&s.config, peer)
	c.totals, c.told, c.missed = s.totals, &s.told, &s.missed
	c.memory.account = s.budget.Open(c.memoryChanged)
	c.known, c.dismiss = func() { s.recognise(c) }, func() { s.dismiss(c) }
	s.conns[c] = &admitted{origin: origin, stranger: s.strangers.PushBack(c)}
	s.unproved[origin]++
	s.origins[origin]++
	s.group.Add(1)
	return c, true
}

// turnAway closes a connection that there is no room for, and says so in the log now and
// then: a flood of connections must not become one of lines.
func (s *Server) turnAway(ctx context.Context, peer net.Conn, why string, most int) {
	s.refused++
	s.totals.crowded.Add(1)
	if now := time.Now(); now.Sub(s.toldAt) >= crowdToldEvery {
		s.config.Logger.WarnContext(ctx, "connections refused", "reason", why, "peer", peer.RemoteAddr(), "max", most, "count", s.refused)
		s.toldAt, s.refused = now, 0
	}
	s.group.Go(func() { _ = peer.Close() }) // it may take a moment (WebSocket), and mu is held
}

// cutStranger makes room for one connection: of the address that has the most connections
// that have proved nothing, it ends the oldest of these; false when there is none. The place
// is free at once although the goroutines of the connection have yet to end.
func (s *Server) cutStranger() bool {
	most := 0
	for _, n := range s.unproved {
		most = max(most, n)
	}
	for e := s.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*conn) //nolint:forcetypeassert // nothing else is put in
		if s.unproved[s.conns[c].origin] == most {
			s.forget(c)
			s.group.Go(func() { _ = c.peer.Close() })
			return true
		}
	}
	return false
}

// recognise notes that a connection has proved itself. The mutex of the connection is held.
func (s *Server) recognise(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.conns[c]; a != nil {
		s.proven(a)
	}
}

// proven takes a connection off those that have proved nothing, once.
func (s *Server) proven(a *admitted) {
	if a.stranger == nil {
		return
	}
	s.strangers.Remove(a.stranger)
	a.stranger = nil
	if s.unproved[a.origin]--; s.unproved[a.origin] == 0 {
		delete(s.unproved, a.origin)
	}
}

// dismiss forgets a connection that is over.
func (s *Server) dismiss(c *conn) {
	s.mu.Lock()
	s.forget(c)
	s.mu.Unlock()
	s.group.Done()
}

// forget takes a connection off, once.
func (s *Server) forget(c *conn) {
	a := s.conns[c]
	if a == nil {
		return
	}
	s.proven(a)
	delete(s.conns, c)
	if s.origins[a.origin]--; s.origins[a.origin] == 0 {
		delete(s.origins, a.origin)
	}
}

// originOf is whom a connection counts for: its IP address, or the /64 of IPv6 that one
// customer has. The zero Addr for what comes from elsewhere, such as a pipe.
func originOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if !ip.Is6() {
		return ip
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}
