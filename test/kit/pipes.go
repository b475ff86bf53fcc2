package kit

import (
	"net"
	"sync"
	"testing"
)

// PipeListener is a listener without sockets, for bubbles of testing/synctest: their time does not advance while a
// socket waits. It is safe for concurrent use.
type PipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipeListener returns an open PipeListener.
func NewPipeListener() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It may be called more than once.
func (l *PipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*PipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects and returns the end of the client. change, unless it is nil, wraps the end that is accepted.
func (l *PipeListener) Dial(t testing.TB, change func(net.Conn) net.Conn) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	if change != nil {
		server = change(server)
	}
	select {
	case l.conns <- server:
	case <-l.closed:
		t.Fatal("the listener is closed")
	}
	return client
}
