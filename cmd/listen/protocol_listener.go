package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// protocolListener is the listener for one protocol.
type protocolListener struct {
	addr   net.Addr
	queue  chan *pendingConn
	closed chan struct{}
	once   sync.Once
}

func newProtocolListener(addr net.Addr) *protocolListener {
	return &protocolListener{addr: addr, queue: make(chan *pendingConn), closed: make(chan struct{})}
}

// Accept returns the next connection of this protocol.
func (l *protocolListener) Accept() (net.Conn, error) {
	for {
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case s := <-l.queue:
			if s.counted.Remove() { // otherwise it was closed while it waited here
				return s.conn, nil
			}
		}
	}
}

// Close makes Accept fail and refuses later connections. The Port continues.
func (l *protocolListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address of the first listener of the port.
func (l *protocolListener) Addr() net.Addr { return l.addr }

// deliver waits until the server accepts the connection or ctx ends. Meanwhile the connection stays pending: a
// server at its limit does not make the port hold more connections.
func (l *protocolListener) deliver(ctx context.Context, s *pendingConn) error {
	select {
	case l.queue <- s:
		return nil
	case <-l.closed:
		return errServerClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the server: %w", ctx.Err())
	}
}

// peekProtocol reads until the protocol is certain. The returned connection returns these bytes again.
func peekProtocol(conn net.Conn) (protocol, *peekedConn, error) {
	first := make([]byte, 0, firstBytesMax)
	for {
		n, err := conn.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		if kind := classify(first); kind != protocolUnknown {
			return kind, &peekedConn{Conn: conn, first: first}, nil
		}
		if err != nil {
			return protocolUnknown, nil, fmt.Errorf("read the first bytes: %w", err)
		}
	}
}

// peekedConn is a connection whose first bytes were read and are returned again. As with every stream connection,
// one goroutine may read at a time.
type peekedConn struct {
	net.Conn
	first []byte // not read again yet; nil once all have been, which frees the buffer
	// proxied is the result of Proxied.
	proxied bool
}

// Proxied reports whether a proxy reported the address of the peer. Such an address proves nothing about the
// location of a client, so no right may depend on it.
func (u *peekedConn) Proxied() bool { return u.proxied }

// ConnectionState returns the state of the TLS connection below; it is zero without TLS.
func (u *peekedConn) ConnectionState() tls.ConnectionState { return tlsState(u.Conn) }

// AcknowledgeAtOnce implements amqp.AcknowledgingConn.
func (u *peekedConn) AcknowledgeAtOnce() { acknowledge(u.Conn) }

// acknowledge makes the kernel acknowledge at once what has arrived on the TCP connection below conn.
func acknowledge(conn net.Conn) {
	switch below := conn.(type) {
	case interface{ AcknowledgeAtOnce() }:
		below.AcknowledgeAtOnce()
	case *tls.Conn:
		acknowledge(below.NetConn())
	case syscall.Conn:
		acknowledgeTCP(below)
	}
}

// tlsState returns the TLS state of a connection, which is zero without TLS. A server uses it to get the
// certificate of the client and the server name that the client requested.
func tlsState(conn net.Conn) tls.ConnectionState {
	if secure, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return secure.ConnectionState()
	}
	return tls.ConnectionState{}
}

func (u *peekedConn) Read(b []byte) (int, error) {
	if u.first == nil {
		return u.Conn.Read(b)
	}
	n := copy(b, u.first)
	if u.first = u.first[n:]; len(u.first) == 0 {
		u.first = nil
	}
	return n, nil
}
