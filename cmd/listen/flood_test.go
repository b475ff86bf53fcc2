package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/peeklock/peeklock/test/kit"
)

// from is one end of a pipe with the IP address of another machine.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

// dialFrom connects from an address and returns the client's end.
func dialFrom(t *testing.T, l *kit.PipeListener, ip string) net.Conn {
	t.Helper()
	client := l.Dial(t, func(server net.Conn) net.Conn { return from{server, ip} })
	synctest.Wait() // it is registered
	return client
}

// Thousands of silent connections of one address close each other, and not a client elsewhere that is slow to send
// its first bytes. Addresses in one /64 of IPv6 count as one.
func TestFloodClosesConnectionsOfItsOwnAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := kit.NewPipeListener()
		config := DefaultConfig()
		config.Listeners, config.PendingMax = []net.Listener{listener}, 4
		p := kit.Must(Open(t.Context(), config))(t)
		honest := []net.Conn{dialFrom(t, listener, "192.0.2.1"), dialFrom(t, listener, "2001:db8:1::1")}
		var crowd []net.Conn
		for i := range 10 {
			crowd = append(crowd, dialFrom(t, listener, []string{"2001:db8:2::1", "2001:db8:2::2"}[i%2]))
		}
		for _, cut := range crowd[:8] {
			ended(t, cut)
		}
		for _, c := range append(honest, crowd[8:]...) {
			exchange(t, c, "AMQP", "")
			if taken, err := p.AMQP().Accept(); err != nil {
				t.Fatal(err)
			} else if err := taken.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := p.limiter.Sources(); n != 0 || p.Pending() != 0 {
			t.Errorf("%d addresses and %d connections are remembered", n, p.Pending())
		}
	})
}

// Behind a proxy all connections have one address, and are counted by the address in their header.
func TestFloodBehindAProxyClosesItsOwnConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := kit.NewPipeListener()
		config := DefaultConfig()
		config.Listeners, config.PendingMax = []net.Listener{listener}, 4
		config.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		p := kit.Must(Open(t.Context(), config))(t)
		dial := func(client string) net.Conn {
			c := dialFrom(t, listener, "192.0.2.1")
			exchange(t, c, fmt.Sprintf("PROXY TCP4 %s 192.0.2.9 1000 5672\r\n", client), "")
			synctest.Wait()
			return c
		}
		honest := dial("198.51.100.1")
		for range 10 {
			dial("198.51.100.2")
		}
		exchange(t, honest, "AMQP", "")
		taken := kit.Must(p.AMQP().Accept())(t)
		if err := errors.Join(taken.Close(), p.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
