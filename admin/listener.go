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

// tlsState is implemented by connections of cmd/listen that use TLS.
type tlsState interface{ ConnectionState() tls.ConnectionState }

// origin describes the connection of a request.
type origin struct {
	tls     tlsState // nil: not a TLS connection of cmd/listen
	local   bool     // through Config.Local
	proxied bool     // the address of the peer comes from a PROXY header
}

type originKey struct{}

// withOrigin stores the origin of a connection in the context of its requests: net/http itself knows only its own TLS.
func withOrigin(ctx context.Context, conn net.Conn) context.Context {
	var o origin
	if c, ok := conn.(*limitedConn); ok {
		conn, o.local = c.Conn, c.listener.local
	}
	o.tls, _ = conn.(tlsState)
	if proxyAware, ok := conn.(interface{ Proxied() bool }); ok {
		o.proxied = proxyAware.Proxied()
	}
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(r *http.Request) origin {
	o, _ := r.Context().Value(originKey{}).(origin)
	return o
}

// isLocal reports whether a request came through Config.Local.
func isLocal(r *http.Request) bool { return originOf(r).local }

// isSecure reports whether a request came over TLS.
func isSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	state := originOf(r).tls
	return state != nil && state.ConnectionState().HandshakeComplete
}

// limitListener limits the open connections of the listener to n. For one more it closes a connection of the address that
// has the most, so that a client with many connections does not lock out others. local marks the requests of its
// connections as those of operators.
func limitListener(l net.Listener, n int, local bool) *limitedListener {
	return &limitedListener{Listener: l, local: local, max: n, open: make(map[netip.Prefix][]*limitedConn)}
}

type limitedListener struct {
	net.Listener
	local bool
	max   int

	mu    sync.Mutex
	total int
	open  map[netip.Prefix][]*limitedConn // the oldest first; no empty lists
}

// limitedConn is an open connection of a limited listener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	prefix   netip.Prefix
	active   atomic.Bool // a request is in flight
	released bool        // no longer counted; guarded by mu of the listener
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: conn, listener: l}
		c.prefix, _ = auth.ClientPrefix(conn.RemoteAddr()) // invalid for the control socket: its clients count as one
		switch victim := l.track(c); victim {
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

// track counts a connection and returns the one to close for it, which may be c itself, or nil.
func (l *limitedListener) track(c *limitedConn) (victim *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.max {
		victim = l.victim(c)
	}
	l.total++
	l.open[c.prefix] = append(l.open[c.prefix], c)
	if victim != nil {
		l.release(victim)
	}
	return victim
}

// release stops counting a connection. mu is held.
func (l *limitedListener) release(c *limitedConn) {
	if c.released {
		return
	}
	c.released = true
	l.total--
	l.open[c.prefix] = slices.DeleteFunc(l.open[c.prefix], func(other *limitedConn) bool { return other == c })
	if len(l.open[c.prefix]) == 0 {
		delete(l.open, c.prefix)
	}
}

// victim returns the oldest idle connection of the address that has the most. If all of those serve
// requests, it returns the newest of them, or c itself when that has the same address. mu is held.
func (l *limitedListener) victim(c *limitedConn) *limitedConn {
	most, of := len(l.open[c.prefix])+1, c.prefix
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
	if of == c.prefix {
		return c
	}
	return conns[len(conns)-1]
}

// connState is http.Server.ConnState: it records which connections serve a request.
func connState(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*limitedConn); ok {
		c.active.Store(state == http.StateActive)
	}
}

// Close implements net.Conn. It may be called more than once.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.release(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
