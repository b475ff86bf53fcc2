package connection

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/peeklock/peeklock/amqp/connlimit"
)

// tlsState is implemented by connections of cmd/listen that use TLS.
type tlsState interface{ ConnectionState() tls.ConnectionState }

// origin describes the connection of a request.
type origin struct {
	tls     tlsState // nil: not a TLS connection of cmd/listen
	local   bool     // through a listener of operators
	proxied bool     // the address of the peer comes from a PROXY header
	header  *rawHeader
	counted *connlimit.Conn
}

type originKey struct{}

// WithOrigin is http.Server.ConnContext: it stores the origin of a connection in the context of its requests. net/http itself
// knows only its own TLS.
func WithOrigin(ctx context.Context, conn net.Conn) context.Context {
	var o origin
	if c, ok := conn.(*limitedConn); ok {
		conn, o.local, o.header, o.counted = c.Conn, c.listener.local, &c.header, c.counted
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

// IsLocal reports whether a request came through a listener of operators.
func IsLocal(r *http.Request) bool { return originOf(r).local }

// IsSecure reports whether a request came over TLS.
func IsSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	state := originOf(r).tls
	return state != nil && state.ConnectionState().HandshakeComplete
}

// IsProxied reports whether the address of the peer of a request comes from a PROXY header.
func IsProxied(r *http.Request) bool { return originOf(r).proxied }

// Spelling returns a function that returns the name of a header as the client wrote it, or in its canonical form if that is
// not known. It may be called while the request is served.
func Spelling(r *http.Request) func(canonical string) string { return originOf(r).header.spelling }

// Answering records that the answer of a request is being written: until the next request its connection is closed for a new
// one as if it were idle.
func Answering(r *http.Request) {
	if counted := originOf(r).counted; counted != nil {
		counted.SetActive(false)
	}
}

// Limit limits the open connections of the listener to n; see connlimit for the one that is closed when there
// is one more. Those that serve a request are closed last. local marks the requests of its connections as those of
// operators.
func Limit(l net.Listener, n int, local bool) net.Listener {
	return &limitedListener{Listener: l, local: local, limiter: connlimit.New(n, 0)}
}

type limitedListener struct {
	net.Listener
	local   bool
	limiter *connlimit.Limiter
}

// limitedConn is an open connection of a limited listener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	counted  *connlimit.Conn
	header   rawHeader // of the request that is served
}

// Read implements net.Conn.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.header.add(p[:n])
	return n, err //nolint:wrapcheck // as net.Conn
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// TLS may wait for a peer that does not read.
		counted, err := l.limiter.Add(conn.RemoteAddr(), func() { go conn.Close() })
		if err == nil {
			return &limitedConn{Conn: conn, listener: l, counted: counted}, nil
		}
		_ = conn.Close()
	}
}

// State is http.Server.ConnState: it records which connections serve a request.
func State(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*limitedConn); ok {
		c.counted.SetActive(state == http.StateActive)
		if state == http.StateIdle {
			c.header.reset()
		}
	}
}

// Close implements net.Conn. It may be called more than once.
func (c *limitedConn) Close() error {
	c.counted.Remove()
	return c.Conn.Close()
}
