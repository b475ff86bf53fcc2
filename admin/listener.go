package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/admin/auth"
)

// tlsState is what a connection that was TLS underneath tells of it.
type tlsState interface{ ConnectionState() tls.ConnectionState }

// origin is how the connection of a request came.
type origin struct {
	tls     tlsState // nil: nobody knows of TLS
	local   bool     // through the listener that only operators reach
	proxied bool     // the address of its peer is one that a proxy told
}

type originKey struct{}

// rememberOrigin keeps, for the requests of a connection, how it came: net/http itself knows
// only connections whose TLS it did.
func rememberOrigin(ctx context.Context, conn net.Conn) context.Context {
	var o origin
	if c, ok := conn.(*counted); ok {
		conn, o.local = c.Conn, c.on.local
	}
	o.tls, _ = conn.(tlsState)
	if told, ok := conn.(interface{ Proxied() bool }); ok {
		o.proxied = told.Proxied()
	}
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(r *http.Request) origin {
	o, _ := r.Context().Value(originKey{}).(origin)
	return o
}

// cameLocally says whether a request came through Config.Local.
func cameLocally(r *http.Request) bool { return originOf(r).local }

// isSecure says whether a request came by TLS.
func isSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	state := originOf(r).tls
	return state != nil && state.ConnectionState().HandshakeComplete
}

// limit lets at most n connections of the listener be open at a time. One more closes a connection of
// the address that has most of them, so that a client that keeps many open keeps no other client out.
// local marks the requests of its connections as those of operators.
func limit(l net.Listener, n int, local bool) *limited {
	return &limited{Listener: l, local: local, max: n, open: make(map[netip.Prefix][]*counted)}
}

type limited struct {
	net.Listener
	local bool
	max   int

	mu    sync.Mutex
	total int
	open  map[netip.Prefix][]*counted // the oldest first; no empty lists
}

// counted is an open connection of a limited listener.
type counted struct {
	net.Conn
	on        *limited
	from      netip.Prefix
	active    atomic.Bool // a request is under way
	forgotten bool        // its place was given back; under mu of on
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &counted{Conn: conn, on: l}
		c.from, _ = auth.ClientPrefix(conn.RemoteAddr()) // none for the control socket: all its clients count as one
		switch victim := l.admit(c); victim {
		case nil:
			return c, nil
		case c:
			_ = c.Close()
		default:
			go victim.Close() // TLS may wait for a peer that does not read
			return c, nil
		}
	}
}

// admit counts a connection and names the one that has to go for it, which may be itself.
func (l *limited) admit(c *counted) (victim *counted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.max {
		victim = l.victim(c)
	}
	l.total++
	l.open[c.from] = append(l.open[c.from], c)
	if victim != nil {
		l.forget(victim)
	}
	return victim
}

// forget gives the place of a connection back, once. mu is held.
func (l *limited) forget(c *counted) {
	if c.forgotten {
		return
	}
	c.forgotten = true
	l.total--
	l.open[c.from] = slices.DeleteFunc(l.open[c.from], func(other *counted) bool { return other == c })
	if len(l.open[c.from]) == 0 {
		delete(l.open, c.from)
	}
}

// victim is the oldest idle connection of the address that has most. When all of those serve
// requests it is the newest of them, or c itself where that is of the same address. mu is held.
func (l *limited) victim(c *counted) *counted {
	most, of := len(l.open[c.from])+1, c.from
	for from, conns := range l.open {
		if len(conns) > most {
			most, of = len(conns), from
		}
	}
	conns := l.open[of]
	for _, other := range conns {
		if !other.active.Load() {
			return other
		}
	}
	if of == c.from {
		return c
	}
	return conns[len(conns)-1]
}

// connState is http.Server.ConnState: it keeps which connections serve a request.
func connState(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*counted); ok {
		c.active.Store(state == http.StateActive)
	}
}

// Close implements net.Conn. It may be called more than once.
func (c *counted) Close() error {
	c.on.mu.Lock()
	c.on.forget(c)
	c.on.mu.Unlock()
	return c.Conn.Close()
}
