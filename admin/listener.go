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

type tlsKey struct{}

// rememberTLS keeps, for the requests of a connection, how it came: net/http itself knows only
// connections whose TLS it did.
func rememberTLS(ctx context.Context, conn net.Conn) context.Context {
	if slot, ok := conn.(*slotted); ok {
		conn = slot.Conn
	}
	if state, ok := conn.(tlsState); ok {
		ctx = context.WithValue(ctx, tlsKey{}, state)
	}
	return ctx
}

// isSecure says whether a request came by TLS.
func isSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	state, ok := r.Context().Value(tlsKey{}).(tlsState)
	return ok && state.ConnectionState().HandshakeComplete
}

// limit lets at most n connections of the listener be open at once; further ones wait
// in the kernel's queue.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
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
	return &slotted{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotted struct {
	net.Conn
	free func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
