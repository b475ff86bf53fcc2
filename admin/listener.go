package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
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
	if slot, ok := conn.(*slotted); ok {
		conn, o.local = slot.Conn, slot.local
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

// limit lets at most n connections of the listener be open at once; further ones wait
// in the kernel's queue. local marks their requests as those of operators.
func limit(l net.Listener, n int, local bool) net.Listener {
	return &limited{Listener: l, local: local, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	local  bool
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotted{Conn: conn, local: l.local, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotted struct {
	net.Conn
	local bool
	free  func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
