package connection

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
)

// peerConn is a connection with a given remote address.
type peerConn struct {
	net.Conn
	from   string
	closed chan struct{}
	once   sync.Once
}

func (c *peerConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

func (c *peerConn) Close() error { c.once.Do(func() { close(c.closed) }); return nil }

// conns is a listener that accepts connections until none are left.
type conns []*peerConn

func (l *conns) Accept() (net.Conn, error) {
	if len(*l) == 0 {
		return nil, net.ErrClosed
	}
	c := (*l)[0]
	*l = (*l)[1:]
	return c, nil
}
func (*conns) Close() error   { return nil }
func (*conns) Addr() net.Addr { return nil }

// A connection above the limit replaces an idle one of the address that has the most, and no other; if all of
// those serve requests, one of the same address is refused.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const greedy, modest, third = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	of := func(from string) *peerConn { return &peerConn{from: from, closed: make(chan struct{})} }
	busy, idle, last, other, more, again, fresh, extra := of(greedy), of(greedy), of(greedy), of(modest), of(modest), of(greedy), of(third), of(greedy)
	all := []*peerConn{busy, idle, last, other, more, again, fresh, extra}
	incoming := conns(slices.Clone(all))
	l := Limit(&incoming, 4, false)
	accept := func(want *peerConn, active bool) net.Conn {
		t.Helper()
		c, err := l.Accept()
		if err != nil || c.(*limitedConn).Conn != want {
			t.Fatalf("accepted %v, %v", c, err)
		}
		if active {
			State(c, http.StateActive)
		}
		return c
	}
	closed := func(want ...*peerConn) {
		t.Helper()
		for i, c := range all {
			if slices.Contains(want, c) {
				<-c.closed
				continue
			}
			select {
			case <-c.closed:
				t.Errorf("connection %d, of %s, was closed", i, c.from)
			default:
			}
		}
	}
	accept(busy, true)
	accept(idle, false)
	accept(last, true)
	first := accept(other, true)
	closed()
	accept(more, true)
	closed(idle)
	_ = first.Close()
	_ = first.Close() // releases one slot, not two
	accept(again, true)
	accept(fresh, true)
	closed(idle, other, again) // all connections of greedy are active: the newest is closed
	if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted %v, %v", c, err)
	}
	closed(idle, other, again, extra)
	limiter := l.(*limitedListener).limiter
	if n, sources := limiter.Len(), limiter.Sources(); n != 4 || sources != 3 {
		t.Errorf("%d connections of %d addresses", n, sources)
	}
}
